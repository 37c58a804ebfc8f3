//! Replays a run's journals: from a snapshot if it fits, otherwise from the first line. Line by line, so that a file
//! of any length is read in bounded memory and every chunk reports progress.

mod snapshot;

use super::files::{named, open_file};
use super::protocol::{AttemptStart, JournalPlace, NewerLine};
use crate::ownership::EntryOwner;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use supervise_core::journal::record::{Decision, JournalRecord};
use supervise_core::journal::{JournalReader, ParsedLine, sum};
use supervise_core::ledger::TimeLedger;
use supervise_core::state::RunState;

pub(super) const LINE_LIMIT: u64 = 64 << 20;
const SAID: u64 = 20;
/// Missing journals that are reported per gap.
const GONE: usize = 4;
const ATTEMPTS: usize = 32;
const PIECE: usize = 256 << 10;
/// Size of a journal chunk in an answer.
const HANDED: u64 = 1 << 20;

pub(super) type ReadProgressFn<'a> = dyn FnMut(u64, u64) + 'a;

/// The last line that was replayed: shows whether a file is still the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct LastLine {
    at: u64,
    sum: u32,
}

/// State replayed so far, and the position in the journals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ReplayedState {
    pub(super) state: RunState,
    pub(super) ledger: TimeLedger,
    pub(super) records: u64,
    /// The end of the last whole line that was replayed.
    at: JournalPlace,
    last: LastLine,
    lines: JournalReader,
    /// Bytes in the files of earlier terms.
    earlier: u64,
    unknown: u32,
    /// Damaged lines, and records of a newer version in earlier files.
    said: Vec<String>,
    damaged: u64,
    pub(super) newer: Option<NewerLine>,
    attempts: Vec<AttemptStart>,
    /// Bytes that no snapshot contains yet.
    #[serde(skip)]
    unsaved: u64,
    #[serde(skip)]
    saved_size: u64,
}

#[derive(Debug, Clone)]
pub(super) struct TermFile {
    pub(super) term: u32,
    pub(super) path: Utf8PathBuf,
    len: u64,
    is_file: bool,
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
        // If it is deleted meanwhile, opening it fails.
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

fn before(files: &[TermFile], term: u32) -> u64 {
    files.iter().filter(|f| f.term < term).map(|f| f.len).sum()
}

impl ReplayedState {
    /// Replays all journals of a run directory.
    ///
    /// # Errors
    /// The system's, if a journal cannot be read.
    pub(super) fn of(run_dir: &Utf8Path, tell: &mut ReadProgressFn<'_>) -> io::Result<Self> {
        let files = term_files(run_dir)?;
        let mut out = Self::restored(run_dir, &files).unwrap_or_default();
        out.go_on(&files, tell)?;
        Ok(out)
    }

    /// Replays what was written since, or everything if the files are not the same any more.
    ///
    /// # Errors
    /// The system's, if a journal cannot be read.
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
                // A torn last line is normal.
                None => return Ok(()),
            }
        }
    }

    /// Skips a line that is too long.
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

    fn line(&mut self, line: &[u8]) {
        match self.lines.next(line) {
            Some(ParsedLine::Known(line, records)) => {
                let is_newer = records.len() < line.count;
                self.unknown = self.unknown.saturating_add(u32::from(is_newer));
                for record in &records {
                    self.note_attempt(record);
                    self.state.apply(record);
                    self.ledger.note(&self.state, record);
                    self.records = self.records.saturating_add(1);
                }
            }
            Some(ParsedLine::Unknown(_)) => self.unknown = self.unknown.saturating_add(1),
            Some(ParsedLine::Newer(version, _)) => {
                self.unknown = self.unknown.saturating_add(1);
                let (term, line) = (self.at.term, self.lines.number);
                self.newer.get_or_insert(NewerLine { version, term, line });
            }
            Some(ParsedLine::Damaged(why)) => self.is_damaged(&why),
            None => {}
        }
        self.passed(line.len() as u64 + 1, sum(line));
    }

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

    pub(super) fn attempts(&self) -> Vec<AttemptStart> {
        self.attempts.clone()
    }

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

/// The rest of a line that does not end within the limit; `None`: it does not end at all, so it is torn.
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

/// A chunk of the journals: whole lines from a position, where the next chunk begins, and how many bytes follow.
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
    // A line is never split; what follows the last one is torn.
    if text.last() != Some(&b'\n') && text.len() as u64 == HANDED {
        file.take(LINE_LIMIT).read_until(b'\n', &mut text)?;
    }
    text.truncate(memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1));
    Ok(text)
}

#[cfg(test)]
mod tests;
