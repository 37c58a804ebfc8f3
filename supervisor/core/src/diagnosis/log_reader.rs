//! Single-pass log reader with bounded memory: collects the lines that may explain why a run ended.
//!
//! Lines without one of the table's texts are never parsed: an automaton runs over the bytes and finds the others. Training records
//! are searched for only while a failure awaits them.

use super::patterns::{OTHERS, Patterns};
use super::reported_exits::{self, Ends, ReportedEnd};
use super::root_cause::GRACE;
use super::rules::{self, AttemptStage, failure_rules, user_rules};
use super::runs;
use super::stall::{Stall, StallNote};
use super::steps::{self, StepPatterns};
use super::texts::TextSearch;
use super::wrapped;
use crate::event::scan::{RuleKind, RuleSource, SAMPLES, ScanError, Scanner, opens_sample};
use crate::event::{ExitStatus, Sighting};
use crate::id::{Step, WorkerId};
use crate::rulebook::failure_line::FailureLine;
use crate::rulebook::taxonomy::{self, Class, FailureClass, Family};
use memchr::{memchr_iter, memchr2, memrchr2};

mod notes;
mod parsed_log;

use notes::{is_end_of_python, is_error_of_a_logger};

pub(super) use notes::clue;
pub(super) use parsed_log::ParsedLog;

/// Longest line that is buffered until its newline, in bytes.
const LINE: usize = 1 << 20;

/// Most matches that are kept.
const FOUND: usize = 400;

/// Most matches kept of one class, once half of `FOUND` is used.
const OF_CLASS: usize = 16;

/// Lines after the start of a traceback or of model text that are parsed one by one.
const CAREFUL: u32 = 400;

/// Bytes at the end of a log that are searched for its last records.
const TAIL: usize = 64 << 10;

#[derive(Debug, Clone)]
pub(super) struct LogMatch {
    /// Index of the log.
    pub(super) file: usize,
    /// Last timestamp up to this line: month, day and time of day in ms.
    pub(super) time: Option<u64>,
    pub(super) class: Class,
    /// The class named by the user's rule.
    pub(super) own: Option<FailureClass>,
    pub(super) sighting: Sighting,
    /// Number of new steps before it in its log.
    pub(super) steps: u32,
    /// Newest step before it in its log.
    pub(super) step: Option<Step>,
    /// Whether a launcher prefixed it with a node name.
    pub(super) named: bool,
    /// Whether the program itself logged it, so that it had caught it.
    pub(super) logged: bool,
    /// Header line of a traceback that starts at the outermost frame of a script: the interpreter exited with it.
    pub(super) outermost: Option<u64>,
}

/// Reads the logs of one run.
pub struct LogReader {
    scanner: Scanner,
    forms: StepPatterns,
    reports: Ends,
    failures: TextSearch,
    with_steps: TextSearch,
    patterns: Patterns,
    stall: Stall,
    pub(super) logs: Vec<ParsedLog>,
    pub(super) found: Vec<LogMatch>,
    /// The first exits that launchers report, and one that only followed from another.
    pub(super) ends: Vec<ReportedEnd>,
    pub(super) followed: Option<ExitStatus>,
    buffer: Vec<u8>,
    tail: Vec<u8>,
    line: u64,
    careful: u32,
    time: Option<u64>,
    /// Number of new steps up to which records are searched for.
    watch: u32,
    /// Whether the current line was kept, and whether it starts with a node name.
    kept: bool,
    named: bool,
    /// The last traceback: whether a logger printed it, its header line, and whether its first frame is a script's.
    logged: bool,
    header: u64,
    outermost: bool,
    /// Whether a match on this line was dropped because of the limits.
    passed_over: bool,
    /// Whether a match on this line may have ended the run.
    armed: bool,
}

impl LogReader {
    /// Creates a reader. The user's rules take precedence over the table's.
    ///
    /// # Errors
    /// A pattern is not a regular expression.
    pub fn new(user: &[FailureLine]) -> Result<Self, ScanError> {
        let mut rules = user_rules(user);
        rules.extend(failure_rules());
        let of_table = taxonomy::rows().flat_map(|row| row.lines.iter().flat_map(|l| l.holds.split('|')));
        let mut texts: Vec<&str> = of_table
            .chain(reported_exits::TEXTS)
            .chain(OTHERS)
            .chain(runs::TEXTS)
            .chain(SAMPLES.iter().copied())
            .collect();
        texts.retain(|t| !t.is_empty());
        // The user's rules have no texts: try each line.
        if !user.is_empty() {
            texts.push("\n");
        }
        let failures = TextSearch::new(&texts)?;
        texts.extend(steps::TEXTS);
        Ok(Self {
            scanner: Scanner::new(rules)?,
            forms: StepPatterns::new()?,
            reports: Ends::new()?,
            failures,
            with_steps: TextSearch::new(&texts)?,
            patterns: Patterns::new()?,
            stall: Stall::new()?,
            logs: Vec::new(),
            found: Vec::new(),
            ends: Vec::new(),
            followed: None,
            buffer: Vec::new(),
            tail: Vec::new(),
            line: 0,
            careful: 0,
            time: None,
            watch: 0,
            kept: false,
            named: false,
            logged: false,
            header: 0,
            outermost: false,
            passed_over: false,
            armed: false,
        })
    }

    /// Resets the reader for the logs of another run.
    pub fn clear(&mut self) {
        self.logs.clear();
        self.found.clear();
        self.ends.clear();
        self.followed = None;
        self.scanner.clear();
    }

    /// Starts the next log. Its bytes follow with `feed`.
    pub fn begin(&mut self) {
        self.logs.push(ParsedLog::default());
        (self.line, self.careful, self.time, self.watch) = (1, 0, None, 3);
        self.buffer.clear();
        self.tail.clear();
    }

    /// Feeds the next bytes of the log.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(log) = self.logs.last_mut() {
            log.shape.note(bytes);
            log.runs.open(bytes);
        }
        let (first, rest) = match memchr2(b'\n', b'\r', bytes) {
            Some(end) => bytes.split_at(end + 1),
            None => (bytes, &bytes[..0]),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(first);
        let is_whole = first.ends_with(b"\n") || first.ends_with(b"\r");
        if !is_whole
            && buffer.len() > LINE
            && let Some(log) = self.logs.last_mut()
        {
            log.shape.note_long_line();
        }
        if is_whole || buffer.len() > LINE {
            self.block(&buffer);
            self.keep_tail(&buffer);
            buffer.clear();
        }
        let (whole, begun) = rest.split_at(memrchr2(b'\n', b'\r', rest).map_or(0, |at| at + 1));
        self.block(whole);
        self.keep_tail(whole);
        buffer.extend_from_slice(begun);
        self.buffer = buffer;
    }

    /// Finishes the log.
    pub fn end_log(&mut self) {
        let rest = std::mem::take(&mut self.buffer);
        self.block(&rest);
        self.keep_tail(&rest);
        let tail = std::mem::take(&mut self.tail);
        let lines = self.line;
        let newest = if self.watches() { None } else { self.newest_in(&[&tail]) };
        let Some(mut log) = self.logs.pop() else { return };
        let stepped = log.steps.count > 0 || newest.is_some();
        let mut standing = StallNote::new(
            self.line.saturating_sub(memchr_iter(b'\n', &tail).count() as u64),
            stepped,
        );
        let mut drawn = None;
        for line in tail.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let text = self.message(line);
            let at = standing.line();
            let mark = self.forms.record(&text);
            let goes_on = mark.is_some() || self.patterns.relieved.is_match(&text);
            standing.note(&self.stall, &text, goes_on, line.ends_with(b"\n"));
            if let Some(mark) = mark
                && let (Some(step), Some(total)) = (mark.step, mark.total.or(log.planned))
            {
                log.last = Some((step, total));
            }
            // Some trainers do not print each step, but name it when they save it.
            let saved = self.patterns.saved(&text).unwrap_or(0);
            log.last = log.last.map(|(step, total)| (step.max(saved), total));
            log.says_end |= self.patterns.over.is_match(&text);
            log.exited |= self.patterns.exited.is_match(&text);
            // A progress bar may draw the last step once more below it.
            if mark.is_some_and(|m| m.step.is_none() || m.step > drawn) {
                log.done = None;
            }
            drawn = drawn.max(mark.and_then(|m| m.step));
            if self.patterns.says_done(&text) {
                log.done = Some(at);
            }
            if self.patterns.serves.is_match(&text) {
                log.shut = None;
            } else if log.serves && log.shut.is_none() && self.patterns.shut.is_match(&text) {
                log.shut = Some((at, text.clone()));
            }
            log.wanted |= self.patterns.wanted.is_match(&text) && !self.patterns.denied.is_match(&text);
        }
        log.steps.newest = newest.or(log.steps.newest);
        log.runs.end(lines, &tail, |line| self.patterns.time_of(line));
        let shut = log.shut.take().filter(|_| log.steps.trained() == 0 && !log.says_end);
        self.logs.push(log);
        self.note_last_words(&tail);
        if let Some((line, text)) = shut {
            let seen = sighting(RuleSource::Shutdown, self.logs.len() - 1, line, &text);
            self.keep(Class::OpSignal, None, seen);
        }
        if let Some((class, line, text)) = standing.seen {
            self.keep(
                class,
                None,
                sighting(RuleSource::Tail, self.logs.len() - 1, line, &text),
            );
        }
    }

    /// The line as its process printed it, or the last line inside a JSON record.
    fn message(&self, line: &[u8]) -> Vec<u8> {
        match wrapped::lines(line).and_then(|mut inside| inside.pop()) {
            Some(last) => self.scanner.message(&last),
            None => self.scanner.message(line),
        }
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        let from = bytes.len().saturating_sub(TAIL);
        self.tail.extend_from_slice(&bytes[from..]);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
    }

    fn block(&mut self, data: &[u8]) {
        let (mut at, mut counted) = (0, 0);
        while at < data.len() {
            let slowly = self.careful > 0 && self.scanner.is_inside();
            let start = match slowly {
                true => {
                    self.careful -= 1;
                    if self.careful == 0 {
                        self.scanner.end_samples();
                    }
                    at
                }
                false => {
                    let texts = if self.watches() {
                        &self.with_steps
                    } else {
                        &self.failures
                    };
                    let Some(found) = texts.find(&data[at..]) else {
                        self.reopen(&data[at..], memchr_iter(b'\n', &data[counted..at]).count() as u64);
                        break;
                    };
                    let hit = at + found;
                    memrchr2(b'\n', b'\r', &data[at..hit]).map_or(at, |nl| at + nl + 1)
                }
            };
            let end = memchr2(b'\n', b'\r', &data[start..]).map_or(data.len(), |nl| start + nl);
            self.reopen(&data[at..end], memchr_iter(b'\n', &data[counted..at]).count() as u64);
            self.line += memchr_iter(b'\n', &data[counted..start]).count() as u64;
            counted = start;
            self.look(&data[start..end], &data[..start]);
            at = end + 1;
        }
        self.line += memchr_iter(b'\n', &data[counted..]).count() as u64;
    }

    fn watches(&self) -> bool {
        self.logs
            .last()
            .is_some_and(|log| log.steps.count < self.watch || log.steps.bad > 0)
    }

    /// Scans a line that holds one of the texts, or is part of a traceback. Records were skipped while nothing awaited them, so those
    /// right before a kept line are searched for now.
    fn look(&mut self, line: &[u8], before: &[u8]) {
        let watched = self.watches();
        (self.kept, self.armed) = (false, false);
        match wrapped::lines(line) {
            Some(inside) => inside.iter().for_each(|line| self.look_at(line)),
            None => self.look_at(line),
        }
        if self.kept
            && !watched
            && let Some(newest) = self.newest_in(&[before, &self.tail])
            && let Some(log) = self.logs.last_mut()
        {
            log.steps.newest = Some(newest);
            let file = self.logs.len() - 1;
            let here = |f: &&mut LogMatch| f.file == file && f.sighting.line == self.line;
            self.found
                .iter_mut()
                .rev()
                .take_while(here)
                .for_each(|f| f.step = Some(newest));
        }
        if self.armed
            && let Some(log) = self.logs.last_mut()
        {
            let (step, before) = (log.steps.newest.map(|s| s.0), [before, &self.tail]);
            log.runs.restart.arm(&self.patterns, self.line, step, &before);
            log.runs.buffered_until = log.runs.restart.time();
        }
    }

    /// The newest step of the last records in these pieces, given last piece first.
    fn newest_in(&self, pieces: &[&[u8]]) -> Option<Step> {
        let lines = pieces.iter().flat_map(|p| p.rsplit(|b| matches!(b, b'\n' | b'\r')));
        let records = lines.filter_map(|line| self.forms.record(&self.message(line))?.step);
        steps::newest(records)
    }

    fn look_at(&mut self, line: &[u8]) {
        let file = self.logs.len().saturating_sub(1);
        let holds = |what: &[u8]| memchr::memmem::find(line, what).is_some();
        if holds(b"Traceback (most recent") || holds(b"  File \"") {
            self.careful = CAREFUL;
        }
        self.time = self.patterns.time_of(line).or(self.time);
        self.named = self.patterns.node.is_match(line);
        let hit = self
            .scanner
            .line(WorkerId(u32::try_from(file).unwrap_or(0)), self.line, line);
        let text = self.scanner.message(line);
        self.note_traceback(line, &text);
        if opens_sample(&text) {
            self.careful = CAREFUL;
        }
        let quoted = self.scanner.is_quoted();
        if !quoted
            && let Some(mark) = self.forms.record(&text)
            && let Some(log) = self.logs.last_mut()
        {
            let before = log.steps.bad;
            log.steps.note(mark);
            if log.steps.bad == 1 && before == 0 {
                self.keep(
                    Class::NumNan,
                    None,
                    sighting(RuleSource::Records, file, self.line, &text),
                );
            }
        }
        if !quoted {
            self.note_end(&text);
            self.note_start(file, &text);
            self.note_health(file, &text);
            self.note_service(&text);
        }
        match hit.map(|h| (h.kind, h.sighting)) {
            Some((RuleKind::Failure(class), s)) => {
                let counts_as = rules::at_stage(class.counts_as(), &s.text, self.stage());
                let own = class.row().is_none().then_some(class);
                self.keep(counts_as, own, s);
            }
            Some((RuleKind::Exception, s)) => self.keep_exception(s),
            _ if !quoted && self.patterns.loose.is_match(&text) => {
                self.keep_exception(sighting(RuleSource::Loose, file, self.line, &text));
            }
            _ => {}
        }
        self.note_trouble(&text);
        if !quoted && let Some(log) = self.logs.last_mut() {
            log.runs.note(self.line, &text);
        }
    }

    fn keep_exception(&mut self, s: Sighting) {
        self.keep(rules::classify_exception(&s, self.stage()), None, s);
    }

    fn stage(&self) -> AttemptStage {
        match self.logs.last() {
            // A bar at 0 is drawn before the first step.
            Some(log) if log.steps.trained() > 1 || log.steps.trained() > 0 && log.steps.newest != Some(Step(0)) => {
                AttemptStage::Stepping
            }
            Some(log) if log.resumes => AttemptStage::Resuming,
            _ => AttemptStage::Starting,
        }
    }

    fn keep(&mut self, class: Class, own: Option<FailureClass>, sighting: Sighting) {
        if own.is_none() && Self::is_idle_talk(class, &sighting) {
            return;
        }
        let steps = self.logs.last().map_or(0, |log| log.steps.count);
        // Count steps for as long as they can show that this was not the cause.
        let until = if class.family() == Family::Sched { GRACE + 1 } else { 6 };
        self.watch = self.watch.max(steps.saturating_add(until));
        if self.found.len() >= FOUND {
            let logs = &self.logs;
            self.found.retain(|f| {
                logs.get(f.file)
                    .is_none_or(|log| log.steps.count < f.steps.saturating_add(2))
            });
        }
        let same = self.found.iter().filter(|f| f.class == class).count();
        if self.found.len() >= FOUND || same >= OF_CLASS && self.found.len() >= FOUND / 2 {
            self.passed_over = true;
            return;
        }
        self.kept = true;
        if let Some(log) = self.logs.last_mut() {
            log.steps.drawn = 0;
        }
        let is_raised = sighting.rule.is_raised();
        // The details below a caught error.
        let continues = |f: &LogMatch| f.logged && f.class == class && f.sighting.line + 1 == self.line;
        let logged = match is_raised {
            true => self.logged,
            false => is_error_of_a_logger(&sighting.text) || self.found.last().is_some_and(continues),
        };
        let step = self.logs.last().and_then(|log| log.steps.newest);
        let outermost = Some(self.line).filter(|_| is_end_of_python(&sighting.text));
        self.found.push(LogMatch {
            file: self.logs.len().saturating_sub(1),
            time: self.time,
            class,
            own,
            sighting,
            steps,
            step,
            named: self.named,
            logged,
            outermost: outermost.or(Some(self.header).filter(|_| self.outermost && is_raised)),
        });
    }
}

fn sighting(rule: RuleSource, file: usize, line: u64, text: &[u8]) -> Sighting {
    Sighting {
        rule: rule.into(),
        worker: WorkerId(u32::try_from(file).unwrap_or(0)),
        line,
        text: String::from_utf8_lossy(text).into_owned(),
        number: None,
        count: 1,
    }
}
