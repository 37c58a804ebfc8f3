//! `--since`: where the lines since a moment begin.
//!
//! The log has no times of its own. A line is known to be older if it says so itself, if it shows a step that the journal had seen
//! before, or if its file was last written before. Output is shown from the last such line on: rather too much than too little.

use super::TailStart;
use crate::cli::records;
use crate::cli::target::RunInfo;
use crate::error::CliError;
use crate::render::time::{line_wall, local_stamp};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::File;
use std::io::{self, Read};
use std::time::UNIX_EPOCH;
use supervise_core::event::EventKind;
use supervise_core::event::scan::{LINE_LIMIT, RuleKind, ScanRule, Scanner};
use supervise_core::id::{AttemptNo, Step, WallMs, WorkerId};
use supervise_core::journal::record::{ActKind, JournalRecord};
use supervise_core::observe::line_time::LineClock;
use supervise_host::io_worker::JournalPlace;
use supervise_trainers::adapter;

const CHUNK: usize = 64 << 10;

/// A moment, and what the journal knows of each attempt's steps before it.
#[derive(Debug)]
pub(super) struct LogsSince {
    at: WallMs,
    now: WallMs,
    /// Attempts that were launched since then: all of their output is new.
    new: Vec<AttemptNo>,
    /// The newest step that was seen before the moment, of attempts that had one.
    steps: Vec<(AttemptNo, Step)>,
    rules: Vec<ScanRule>,
}

impl LogsSince {
    pub(super) fn new(seen: &RunInfo, at: WallMs, now: WallMs) -> Result<Self, CliError> {
        let mut steps: Vec<(AttemptNo, Step)> = Vec::new();
        let mut new = Vec::new();
        records::each(seen.run_dir()?, JournalPlace::default(), &mut |line, record| {
            if let JournalRecord::Intended { act, .. } = record
                && let ActKind::Launch(order) = &act.kind
                && line.wall >= at
            {
                new.push(order.attempt);
            }
            if let JournalRecord::Fact(e) = record
                && let EventKind::Progress {
                    attempt,
                    step: Some(step),
                    ..
                } = &e.kind
                && e.wall < at
            {
                steps.retain(|(of, _)| of != attempt);
                steps.push((*attempt, *step));
            }
        })?;
        let trainer = seen.spec_as_seen().map(|spec| spec.trainer);
        let rules = trainer.map(|kind| adapter(kind).rules()).unwrap_or_default();
        Ok(Self {
            at,
            now,
            new,
            steps,
            rules: rules.into_iter().filter(|r| r.kind == RuleKind::Step).collect(),
        })
    }

    /// Whether something was written to a file since then.
    pub(super) fn reaches(&self, file: &Utf8Path) -> bool {
        let written = file.metadata().and_then(|m| m.modified());
        // What is not known is shown.
        written.map_or(true, |at| {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX) >= self.at.0
        })
    }

    /// Where the output in these files, oldest first, begins, and whether every line before it is known to be older and none after it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn start(&self, attempt: u32, files: &[Utf8PathBuf]) -> io::Result<(TailStart, bool)> {
        if self.new.contains(&AttemptNo(attempt)) {
            return Ok((TailStart::default(), true));
        }
        let step = self.steps.iter().find(|(of, _)| of.0 == attempt).map(|(_, step)| *step);
        let mut lines = LineAges {
            since: self,
            clock: LineClock::new().map_err(io::Error::other)?,
            scanner: step.and_then(|_| Scanner::new(self.rules.clone()).ok()),
            step,
            number: 0,
            found: TailStart::default(),
        };
        for (part, path) in files.iter().enumerate() {
            if !path.exists() {
                continue;
            }
            if lines.read(part, path, !self.reaches(path))? {
                return Ok((lines.found, lines.found.skipped + 1 == lines.number));
            }
        }
        Ok((lines.found, lines.found.skipped == lines.number))
    }

    /// The moment as text.
    pub(super) fn moment(&self) -> String {
        local_stamp(self.at)
    }

    /// Says why the beginning is not exact.
    pub(super) fn words(&self, attempt: u32) -> String {
        let moment = self.moment();
        match self.steps.iter().find(|(of, _)| of.0 == attempt) {
            Some((_, step)) => {
                format!("lines without a time are shown from step {step} on, the last one seen before {moment}")
            }
            None => format!("lines without a time are shown: no step of attempt {attempt} was seen before {moment}"),
        }
    }
}

/// Reads lines until one is known to be new.
struct LineAges<'a> {
    since: &'a LogsSince,
    clock: LineClock,
    scanner: Option<Scanner>,
    step: Option<Step>,
    /// Lines so far.
    number: u64,
    found: TailStart,
}

impl LineAges<'_> {
    /// Reads a file; `old`: all of it is older. Returns true at the first new line.
    fn read(&mut self, part: usize, path: &Utf8Path, old: bool) -> io::Result<bool> {
        let mut file = File::open(path)?;
        let mut chunk = vec![0; CHUNK];
        // Only the beginning of a long line is kept.
        let mut line: Vec<u8> = Vec::new();
        let mut at = 0;
        loop {
            let n = file.read(&mut chunk)?;
            let bytes = chunk.get(..n).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            let mut from = 0;
            for end in memchr::memchr_iter(b'\n', bytes) {
                keep(&mut line, bytes.get(from..end).unwrap_or_default());
                from = end + 1;
                self.number += 1;
                match self.is_new(&line, old) {
                    Some(true) => return Ok(true),
                    Some(false) => {
                        self.found = TailStart {
                            part,
                            at: at + from as u64,
                            skipped: self.number,
                        }
                    }
                    None => {}
                }
                line.clear();
            }
            keep(&mut line, bytes.get(from..).unwrap_or_default());
            at += n as u64;
        }
        if old {
            self.found = TailStart {
                part,
                at,
                skipped: self.number,
            };
        }
        Ok(false)
    }

    /// Whether a line is from the moment or later; `None`: nobody knows.
    fn is_new(&mut self, line: &[u8], old: bool) -> Option<bool> {
        if old {
            return Some(false);
        }
        if let Some(time) = self.clock.of(line) {
            return Some(line_wall(&time, self.since.now)? >= self.since.at);
        }
        let hit = self.scanner.as_mut()?.line(WorkerId(0), self.number, line)?;
        let step = Step(hit.sighting.number.filter(|_| hit.kind == RuleKind::Step)?);
        (Some(step) <= self.step).then_some(false)
    }
}

fn keep(line: &mut Vec<u8>, bytes: &[u8]) {
    let room = LINE_LIMIT.saturating_sub(line.len()).min(bytes.len());
    line.extend_from_slice(bytes.get(..room).unwrap_or_default());
}
