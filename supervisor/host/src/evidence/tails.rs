//! The last output of every worker, and the list of the attempt's processes.

use super::EvidenceOrder;
use super::memory_disk::tail_of;
use crate::guard::record::parse_tree;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::time::SystemTime;

const TAIL: u64 = 64 << 10;
const WORKERS: usize = 64;
const RECORD: u64 = 4 << 20;

/// PIDs of the attempt: the known ones, and those that the guard recorded.
pub(super) fn known(order: &EvidenceOrder) -> BTreeSet<i32> {
    let mut found: BTreeSet<i32> = order.known.iter().chain(&order.workers).map(|p| p.pid).collect();
    let mut text = Vec::new();
    let record = File::open(order.attempt.join("tree")).and_then(|f| f.take(RECORD).read_to_end(&mut text));
    if record.is_ok() {
        let seat = crate::process::own_pid_scope();
        found.extend(parse_tree(&text, &seat).procs.iter().map(|p| p.pid));
    }
    found
}

/// A file for each worker: when its output last came, and its end.
pub(super) fn files(order: &EvidenceOrder) -> Vec<(String, String)> {
    let tail = |n: usize| {
        let (text, at) = tail_of(&order.attempt.join(format!("worker-{n}.log")), TAIL)?;
        let silent = SystemTime::now().duration_since(at).unwrap_or_default();
        let head = format!(
            "# the last line came {:.1} s before this was written\n",
            silent.as_secs_f64()
        );
        Some((format!("tail-{n}.log"), head + &text))
    };
    (0..order.workers.len().min(WORKERS)).filter_map(tail).collect()
}
