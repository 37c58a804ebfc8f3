//! The end of a worker's output, for a page. Blocks where the file system does.

use camino::Utf8Path;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes at the end that are shown.
const SHOWN: u64 = 64 << 10;
/// Bytes at the end that are searched.
const SEARCHED: u64 = 16 << 20;
/// Lines that a search shows, the newest ones.
const LINES: usize = 500;

/// Lines at the end, or those of them that hold a text, and in words where they were read from.
pub(in crate::cli) fn tail(
    run_dir: &Utf8Path,
    attempt: u32,
    worker: u32,
    query: &str,
) -> Result<(Vec<String>, String), String> {
    let file = run_dir.join(format!("attempts/{attempt:04}/worker-{worker}.log"));
    let limit = if query.is_empty() { SHOWN } else { SEARCHED };
    let (text, skipped) = end(&file, limit).map_err(|e| format!("{file}: {e}"))?;
    let text = supervise_config::redact_text(&text).to_string();
    let mut lines: Vec<String> = text.lines().filter(|l| l.contains(query)).map(str::to_owned).collect();
    let more = lines.len().saturating_sub(LINES);
    if !query.is_empty() {
        lines.drain(..more);
    }
    let of = crate::render::bytes(limit);
    let about = match (skipped, query.is_empty()) {
        (true, true) => format!("the last {of}; all of it: supervise logs --attempt {attempt} --worker {worker}"),
        (true, false) => format!("in the last {of}, the newest {LINES} lines at most"),
        (false, true) => "all of it since the file was begun".to_owned(),
        (false, false) => format!("in the whole file, the newest {LINES} lines at most"),
    };
    Ok((lines, about))
}

/// The end of a regular file from the beginning of a line on, and whether something stands before it.
fn end(file: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(file)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let from = meta.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let begins = match from {
        0 => 0,
        _ => bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1),
    };
    let text = bytes.get(begins..).unwrap_or_default();
    Ok((String::from_utf8_lossy(text).into_owned(), from > 0))
}
