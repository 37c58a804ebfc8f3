//! Exceptions that interpreters exited with, from the memory file kept by the guard.

use super::EvidenceOrder;
use crate::guard::standby::{ENDINGS, memory_of};
use std::fs::File;
use std::io::Read;
use supervise_core::id::WorkerId;
use supervise_core::observe::exception::{self, WorkerException};

const MOST: u64 = 8 << 20;

/// The exceptions, without secrets: by worker, the first exit first.
pub(super) fn read(order: &EvidenceOrder) -> Vec<WorkerException> {
    let guards = order.known.iter().filter(|p| !order.workers.contains(p));
    let mut text = Vec::new();
    for file in guards.filter_map(|guard| memory_of(guard.pid, ENDINGS)) {
        if let Ok(file) = File::open(file) {
            // A partial read is still useful.
            let _ = file.take(MOST).read_to_end(&mut text);
        }
    }
    let worker = |pid: i32| {
        let at = order.workers.iter().position(|w| w.pid == pid)?;
        u32::try_from(at).ok().map(WorkerId)
    };
    let mut found = exception::read(&String::from_utf8_lossy(&text), worker);
    let safe = |text: &str| supervise_config::redact_lines(text.lines()).join("\n");
    for raised in found.iter_mut().flat_map(|e| &mut e.chain) {
        raised.message = safe(&raised.message);
        raised.kind = safe(&raised.kind);
    }
    found
}

pub(super) fn text(endings: &[WorkerException]) -> String {
    let part = |e: &WorkerException| format!("# worker {}\n{}\n", e.worker, e.text());
    endings.iter().map(part).collect()
}
