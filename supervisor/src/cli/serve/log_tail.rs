//! Reads and searches the end of a worker's output for a page. Blocks if the file system does.

use crate::render::page::{ExtractLine, LogExtract};
use camino::Utf8Path;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use supervise_host::hidden_places::HiddenLog;

/// Number of bytes shown, from the end.
const SHOWN: u64 = 64 << 10;
/// Bytes that a search reads at once, backwards from the end.
const PIECE: u64 = 4 << 20;
const SEARCH: Duration = Duration::from_secs(3);
/// Maximum number of lines that a search shows, the newest.
const LINES: usize = 500;
/// Maximum number of bytes shown of a found line.
const LONG: usize = 16 << 10;

/// Which part of an output is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogPart {
    End,
    /// Lines that contain a text.
    With(String),
    /// Lines around an offset.
    At(u64),
}

/// The last lines, or those that contain a text, with a description of the range that was read.
pub(in crate::cli) fn tail(
    run_dir: &Utf8Path,
    attempt: u32,
    worker: u32,
    query: &str,
) -> Result<(Vec<String>, String), String> {
    let part = match query {
        "" => LogPart::End,
        _ => LogPart::With(query.to_owned()),
    };
    let read = extract(run_dir, attempt, worker, &part)?;
    Ok((read.lines.into_iter().map(|line| line.text).collect(), read.about))
}

/// A part of an output.
pub(super) fn extract(run_dir: &Utf8Path, attempt: u32, worker: u32, part: &LogPart) -> Result<LogExtract, String> {
    let dir = run_dir.join(format!("attempts/{attempt:04}"));
    let path = dir.join(format!("worker-{worker}.log"));
    let of = crate::render::bytes;
    let read = || -> io::Result<(Vec<Found>, String, u64, u64)> {
        let mut log = HiddenLog::open(&path)?;
        let len = log.file().metadata()?.len();
        let ((lines, end), about) = match part {
            LogPart::End => {
                let about = match len > SHOWN {
                    true => {
                        let shown = of(SHOWN);
                        format!("the last {shown}; all of it: supervise logs --attempt {attempt} --worker {worker}")
                    }
                    false => "all of it since the file was begun".to_owned(),
                };
                (window(log.file(), len.saturating_sub(SHOWN), len, len)?, about)
            }
            LogPart::At(at) => {
                let from = at.saturating_sub(SHOWN / 4).min(len.saturating_sub(SHOWN));
                let to = len.min(from + SHOWN);
                let about = format!("{} of {}, from byte {from} on", of(to - from), of(len));
                (window(log.file(), from, to, len)?, about)
            }
            LogPart::With(query) => {
                let (found, read) = search(log.file(), len, query.as_bytes(), Instant::now() + SEARCH)?;
                let about = match (found.len() >= LINES, read < len) {
                    (true, _) => format!(
                        "the newest {LINES} lines with it, in the last {} of {}",
                        of(read),
                        of(len)
                    ),
                    (false, true) => format!("in the last {} of {}, as far as it was read in time", of(read), of(len)),
                    (false, false) => format!("in all of it, {}", of(len)),
                };
                ((found.into(), len), about)
            }
        };
        let lines = lines.into_iter().map(|(at, line)| (at, log.hide(at, &line)));
        Ok((lines.collect(), about, end, len))
    };
    let (found, about, end, length) = read().map_err(|e| format!("{path}: {e}"))?;
    let texts: Vec<_> = found.iter().map(|(_, line)| String::from_utf8_lossy(line)).collect();
    let texts = supervise_config::redact_lines(texts.iter().map(AsRef::as_ref));
    let mut lines: Vec<ExtractLine> = found
        .iter()
        .zip(texts)
        .map(|((at, _), text)| ExtractLine { at: *at, text })
        .collect();
    if let LogPart::With(query) = part {
        // Hiding secrets may remove the searched text.
        lines.retain(|line| line.text.contains(query));
    }
    Ok(LogExtract {
        lines,
        about,
        end,
        length,
        workers: numbers(&dir, "worker-", ".log"),
        attempts: numbers(&run_dir.join("attempts"), "", ""),
    })
}

/// The whole lines of a range with their offsets, and where they end.
fn window(file: &File, from: u64, to: u64, len: u64) -> io::Result<(Vec<Found>, u64)> {
    let bytes = piece(file, from, to)?;
    let begins = match from {
        0 => 0,
        // A part that begins inside a word could show half of a token, which looks like no secret.
        _ => memchr::memchr(b'\n', &bytes)
            .or_else(|| memchr::memchr2(b'\r', b' ', &bytes))
            .map_or(bytes.len(), |at| at + 1),
    };
    let mut at = begins;
    let mut out = Vec::new();
    for line in bytes.get(begins..).unwrap_or_default().split_inclusive(|b| *b == b'\n') {
        // The rest of this line is in the next part.
        if to < len && !line.ends_with(b"\n") && !out.is_empty() {
            break;
        }
        out.push((from + at as u64, line.strip_suffix(b"\n").unwrap_or(line).to_vec()));
        at += line.len();
    }
    Ok((out, from + at as u64))
}

/// The numbers in the names of a directory, in order.
fn numbers(dir: &Utf8Path, before: &str, after: &str) -> Vec<u32> {
    let number = |name: &str| name.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
    let entries = dir.read_dir_utf8().into_iter().flatten().flatten();
    let mut out: Vec<u32> = entries.filter_map(|e| number(e.file_name())).collect();
    out.sort_unstable();
    out
}

/// The bytes of a range; fewer if the file was truncated meanwhile.
fn piece(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or_default()];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], from + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// A found line, and its offset.
type Found = (u64, Vec<u8>);

/// The newest lines that contain a text, oldest first, and how many bytes from the end were searched.
fn search(file: &File, len: u64, query: &[u8], until: Instant) -> io::Result<(VecDeque<Found>, u64)> {
    // Searching backwards is slower, and most pieces contain nothing.
    let holds = memchr::memmem::Finder::new(query);
    let finder = memchr::memmem::FinderRev::new(query);
    let mut found: VecDeque<Found> = VecDeque::new();
    let mut from = len;
    // The start of the last piece: the rest of its first line is in the piece before it.
    let mut open: Vec<u8> = Vec::new();
    while from > 0 && found.len() < LINES && (from == len || Instant::now() < until) {
        let to = from;
        from = to.saturating_sub(PIECE);
        let mut bytes = piece(file, from, to)?;
        bytes.extend_from_slice(&open);
        let whole = match from {
            0 => 0,
            _ => memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1),
        };
        let lines = &bytes[whole..];
        let mut end = holds.find(lines).map_or(0, |_| lines.len());
        while found.len() < LINES
            && let Some(at) = finder.rfind(&lines[..end])
        {
            let begins = memchr::memrchr(b'\n', &lines[..at]).map_or(0, |n| n + 1);
            let ends = memchr::memchr(b'\n', &lines[at..]).map_or(lines.len(), |n| at + n);
            let shown = ends.min(at.saturating_add(LONG));
            let first = begins.max(at.saturating_sub(LONG));
            found.push_front((from + (whole + first) as u64, lines[first..shown].to_vec()));
            end = begins.saturating_sub(1);
        }
        open = bytes[..whole.min(PIECE as usize)].to_vec();
    }
    Ok((found, len - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn found(bytes: &[u8], query: &str) -> Vec<String> {
        let file = written(bytes);
        let far = Instant::now() + Duration::from_secs(600);
        let (lines, read) = search(&file, bytes.len() as u64, query.as_bytes(), far).unwrap();
        assert!(read == bytes.len() as u64 || lines.len() == LINES);
        for (at, line) in &lines {
            assert!(bytes[*at as usize..].starts_with(line));
        }
        lines
            .iter()
            .map(|(_, l)| String::from_utf8_lossy(l).into_owned())
            .collect()
    }

    #[test]
    fn lines_are_found_wherever_they_stand_and_each_once() {
        assert!(found(b"", "x").is_empty());
        assert_eq!(
            found(b"needle needle\nhay\nneedle", "needle"),
            ["needle needle", "needle"]
        );
        assert_eq!(found(b"a\n\nneedle\n\n", "needle"), ["needle"]);
        // Lines cross the boundaries between pieces.
        let mut text = Vec::new();
        let mut expected = Vec::new();
        for n in 0..40 {
            let line = format!("needle {n} {}", "x".repeat(n * 7));
            text.extend_from_slice(format!("{line}\n").as_bytes());
            text.resize(text.len() + (PIECE as usize) / 3 - n, b'.');
            text.push(b'\n');
            expected.push(line);
        }
        assert_eq!(found(&text, "needle"), expected);
    }

    #[test]
    fn places_that_are_noted_beside_the_log_are_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let log = dir.join("attempts/0001/worker-0.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let text = format!("{}\nneedle Odd-value-1 a\nneedle b\n", "x".repeat(100 << 10));
        std::fs::write(&log, &text).unwrap();
        let at = text.find("Odd").unwrap();
        std::fs::write(dir.join("attempts/0001/worker-0.log.hide"), format!("{at} 11\n")).unwrap();
        for query in ["", "needle"] {
            assert_eq!(tail(dir, 1, 0, query).unwrap().0, ["needle *** a", "needle b"]);
        }
        assert!(tail(dir, 1, 0, "Odd").unwrap().0.is_empty());
    }

    #[test]
    fn a_line_is_found_again_by_its_offset() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        std::fs::create_dir_all(dir.join("attempts/0001")).unwrap();
        let text: String = (0..5000)
            .map(|n| format!("line {n} {}\n", "and ".repeat(n % 15)))
            .collect();
        std::fs::write(dir.join("attempts/0001/worker-0.log"), &text).unwrap();
        std::fs::write(dir.join("attempts/0001/worker-12.log"), "").unwrap();
        let read = |part: LogPart| extract(dir, 1, 0, &part).unwrap();
        let end = read(LogPart::End);
        assert_eq!((end.end, end.length), (text.len() as u64, text.len() as u64));
        assert_eq!(
            (end.workers.as_slice(), end.attempts.as_slice()),
            ([0, 12].as_slice(), [1].as_slice())
        );
        for at in [0, 1, 100_000, end.lines[3].at, u64::MAX] {
            let part = read(LogPart::At(at));
            for line in &part.lines {
                let whole = text[line.at as usize..].lines().next();
                assert_eq!(whole, Some(line.text.as_str()), "{at}");
            }
            assert!(part.end - part.lines[0].at > SHOWN / 2, "{at}");
        }
        let found = read(LogPart::With("line 77 ".to_owned())).lines.remove(0);
        let again = read(LogPart::At(found.at)).lines;
        assert!(again.contains(&found));
    }

    #[test]
    fn many_lines_and_long_ones_are_bounded() {
        let text: String = (0..2 * LINES).map(|n| format!("needle {n}\n")).collect();
        let lines = found(text.as_bytes(), "needle");
        assert_eq!((lines.len(), lines[0].as_str()), (LINES, "needle 500"));
        let long = [vec![b'a'; 1 << 20], b"needle".to_vec(), vec![b'b'; 1 << 20]].concat();
        let lines = found(&long, "needle");
        assert!(lines.len() == 1 && lines[0].len() <= 2 * LONG && lines[0].contains("needle"));
        let file = written(&vec![b'.'; 3 * PIECE as usize]);
        let (lines, read) = search(&file, 3 * PIECE, b"needle", Instant::now()).unwrap();
        assert_eq!((lines.len(), read), (0, PIECE), "it is over in time");
    }
}
