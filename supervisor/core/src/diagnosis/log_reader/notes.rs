//! Facts from lines other than failures: exits, starts, engines that answer, new runs.

use super::{FOUND, LogMatch, LogReader, sighting};
use crate::diagnosis::patterns::is_of_an_end;
use crate::diagnosis::reported_exits::{self, ReportedEnd};
use crate::diagnosis::root_cause::{LogClue, is_informed, is_tried_by_kubernetes, weight};
use crate::diagnosis::rules;
use crate::diagnosis::stall::is_wait;
use crate::diagnosis::steps::LogStep;
use crate::event::scan::{RuleSource, TracebackScope};
use crate::event::{ExitStatus, Sighting};
use crate::rulebook::taxonomy::{Class, Family, Weight};
use memchr::{memchr_iter, memmem};

/// Returns true for classes that monitors and schedulers report, at any log level.
fn is_of_a_watcher(class: Class) -> bool {
    is_wait(class)
        || matches!(class.family(), Family::Sched | Family::Op | Family::Node | Family::Gpu)
        || matches!(
            class,
            Class::DiskSlow | Class::NumNan | Class::RewardServer | Class::CkptMissingPart
        )
}

impl LogReader {
    /// Returns true for an info-level line, which is no failure, whatever it says.
    pub(super) fn is_idle_talk(class: Class, s: &Sighting) -> bool {
        !s.rule.is_raised() && !s.rule.is_users() && is_informed(&s.text) && !is_of_a_watcher(class)
    }

    /// Counts served requests: an error before them did not end the server.
    pub(super) fn note_service(&mut self, text: &[u8]) {
        let Some(log) = self.logs.last_mut() else { return };
        log.serves |= self.patterns.serves.is_match(text);
        if log.serves && log.steps.newest.is_none() && self.patterns.served.is_match(text) {
            log.steps.note(LogStep::default());
            log.steps.served = log.steps.served.saturating_add(1);
        }
        // The server survived an exception in a request.
        if log.serves && log.steps.newest.is_none() && self.patterns.answered.is_match(text) {
            log.steps.note(LogStep::default());
            log.steps.note(LogStep::default());
            log.steps.served = log.steps.served.saturating_add(2);
        }
    }

    /// Keeps an exception without a traceback if it is the last line: it ended the process.
    pub(super) fn note_last_words(&mut self, tail: &[u8]) {
        // An earlier match explains more.
        let begins = self.logs.last().map_or(0, |log| log.runs.newest());
        let said = |f: &LogMatch| f.sighting.line >= begins && f.sighting.rule != RuleSource::Loose.into();
        if self.found.iter().any(said) {
            return;
        }
        let mut at = self.line;
        let drawn = |text: &[u8]| text.trim_ascii().is_empty() || memmem::find(text, b"%|").is_some();
        let mut lines = tail.rsplit(|b| *b == b'\n');
        while let Some(line) = lines.next() {
            let text = self.message(
                line.rsplit(|b| *b == b'\r')
                    .find(|t| !t.trim_ascii().is_empty())
                    .unwrap_or_default(),
            );
            if !drawn(&text) {
                let file = self.logs.len().saturating_sub(1);
                let known = |f: &LogMatch| {
                    f.file == file && f.sighting.line == at && f.sighting.rule.source != RuleSource::Loose
                };
                let is_frame = |text: &[u8]| text.starts_with(b"  File \"");
                let above = lines.next().map(|above| self.message(above)).unwrap_or_default();
                if is_frame(&text) || is_frame(&above) && text.starts_with(b"    ") {
                    let said = sighting(RuleSource::LastWords, file, at, &text);
                    self.keep(Class::CodeException, None, said);
                    return;
                }
                // The last line of a traceback that Python ignored.
                let inside = above.starts_with(b"  ");
                if !inside
                    && self.patterns.last.is_match(&text)
                    && !self.scanner.is_quoted()
                    && !self.found.iter().any(known)
                {
                    let said = Sighting {
                        line: at,
                        ..sighting(RuleSource::LastWords, file, at, &text)
                    };
                    let class = rules::classify_exception(&said, self.stage());
                    self.keep(class, None, said);
                }
                return;
            }
            at = at.saturating_sub(1);
        }
    }

    /// Notes the start of a traceback, and whether it leads from the outermost frame of a script.
    pub(super) fn note_traceback(&mut self, line: &[u8], text: &[u8]) {
        if memmem::find(text, b"Traceback (most recent").is_some() {
            self.logged = is_logged(text);
            self.outermost = false;
            // A rank prefix means that there are several processes.
            self.header = if text.len() == line.trim_ascii_end().len() {
                self.line
            } else {
                0
            };
        } else if self.header > 0 && self.line == self.header + 1 {
            self.outermost = text.trim_ascii_end().ends_with(b", in <module>");
        }
    }

    /// Notes trouble on the current line for the split into runs.
    pub(super) fn note_trouble(&mut self, text: &[u8]) {
        let passed_over = std::mem::take(&mut self.passed_over);
        let Some(log) = self.logs.last_mut() else { return };
        let strong = self.found.last().filter(|f| self.kept && f.sighting.line == self.line);
        let strong = strong.map(|f| weight(&clue(f))).filter(|w| *w <= Weight::Abort);
        // Machine messages may precede the start of the program.
        if strong.is_some_and(|w| w != Weight::Machine) {
            log.runs.arm();
            self.armed = true;
        }
        if strong.is_some() || passed_over || self.scanner.is_raising() {
            log.runs.trouble(self.line);
        } else if is_of_an_end(text) {
            log.runs.dies(self.line);
        }
    }

    /// Searches `bytes`, which start `further` lines on, for the start of another run: a repetition of the log's first line, a jump in
    /// time, another process.
    pub(super) fn reopen(&mut self, bytes: &[u8], further: u64) {
        let Some(log) = self.logs.last_mut() else { return };
        if let Some(at) = log.runs.reopens(bytes) {
            let lines = memchr_iter(b'\n', &bytes[..at]).count() as u64;
            log.runs.reopen(self.line + further + lines);
        }
        if !log.runs.restart.is_armed() {
            return;
        }
        let mut number = self.line + further;
        for line in bytes.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let ends = line.ends_with(b"\n");
            let line = line.trim_ascii_end();
            let step = || self.forms.record(&self.scanner.message(line))?.step;
            if let Some(begin) = log.runs.restart.note(&self.patterns, number, line, step) {
                log.runs.begin(begin);
            }
            if !log.runs.restart.is_armed() {
                return;
            }
            number += u64::from(ends);
        }
    }

    /// Drops failures that a later line resolves: an engine that did not answer during startup, for example.
    pub(super) fn note_health(&mut self, file: usize, text: &[u8]) {
        const PROBE: &str = "/health_generate";
        if self.patterns.healthy.is_match(text) {
            self.found
                .retain(|f| f.file != file || !f.sighting.text.contains(PROBE));
        }
        if self.patterns.pod_started.is_match(text) {
            self.found
                .retain(|f| f.file != file || !is_tried_by_kubernetes(&f.sighting.text));
        }
        // A pod that starts on another node says nothing about its old one.
        if self.patterns.node_ready.is_match(text) {
            self.found
                .retain(|f| f.file != file || !f.sighting.text.contains("NodeNotReady"));
        }
        // The tracker was reached after all.
        if self.patterns.tracked.is_match(text) {
            self.found
                .retain(|f| f.file != file || f.class != Class::LoggerRemote || f.sighting.rule.is_raised());
        }
        if self.patterns.relieved.is_match(text) {
            self.found.retain(|f| f.file != file || !is_wait(f.class));
        }
    }

    pub(super) fn note_end(&mut self, text: &[u8]) {
        let report = self.reports.report(text);
        if let Some(log) = self
            .logs
            .last_mut()
            .filter(|_| report.is_some_and(|end| end != ExitStatus::Code(0)))
        {
            log.runs.trouble(self.line);
        }
        match report {
            None | Some(ExitStatus::Code(0)) => {}
            // Launchers stop the other processes with SIGTERM. What a batch system reports is the end of all.
            Some(end @ (ExitStatus::Signal(15) | ExitStatus::Code(143))) if !reported_exits::is_of_job(text) => {
                self.followed = self.followed.or(Some(end));
            }
            Some(status) if self.ends.len() < FOUND => self.ends.push(ReportedEnd {
                status,
                file: self.logs.len().saturating_sub(1),
                line: self.line,
                text: reported_exits::words(text),
                steps: self.logs.last().map_or(0, |log| log.steps.count),
            }),
            Some(_) => {}
        }
    }

    /// Notes a start from scratch although a resume was wanted.
    pub(super) fn note_start(&mut self, file: usize, text: &[u8]) {
        let Some(log) = self.logs.last_mut() else { return };
        log.resumes |= self.patterns.resumes.is_match(text);
        if let Some(world) = self.patterns.world(text) {
            log.other_world |= log.world.is_some_and(|w| w != world);
            log.world = Some(world);
        }
        log.planned = self.patterns.planned(text).or(log.planned);
        log.began |= self.patterns.began.is_match(text);
        log.orphan |= self.patterns.orphan.is_match(text);
        log.node_gone |= self.patterns.node_gone.is_match(text);
        let allowed = || memchr::memmem::find(text, b"ignore_no_checkpoint=True").is_some();
        if self.patterns.partly.is_match(text) || log.resumes && self.patterns.scratch.is_match(text) && !allowed() {
            let seen = sighting(RuleSource::FreshStart, file, self.line, text);
            self.keep(Class::CkptMissingPart, None, seen);
        }
    }
}

/// Returns true if Python exits before running the script, or the script before doing anything.
pub(super) fn is_end_of_python(text: &str) -> bool {
    text.contains(".py: error: ") || text.starts_with("python") && text.contains(": can't open file ")
}

/// Returns true if an error-level log prefix precedes the message, or if the program says it in its own words: it caught the error.
pub(super) fn is_error_of_a_logger(text: &str) -> bool {
    // A sentence, and not the name of an exception.
    if text.starts_with("Error ") || text.starts_with("Error(s) ") {
        return true;
    }
    let head = text.get(..text.floor_char_boundary(60)).unwrap_or(text);
    let of_glog = || {
        head.starts_with('E')
            && head
                .as_bytes()
                .get(1..5)
                .is_some_and(|d| d.iter().all(u8::is_ascii_digit))
    };
    ["ERROR", "[error]", "CRITICAL", " error: "]
        .iter()
        .any(|w| head.contains(w))
        || of_glog()
}

/// Returns true if a log level or message precedes the header of a traceback.
fn is_logged(text: &[u8]) -> bool {
    let at = memchr::memmem::find(text, b"Traceback (most").unwrap_or_default();
    let before = &text[..at];
    [&b"ERROR"[..], b"WARN", b"INFO", b"DEBUG", b"rror: ", b"rror:", b"ailed"]
        .iter()
        .any(|word| memchr::memmem::find(before, word).is_some())
}

pub(in crate::diagnosis) fn clue(f: &LogMatch) -> LogClue<'_> {
    LogClue {
        class: f.class,
        // A record may count skipped batches, which does not make it a warning.
        text: if f.sighting.rule.source == RuleSource::Records {
            ""
        } else {
            &f.sighting.text
        },
        raised: f.sighting.rule.is_raised(),
        in_thread: f.sighting.rule.through() == TracebackScope::Thread,
        chained: f.sighting.rule.is_chained(),
        // Without a traceback it may be part of a sentence; and a model may write anything.
        loose: matches!(f.sighting.rule.source, RuleSource::Loose | RuleSource::Shutdown) || f.sighting.rule.quoted,
        own: f.sighting.rule.is_users(),
    }
}
