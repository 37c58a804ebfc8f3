//! Reads the journals of a run record by record: an I/O worker reads them in pieces, so that memory use does not depend on their
//! length.

use super::target;
use crate::error::CliError;
use crate::journal_progress::JournalProgress;
use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::iter::once;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism};
use supervise_core::journal::record::JournalRecord;
use supervise_core::journal::{JournalReader, LineHeader, ParsedLine, VERSION, decode};
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, IoWorkerError, JournalPlace, PendingRequest};

/// A shorter piece is decoded by one thread.
const SHORT: usize = 64 << 10;
/// Bytes that a thread takes at a time, up to the end of a line.
const PART: usize = 32 << 10;
/// Number of threads besides the one that hands out records.
static OTHERS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from).clamp(2, 4) - 1);

/// Calls a function for each record from a position on, with its line. Damaged lines are reported and skipped.
///
/// # Errors
/// The file system does not answer, or the journals cannot be read.
pub(super) fn each(
    dir: &Utf8Path,
    from: JournalPlace,
    add: &mut dyn FnMut(&LineHeader, &JournalRecord),
) -> Result<(), CliError> {
    let mut journals = Journals::open(dir, from)?;
    while journals.piece(&mut |_, _, line, records| records.iter().for_each(|record| add(line, record)))? {}
    Ok(())
}

/// Receives a line: its term, text, header and records.
type Adding<'a> = dyn FnMut(u32, &[u8], &LineHeader, &[JournalRecord]) + 'a;

/// The journals of a run, read from a position on, and again when they have grown.
pub(super) struct Journals {
    dir: Utf8PathBuf,
    io_worker: IoClient,
    reading: JournalProgress,
    at: JournalPlace,
    term: u32,
    lines: JournalReader,
    done: u64,
    /// The piece that is read while the previous one is decoded.
    ahead: Option<PendingRequest>,
    /// The piece that was decoded while the previous one was handed out.
    decoded: Option<Decoded>,
    /// The piece that was handed out, whose memory is reused.
    spent: Option<Decoded>,
}

/// A piece of a term's journal with its decoded lines, in the parts that each thread decoded.
struct Decoded {
    term: u32,
    text: Vec<u8>,
    threads: Vec<Vec<RecordBatch>>,
}

/// Consecutive lines of a piece.
#[derive(Default)]
struct RecordBatch {
    number: usize,
    lines: Vec<(Range<usize>, ParsedLine)>,
}

impl Decoded {
    /// Decodes a piece. This thread runs `meanwhile` first and then helps. The new piece reuses the memory of `spent`: each thread
    /// frees what it allocated, so that none waits for another's heap.
    fn new(term: u32, text: Vec<u8>, spent: Option<Self>, meanwhile: impl FnOnce()) -> Self {
        let others = match text.len() {
            0..SHORT => 0,
            _ => *OTHERS,
        };
        let places = parts(&text);
        let next = AtomicUsize::new(0);
        let decoding = |spent: Option<Vec<RecordBatch>>| {
            let mut spent = spent.unwrap_or_default();
            let mut done = Vec::new();
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && let Some(place) = places.get(number)
            {
                let mut part = spent.pop().unwrap_or_default();
                part.number = number;
                part.decode(&text, place.clone());
                done.push(part);
            }
            done
        };
        let mut spent = spent.map(|s| s.threads).unwrap_or_default().into_iter();
        let own = spent.next();
        let threads = std::thread::scope(|scope| {
            // If no more threads can be created, the existing ones do all the work.
            let others: Vec<_> = (0..others)
                .map(|_| spent.next())
                .map_while(|spent| Builder::new().spawn_scoped(scope, || decoding(spent)).ok())
                .collect();
            meanwhile();
            let others = others
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
            once(decoding(own)).chain(others).collect()
        });
        Self { term, text, threads }
    }

    fn lines(&self) -> impl Iterator<Item = (&[u8], &ParsedLine)> {
        let mut parts: Vec<&RecordBatch> = self.threads.iter().flatten().collect();
        parts.sort_unstable_by_key(|part| part.number);
        let lines = parts.into_iter().flat_map(|part| &part.lines);
        lines.map(|(place, read)| (self.text.get(place.clone()).unwrap_or_default(), read))
    }
}

impl RecordBatch {
    /// Decodes the lines in this range of the text, replacing the old ones.
    fn decode(&mut self, text: &[u8], place: Range<usize>) {
        let (mut begin, part) = (place.start, text.get(place.clone()).unwrap_or_default());
        let mut number = 0;
        for end in memchr::memchr_iter(b'\n', part) {
            let line = begin..place.start + end;
            begin = line.end + 1;
            let of = text.get(line.clone()).unwrap_or_default();
            match self.lines.get_mut(number) {
                // Free each old line just before the new one needs as much: freeing all at once would overflow the thread's
                // allocator cache.
                Some(old) => {
                    old.1 = ParsedLine::Damaged(String::new());
                    *old = (line, decode(of));
                }
                None => self.lines.push((line, decode(of))),
            }
            number += 1;
        }
        self.lines.truncate(number);
    }
}

/// Splits a text of whole lines into parts of whole lines.
fn parts(text: &[u8]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut begin = 0;
    while let Some(more) = memchr::memchr(b'\n', text.get(begin + PART..).unwrap_or_default()) {
        let end = begin + PART + more + 1;
        parts.push(begin..end);
        begin = end;
    }
    let end = memchr::memrchr(b'\n', text).map_or(0, |last| last + 1);
    if begin < end {
        parts.push(begin..end);
    }
    parts
}

impl Journals {
    /// Prepares to read.
    ///
    /// # Errors
    /// No I/O worker can be started.
    pub(super) fn open(dir: &Utf8Path, from: JournalPlace) -> Result<Self, CliError> {
        let reading = JournalProgress::new(dir);
        Ok(Self {
            dir: dir.to_owned(),
            io_worker: target::io_worker().map_err(|e| failed(e, &reading))?,
            reading,
            at: from,
            term: from.term,
            lines: JournalReader::default(),
            done: 0,
            ahead: None,
            decoded: None,
            spent: None,
        })
    }

    /// Reads the next piece and hands out its lines, each with term, text and the records that this version knows. Returns true if
    /// more may follow at once; otherwise everything that was read was handed out.
    ///
    /// # Errors
    /// The file system does not answer, or the journals cannot be read; what was read before is handed out.
    pub(super) fn piece(&mut self, add: &mut Adding<'_>) -> Result<bool, CliError> {
        let before = self.decoded.take();
        let (term, text, more) = match self.next() {
            Ok(next) => next,
            Err(e) => {
                self.hand_out(before.as_ref(), add);
                return Err(e);
            }
        };
        let spent = self.spent.take();
        let decoded = Decoded::new(term, text, spent, || self.hand_out(before.as_ref(), add));
        match more {
            true => (self.decoded, self.spent) = (Some(decoded), before),
            false => self.hand_out(Some(&decoded), add),
        }
        Ok(more)
    }

    /// The next piece, its term, and whether another may follow, which is then requested.
    fn next(&mut self) -> Result<(u32, Vec<u8>, bool), CliError> {
        let asked = match self.ahead.take() {
            Some(asked) => Ok(asked),
            None => self.ask(),
        };
        let answer = asked.and_then(|asked| self.io_worker.answer(asked, target::PATIENCE, &mut |_, _| ()));
        let answer = answer.map_err(|e| failed(e, &self.reading))?;
        let IoAnswer::Lines {
            at, text, next, left, ..
        } = answer
        else {
            return Err(CliError::internal("I/O worker: unexpected answer".to_owned()));
        };
        self.at = next.unwrap_or(at);
        if next.is_some() {
            self.ahead = Some(self.ask().map_err(|e| failed(e, &self.reading))?);
        }
        self.done += text.len() as u64;
        self.reading.tell(self.done, self.done + left);
        Ok((at.term, text, next.is_some()))
    }

    fn ask(&mut self) -> Result<PendingRequest, IoWorkerError> {
        self.io_worker.send(IoQuestion::Lines {
            run_dir: self.dir.clone(),
            from: self.at,
        })
    }

    fn hand_out(&mut self, piece: Option<&Decoded>, add: &mut Adding<'_>) {
        let Some(piece) = piece else {
            return;
        };
        let term = piece.term;
        if term != self.term {
            (self.term, self.lines) = (term, JournalReader::default());
        }
        for (text, read) in piece.lines() {
            if !self.lines.is_new(read) {
                continue;
            }
            match read {
                ParsedLine::Known(line, records) => add(term, text, line, records),
                ParsedLine::Unknown(line) | ParsedLine::Newer(_, Some(line)) => add(term, text, line, &[]),
                ParsedLine::Newer(version, None) => {
                    let (dir, number) = (&self.dir, self.lines.number);
                    printer::note(&format!(
                        "{dir}/journal/{term}.jsonl line {number} is left out: it has format version {version}, and this release reads versions up to {VERSION}"
                    ));
                }
                ParsedLine::Damaged(why) => {
                    let (dir, number) = (&self.dir, self.lines.number);
                    printer::note(&format!("{dir}/journal/{term}.jsonl line {number} is damaged: {why}"));
                }
            }
        }
    }
}

fn failed(e: IoWorkerError, reading: &JournalProgress) -> CliError {
    match e {
        IoWorkerError::Stalled(_) => CliError::environment(reading.stalled()),
        IoWorkerError::Refused(e) => CliError::journal(e.what),
        IoWorkerError::Io(_) => CliError::environment(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::{Seq, Tick, WallMs};
    use supervise_core::journal::encode;
    use supervise_core::journal::record::Decision;

    fn text(lines: u64) -> Vec<u8> {
        let line = |n| {
            let record = JournalRecord::Decided {
                at: Tick(n),
                what: Decision::Choose,
                reasons: Vec::new(),
            };
            encode(Seq(n), Tick(n), WallMs(5), &record).unwrap()
        };
        (1..=lines).flat_map(line).collect()
    }

    #[test]
    fn a_piece_is_the_same_whoever_decoded_its_parts() {
        let mut spent = None;
        for lines in [0, 1, 2000, 10_000, 3, 5000] {
            let mut torn = text(lines);
            let whole: Vec<Vec<u8>> = torn.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            torn.extend(br#"{"v":2,"seq":"#);
            let mut told = false;
            let piece = Decoded::new(1, torn, spent.take(), || told = true);
            assert!(told);
            let read: Vec<Vec<u8>> = piece.lines().map(|(line, _)| [line, b"\n"].concat()).collect();
            assert_eq!(read, whole, "{lines} lines");
            for (n, (_, read)) in piece.lines().enumerate() {
                assert!(
                    matches!(read, ParsedLine::Known(line, records) if line.seq.0 == n as u64 + 1 && records.len() == 1)
                );
            }
            spent = Some(piece);
        }
    }

    #[test]
    fn parts_are_whole_lines_that_leave_nothing_out() {
        let long = [vec![b'x'; 3 * PART], b"\n".to_vec()].concat();
        for text in [
            Vec::new(),
            b"\n".to_vec(),
            b"torn".to_vec(),
            text(4000),
            [text(2000), long.clone(), text(9)].concat(),
            long,
        ] {
            let parts = parts(&text);
            let whole = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
            assert_eq!(parts.last().map_or(0, |p| p.end), whole);
            assert!(
                parts.first().is_none_or(|p| p.start == 0) && parts.windows(2).all(|two| two[0].end == two[1].start)
            );
            assert!(parts.iter().all(|p| text[p.clone()].ends_with(b"\n")));
        }
    }
}
