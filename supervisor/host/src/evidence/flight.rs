//! Records of PyTorch's flight recorder, and the rank that they point to.

use super::{DIRECTORY, EvidenceOrder};
use camino::Utf8Path;
use std::fs::{self, File};
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;
use supervise_checkpoint::flight::{RECORD, read};
use supervise_core::observe::collectives::{self, Collectives};

/// Prefix of the records' names; the rank follows.
pub const RECORDS: &str = "nccl_trace_rank_";
const RANKS: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// The findings, and a file about them; `None` if no rank left a record.
pub(super) fn look(order: &EvidenceOrder) -> Option<(Collectives, String)> {
    let dir = order.attempt.join(DIRECTORY);
    let (tx, rx) = mpsc::channel();
    let thread = std::thread::Builder::new();
    // A hanging thread is abandoned.
    let started = thread.spawn(move || drop(tx.send(records(&dir))));
    started.ok()?;
    rx.recv_timeout(PATIENCE).ok().flatten()
}

fn records(dir: &Utf8Path) -> Option<(Collectives, String)> {
    let rank = |e: &fs::DirEntry| e.file_name().to_str()?.strip_prefix(RECORDS)?.parse::<u32>().ok();
    let entries = fs::read_dir(dir).ok()?.flatten();
    let mut files: Vec<(u32, fs::DirEntry)> = entries.filter_map(|e| Some((rank(&e)?, e))).collect();
    files.sort_unstable_by_key(|(rank, _)| *rank);
    let mut text = String::new();
    if files.len() > RANKS {
        text.push_str(&format!("{} records, the first {RANKS} of them read\n", files.len()));
    }
    let mut traces = Vec::new();
    for (rank, entry) in files.iter().take(RANKS) {
        match bytes(&entry.path()).and_then(|bytes| read(*rank, bytes)) {
            Ok(trace) => traces.push(trace),
            Err(why) => text.push_str(&format!("{RECORDS}{rank} cannot be read: {why}\n")),
        }
    }
    if files.is_empty() {
        return None;
    }
    let found = collectives::read(&traces);
    text.insert_str(
        0,
        &format!(
            "{}\n",
            found.words().unwrap_or_else(|| "no record can be read".to_owned())
        ),
    );
    text.push_str(&collectives::table(&traces));
    Some((found, text))
}

fn bytes(path: &std::path::Path) -> Result<Vec<u8>, String> {
    let fault = |e: std::io::Error| e.to_string();
    let file = File::open(path).map_err(fault)?;
    let meta = file.metadata().map_err(fault)?;
    if !meta.is_file() || meta.len() > RECORD {
        return Err(format!("no file of at most {} MiB", RECORD >> 20));
    }
    let mut bytes = Vec::new();
    file.take(RECORD).read_to_end(&mut bytes).map_err(fault)?;
    Ok(bytes)
}
