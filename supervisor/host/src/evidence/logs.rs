//! The cause according to an attempt's logs, read as `supervise diagnose` does.

use super::{CompletedAttempt, EvidenceOrder, error_files};
use crate::guard::record::OUTPUT_ENDS;
use crate::hidden_places::HiddenLog;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::{Duration, Instant};
use supervise_config::redact_text;
use supervise_core::diagnosis::LogReader;
use supervise_core::id::WorkerId;
use supervise_core::rulebook::log_cause::{LogCause, LogSource};
use supervise_core::rulebook::taxonomy::Class;

/// How long the last output may take to reach the disk.
const WRITTEN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);
const RECORD_END: u64 = 4096;
/// Time limit for reading.
const TIME: Duration = Duration::from_secs(7);
const BLOCK: usize = 1 << 20;
const ROTATED: u32 = 1000;

pub(super) fn cause(order: &EvidenceOrder, ended: CompletedAttempt, reading: Option<LogReader>) -> LogCause {
    let Some(mut reading) = reading else {
        return LogCause::unread("the table of classes does not compile");
    };
    wait_until_written(&order.attempt.join("tree"));
    let until = Instant::now() + TIME;
    let mut logs = Vec::new();
    for worker in 0..u32::try_from(order.workers.len()).unwrap_or_default() {
        let files = files_of(&order.attempt, worker);
        if files.is_empty() {
            continue;
        }
        logs.push((WorkerId(worker), LogSource::Output));
        reading.begin();
        for file in &files {
            match read(file, &mut reading, until) {
                Ok(true) => {}
                Ok(false) => return LogCause::unread("the logs are too long to be read at once"),
                Err(e) => return LogCause::unread(&format!("the log of worker {worker} cannot be read: {e}")),
            }
        }
        reading.end_log();
    }
    let mut cause = reading.verdict(ended.exit).cause(&logs);
    if !cause.sure && ended.exit != Some(0) {
        // If a rank's output goes elsewhere, its exception is only in its error file.
        for (worker, text) in error_files::read(order) {
            logs.push((worker, LogSource::ErrorFile));
            reading.begin();
            reading.feed(text.as_bytes());
            reading.end_log();
        }
        cause = reading.verdict(ended.exit).cause(&logs);
    }
    if cause.class == Some(Class::CkptMissingPart.into()) {
        reading.forget_starts();
        let other = reading.verdict(ended.exit).cause(&logs);
        cause.else_cause = (other != cause).then(|| Box::new(other));
    }
    for text in cause.texts() {
        *text = redact_text(text);
    }
    cause
}

/// Waits until the guard's record says that all output is written. An older guard does not say so.
fn wait_until_written(record: &Utf8Path) {
    let until = Instant::now() + WRITTEN;
    while !says_written(record).unwrap_or(false) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

fn says_written(record: &Utf8Path) -> io::Result<bool> {
    let mut file = File::open(record)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(RECORD_END)))?;
    let mut end = Vec::new();
    file.take(RECORD_END).read_to_end(&mut end)?;
    Ok(end.split(|b| *b == b'\n').any(|line| line == OUTPUT_ENDS.as_bytes()))
}

fn files_of(attempt: &Utf8Path, worker: u32) -> Vec<Utf8PathBuf> {
    let newest = attempt.join(format!("worker-{worker}.log"));
    let rotated = (1..=ROTATED).map(|n| Utf8PathBuf::from(format!("{newest}.{n}")));
    let mut files: Vec<Utf8PathBuf> = rotated.take_while(|file| file.exists()).collect();
    files.reverse();
    files.extend(newest.exists().then_some(newest));
    files
}

/// Returns true if it was read to its end in time.
fn read(file: &Utf8Path, reading: &mut LogReader, until: Instant) -> io::Result<bool> {
    let mut log = HiddenLog::open(file)?;
    while Instant::now() < until {
        match log.read(BLOCK)? {
            Some(bytes) => reading.feed(&bytes),
            None => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::tests::order;
    use super::*;
    use std::fs;
    use supervise_core::id::ProcRef;

    fn at(worker: i32) -> ProcRef {
        ProcRef { pid: worker, start: 1 }
    }

    #[test]
    fn the_logs_of_all_workers_are_read_with_what_was_rotated_away() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
        fs::write(dir.join("tree"), format!("{{}}\n{OUTPUT_ENDS}\n")).unwrap();
        fs::write(
            dir.join("worker-2.log.2"),
            "step 1\nstep 2\ntorch.OutOfMemoryError: CUDA out of",
        )
        .unwrap();
        fs::write(dir.join("worker-2.log.1"), " memory. Tried to allocate 2.00 GiB\n").unwrap();
        fs::write(dir.join("worker-2.log"), "the end\n").unwrap();
        fs::write(dir.join("worker-1.log"), "Connection closed by peer\n").unwrap();
        let order = order(dir, vec![at(1), at(2), at(3)]);
        let told = |exit| cause(&order, CompletedAttempt { exit }, LogReader::new(&[]).ok());
        let found = told(Some(1));
        assert_eq!(found.class, Some(Class::MemCudaOom.into()));
        let root = found.root.unwrap();
        assert_eq!((root.worker, root.line), (WorkerId(2), 3));
        assert_eq!(told(Some(0)).class, None);
    }
}
