//! The journals of a run, folded: from a snapshot where it fits, else from the first line on; line by line, so that a file of any
//! length is read in bounded memory and each piece that was read says that the reading goes on.

mod snapshot;

use super::files::{named, open_file};
use super::protocol::{AttemptStart, JournalPlace, NewerLine};
use crate::ownership::EntryOwner;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use supervise_core::journal::record::{Decision, JournalRecord};
use supervise_core::journal::{JournalReader, ParsedLine as Seen, sum};
use supervise_core::ledger::TimeLedger;
use supervise_core::state::RunState;

/// A longer line is none of ours.
pub(super) const LINE_LIMIT: u64 = 64 << 20;
/// Damaged lines that are said.
const SAID: u64 = 20;
/// Journals whose absence is said at once.
const GONE: usize = 4;
/// Attempts whose beginning is known.
const ATTEMPTS: usize = 32;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// A piece of the journals that is handed out.
const HANDED: u64 = 1 << 20;

/// Hears how many bytes were read, of how many.
pub(super) type ReadProgressFn<'a> = dyn FnMut(u64, u64) + 'a;

/// The last line that was folded: what shows that a file is still the one that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct LastLine {
    at: u64,
    sum: u32,
}

/// State folded so far, and its end in the journals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ReplayedState {
    pub(super) state: RunState,
    pub(super) ledger: TimeLedger,
    /// Records that were folded.
    pub(super) records: u64,
    /// The end of the last whole line that was taken in.
    at: JournalPlace,
    last: LastLine,
    lines: JournalReader,
    /// Bytes in the files of the terms before.
    earlier: u64,
    /// Records of a newer version in the present file.
    unknown: u32,
    /// Damaged lines, and records of a newer version in the files before.
    said: Vec<String>,
    damaged: u64,
    /// The first line of a newer format version.
    pub(super) newer: Option<NewerLine>,
    attempts: Vec<AttemptStart>,
    /// Bytes that no snapshot holds yet.
    #[serde(skip)]
    unsaved: u64,
    #[serde(skip)]
    saved_size: u64,
}

/// One term's file.
#[derive(Debug, Clone)]
pub(super) struct TermFile {
    pub(super) term: u32,
    pub(super) path: Utf8PathBuf,
    len: u64,
    is_file: bool,
    /// `None` where it went meanwhile.
    pub(super) owner: Option<EntryOwner>,
}

/// The terms' files, oldest first.
///
/// # Errors
/// The system's.
pub(super) fn term_files(run_dir: &Utf8Path) -> io::Result<Vec<TermFile>> {
    let dir = run_dir.join("journal");
    let entries = match dir.read_dir_utf8() {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(term) = entry.file_name().strip_suffix(".jsonl").and_then(|n| n.parse().ok()) else {
            continue;
        };
        let path = dir.join(format!("{term}.jsonl"));
        // One that goes meanwhile is found missing when it is opened.
        let meta = fs::metadata(&path).ok();
        out.push(TermFile {
            owner: meta.as_ref().map(|m| EntryOwner::new(&path, m)),
            term,
            path,
            len: meta.as_ref().map_or(0, fs::Metadata::len),
            is_file: meta.is_none_or(|m| m.is_file()),
        });
    }
    out.sort_by_key(|f| f.term);
    Ok(out)
}

/// Bytes in the files before a term's.
fn before(files: &[TermFile], term: u32) -> u64 {
    files.iter().filter(|f| f.term < term).map(|f| f.len).sum()
}

impl ReplayedState {
    /// Folds all journals of a run directory.
    ///
    /// # Errors
    /// The system's, where a journal cannot be read.
    pub(super) fn of(run_dir: &Utf8Path, tell: &mut ReadProgressFn<'_>) -> io::Result<Self> {
        let files = term_files(run_dir)?;
        let mut out = Self::restored(run_dir, &files).unwrap_or_default();
        out.go_on(&files, tell)?;
        Ok(out)
    }

    /// Takes in what was written since; begins anew where the files are not what they were.
    ///
    /// # Errors
    /// The system's, where a journal cannot be read.
    pub(super) fn catch_up(&mut self, run_dir: &Utf8Path, tell: &mut ReadProgressFn<'_>) -> io::Result<()> {
        let files = term_files(run_dir)?;
        if self.at.term == 0 || !self.fits(&files) {
            *self = Self::restored(run_dir, &files).unwrap_or_default();
        }
        self.go_on(&files, tell)
    }

    fn go_on(&mut self, files: &[TermFile], tell: &mut ReadProgressFn<'_>) -> io::Result<()> {
        let from = self.at;
        let ahead = files.iter().filter(|f| f.term >= from.term && f.is_file);
        let of = ahead.clone().map(|f| f.len).sum::<u64>().saturating_sub(from.offset);
        let mut done = 0;
        for file in ahead {
            self.enter(file.term, before(files, file.term));
            self.file(&file.path, &mut |bytes| {
                done += bytes;
                tell(done, of.max(done));
            })?;
        }
        Ok(())
    }

    /// The lines that follow are of this term.
    pub(super) fn enter(&mut self, term: u32, earlier: u64) {
        if term == self.at.term {
            return;
        }
        self.said.extend(self.newer_lines());
        self.unknown = 0;
        self.at = JournalPlace { term, offset: 0 };
        self.last = LastLine::default();
        self.lines = JournalReader::default();
        self.earlier = earlier;
    }

    fn newer_lines(&self) -> Option<String> {
        let (term, n) = (self.at.term, self.unknown);
        (n > 0).then(|| format!("journal/{term}.jsonl holds {n} lines of a newer version"))
    }

    fn file(&mut self, path: &Utf8Path, read: &mut dyn FnMut(u64)) -> io::Result<()> {
        let mut file = open_file(path).map_err(|e| named(path, e))?;
        file.seek(SeekFrom::Start(self.at.offset))?;
        let mut file = BufReader::with_capacity(PIECE, file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = file.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)?;
            read(n as u64);
            if line.pop_if(|b| *b == b'\n').is_some() {
                self.line(&line);
                continue;
            }
            match overlong(&mut file, n as u64, read)? {
                Some(more) => self.skip(more.saturating_add(n as u64)),
                // A torn last line is a normal case.
                None => return Ok(()),
            }
        }
    }

    /// A line that is too long is passed over.
    fn skip(&mut self, bytes: u64) {
        self.lines.number = self.lines.number.saturating_add(1);
        self.is_damaged("it is longer than any record");
        self.passed(bytes, 0);
    }

    fn passed(&mut self, bytes: u64, sum: u32) {
        self.last = LastLine {
            at: self.at.offset,
            sum,
        };
        self.at.offset = self.at.offset.saturating_add(bytes);
        self.unsaved = self.unsaved.saturating_add(bytes);
    }

    fn is_damaged(&mut self, why: &str) {
        self.damaged = self.damaged.saturating_add(1);
        let (term, number) = (self.at.term, self.lines.number);
        if self.damaged <= SAID {
            self.said
                .push(format!("journal/{term}.jsonl line {number} is damaged: {why}"));
        }
    }

    /// Takes in one line (without its newline).
    fn line(&mut self, line: &[u8]) {
        match self.lines.next(line) {
            Some(Seen::Known(line, records)) => {
                let is_newer = records.len() < line.count;
                self.unknown = self.unknown.saturating_add(u32::from(is_newer));
                for record in &records {
                    self.note_attempt(record);
                    self.state.apply(record);
                    self.ledger.note(&self.state, record);
                    self.records = self.records.saturating_add(1);
                }
            }
            Some(Seen::Unknown(_)) => self.unknown = self.unknown.saturating_add(1),
            Some(Seen::Newer(version, _)) => {
                self.unknown = self.unknown.saturating_add(1);
                let (term, line) = (self.at.term, self.lines.number);
                self.newer.get_or_insert(NewerLine { version, term, line });
            }
            Some(Seen::Damaged(why)) => self.is_damaged(&why),
            None => {}
        }
        self.passed(line.len() as u64 + 1, sum(line));
    }

    /// Takes in lines that were appended to the present file.
    pub(super) fn appended(&mut self, text: &str) {
        for line in text.split_terminator('\n') {
            self.line(line.as_bytes());
        }
    }

    fn note_attempt(&mut self, record: &JournalRecord) {
        let JournalRecord::Decided {
            what: Decision::StartFrom { order, .. },
            ..
        } = record
        else {
            return;
        };
        if self.attempts.last().is_some_and(|b| b.attempt == order.attempt) {
            return;
        }
        if self.attempts.len() >= ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(AttemptStart {
            attempt: order.attempt,
            at: self.at,
        });
    }

    /// Place where the last attempts begin.
    pub(super) fn attempts(&self) -> Vec<AttemptStart> {
        self.attempts.clone()
    }

    /// Terms of which nothing is known, by these files.
    pub(super) fn gaps(run_dir: &Utf8Path, files: &[TermFile]) -> Vec<String> {
        let mut out = Vec::new();
        let mut next = 1;
        for f in files {
            let gone = (next..f.term).map(|n| {
                format!("{run_dir}/journal/{n}.jsonl is not there: it was deleted, or term {n} ended before it began")
            });
            out.extend(gone.take(GONE));
            next = f.term.saturating_add(1);
            let (path, term) = (&f.path, f.term);
            match (f.is_file, f.len) {
                (false, _) => out.push(format!(
                    "{path} is passed over: it is a directory, a FIFO, a socket or a device, not a file"
                )),
                (true, 0) => out.push(format!("{path} is empty: what happened in term {term} is not known")),
                (true, _) => {}
            }
        }
        out
    }

    /// Things worth saying of what the files hold.
    pub(super) fn notes(&self, run_dir: &Utf8Path) -> Vec<String> {
        let said = self.said.iter().cloned().chain(self.newer_lines());
        let mut out: Vec<String> = said.map(|s| format!("{run_dir}/{s}")).collect();
        if self.damaged > SAID {
            let more = self.damaged - SAID;
            out.push(format!("{run_dir}/journal holds {more} more damaged lines"));
        }
        out
    }
}

/// The rest of a line that does not end within the limit; `None`: it does not end at all, and is not whole.
fn overlong(file: &mut impl BufRead, begun: u64, read: &mut dyn FnMut(u64)) -> io::Result<Option<u64>> {
    if begun < LINE_LIMIT {
        return Ok(None);
    }
    let mut more = 0;
    loop {
        let piece = file.fill_buf()?;
        let (n, ends) = match memchr::memchr(b'\n', piece) {
            Some(at) => (at + 1, true),
            None => (piece.len(), false),
        };
        file.consume(n);
        more += n as u64;
        read(n as u64);
        if ends || n == 0 {
            return Ok(ends.then_some(more));
        }
    }
}

/// A piece of the journals: whole lines from a place on, where the next piece begins, and how many bytes follow.
///
/// # Errors
/// The system's.
pub(super) fn lines(
    run_dir: &Utf8Path,
    from: JournalPlace,
) -> io::Result<(JournalPlace, Vec<u8>, Option<JournalPlace>, u64)> {
    let files: Vec<TermFile> = term_files(run_dir)?.into_iter().filter(|f| f.is_file).collect();
    let Some(n) = files.iter().position(|f| f.term >= from.term) else {
        return Ok((from, Vec::new(), None, 0));
    };
    let file = &files[n];
    let at = JournalPlace {
        term: file.term,
        offset: if file.term == from.term { from.offset } else { 0 },
    };
    let text = piece(&file.path, at.offset)?;
    let end = at.offset + text.len() as u64;
    let after: u64 = files[n + 1..].iter().map(|f| f.len).sum();
    let next = match (text.is_empty(), files.get(n + 1)) {
        (false, _) => Some(JournalPlace {
            term: at.term,
            offset: end,
        }),
        (true, Some(f)) => Some(JournalPlace {
            term: f.term,
            offset: 0,
        }),
        (true, None) => None,
    };
    Ok((at, text, next, file.len.saturating_sub(end).saturating_add(after)))
}

fn piece(path: &Utf8Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = open_file(path).map_err(|e| named(path, e))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    let mut file = BufReader::with_capacity(PIECE, file);
    file.by_ref().take(HANDED).read_to_end(&mut text)?;
    // A line is not cut; what follows the last one is torn.
    if text.last() != Some(&b'\n') && text.len() as u64 == HANDED {
        file.take(LINE_LIMIT).read_until(b'\n', &mut text)?;
    }
    text.truncate(memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1));
    Ok(text)
}

#[cfg(test)]
mod tests;
