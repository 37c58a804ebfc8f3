//! Verdict on the logs of a run: class, root line, cascade, and the answer to a first occurrence.

use super::log_encoding::LogDoubt;
use super::log_reader::{LogMatch, LogReader, ParsedLog, clue};
use super::reported_exits::ReportedEnd;
use super::root_cause::{COMPLETED, GRACE, LogClue, choose, class_of, is_telling, weight};
use crate::event::ExitStatus;
use crate::event::scan::RuleSource;
use crate::id::WorkerId;
use crate::journal::record::FailureAction;
use crate::rulebook::log_cause::{LogCause, LogPlace, LogSource};
use crate::rulebook::taxonomy::{self, Class, FailureClass, Family, Weight};

/// Most cascade lines that are reported.
const CASCADE: usize = 20;

/// Most lines that a program holds back and prints after its last exception, if one of them is a record.
const LATE_LINES: u64 = 3;

/// Lines between the end of a program and the messages of the script that called it.
const NEAR: u64 = 20;

/// Internal class of a `code.type_key` error before the first step.
pub(crate) const AT_START: Class = Class::CodeAtStart;

/// How certain a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidence {
    /// A line names the cause.
    High,
    /// A line hints at the cause, or the exit code does.
    Medium,
    /// Only weak evidence is left.
    Low,
}

impl Confidence {
    pub(super) fn at_most(self, limit: Self) -> Self {
        match (self, limit) {
            (Self::Low, _) | (_, Self::Low) => Self::Low,
            (Self::Medium, _) | (_, Self::Medium) => Self::Medium,
            _ => Self::High,
        }
    }

    /// The name in output and `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Index of the log.
    pub file: usize,
    /// Line number, from 1.
    pub line: u64,
    /// Text of the line, cut to 4 KiB.
    pub text: String,
}

/// Why a run ended, according to its logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogVerdict {
    /// Failure class; `None`: the logs show no failure.
    pub class: Option<FailureClass>,
    /// Whether it is a program error before the first step.
    pub at_start: bool,
    /// The answer to a first occurrence; `None`: nothing to do.
    pub action: Option<FailureAction>,
    /// How certain the verdict is.
    pub confidence: Confidence,
    /// The line that shows the cause.
    pub root: Option<LogLine>,
    /// The launcher's report of the first exit, if the class follows from that exit alone.
    pub report: Option<(LogLine, ExitStatus)>,
    /// Failure lines besides the root, in order.
    pub cascade: Vec<LogLine>,
    /// Second most likely class.
    pub runner_up: Option<FailureClass>,
    /// Newest step before the failure.
    pub step: Option<u64>,
    /// Index of a log of which parts could not be read, and why.
    pub doubt: Option<(usize, LogDoubt)>,
    /// Number of runs in the log; the verdict is about the last one.
    pub runs: u32,
}

impl LogVerdict {
    /// Converts to the cause of an attempt. `logs` names the worker and source of each log, in order.
    #[must_use]
    pub fn cause(self, logs: &[(WorkerId, LogSource)]) -> LogCause {
        let place = |p: LogLine| {
            let (worker, source) = logs.get(p.file).copied().unwrap_or_default();
            LogPlace {
                worker,
                source,
                line: p.line,
                text: p.text,
            }
        };
        LogCause {
            sure: self.root.is_some() && self.confidence != Confidence::Low,
            class: self.class,
            at_start: self.at_start,
            root: self.root.map(place),
            ended: self.report.as_ref().and_then(|(_, status)| status.number()),
            report: self.report.map(|(at, _)| place(at)),
            ..LogCause::default()
        }
    }
}

impl LogReader {
    /// Drops starts from scratch, for a caller that knows whether they were ordered.
    pub fn forget_starts(&mut self) {
        self.found.retain(|f| f.sighting.rule.source != RuleSource::FreshStart);
    }

    /// The verdict. `exit` is the exit code of the run, if known; 128 plus a signal number means that signal.
    #[must_use]
    pub fn verdict(&self, exit: Option<i32>) -> LogVerdict {
        let found: Vec<&LogMatch> = self.found.iter().filter(|f| self.stands(f, exit)).collect();
        let mut found = self.living(found, exit);
        if self.logs.len() > 1 {
            // Across ranks, order by timestamp if all lines have one.
            if found.iter().all(|f| f.time.is_some()) {
                found.sort_by_key(|f| f.time);
            }
        }
        let verdict = self.judge(exit, &found);
        // A program with buffered output prints its records after its last message.
        let held_back = |f: &&LogMatch| f.sighting.rule.is_raised() && weight(&clue(f)) <= Weight::Cause;
        // Python reports a script that it cannot parse without a traceback.
        let unread = |f: &&LogMatch| {
            let opens = |with: &str| f.sighting.text.starts_with(with);
            f.sighting.rule.source == RuleSource::Loose
                && ["SyntaxError: ", "IndentationError: ", "TabError: "]
                    .iter()
                    .any(|w| opens(w))
        };
        let told = self.found.iter().rev().find(held_back);
        match told.or(found.iter().copied().find(unread)) {
            Some(f) if verdict.class == Some(Class::ExitUnexplained.into()) => {
                let class = Some(public(f.class).into());
                self.build(class, answer(f.class), Confidence::Low, Some(f), &found, &[])
            }
            _ => verdict,
        }
    }

    fn judge(&self, exit: Option<i32>, found: &[&LogMatch]) -> LogVerdict {
        let clues: Vec<LogClue<'_>> = found.iter().map(|f| clue(f)).collect();
        let status = self.status(exit);
        let least = match exit {
            // No line explains a successful exit.
            Some(0) => None,
            Some(_) => Some(Weight::Hint),
            None if self.ended().is_some() => Some(Weight::Hint),
            None => Some(Weight::Abort),
        };
        let choice = choose(&clues).filter(|c| least.is_some_and(|l| c.weight <= l) || is_standing(found[c.at]));
        let Some(choice) = choice.filter(|c| !self.gives_way(&clues[c.at], c.weight, status)) else {
            return self.unsaid(exit, status, found, &clues);
        };
        let root = found[choice.at];
        let confidence = match choice.weight {
            Weight::Machine | Weight::Cause if exit.is_none() && self.is_contested(root) => Confidence::Medium,
            Weight::Machine | Weight::Cause if !matches!(root.class, Class::CodeException) => Confidence::High,
            Weight::Machine | Weight::Cause | Weight::Effect => Confidence::Medium,
            Weight::Symptom | Weight::Abort | Weight::Hint | Weight::Report => Confidence::Low,
        };
        let (class, action) = match &root.own {
            Some(own) => (own.clone(), Some(FailureAction::RelaunchLater)),
            None => {
                let (class, action) = self.refined(root);
                (public(class).into(), Some(action))
            }
        };
        self.build(Some(class), action, confidence, Some(root), found, &clues)
    }

    /// Returns true if no training steps followed the match.
    fn stands(&self, f: &LogMatch, exit: Option<i32>) -> bool {
        let Some(log) = self.logs.get(f.file) else { return false };
        if f.sighting.line < self.last_run(f.file) {
            return false;
        }
        if f.sighting.rule.source == RuleSource::Records {
            return log.steps.bad >= 3;
        }
        if is_standing(f) {
            return true;
        }
        if exit.is_none() && self.is_outlived(f, log) {
            return false;
        }
        // A progress bar that closes after a traceback redraws its position.
        let counted = match f.sighting.rule.is_raised() {
            true => log.steps.sure,
            false => log.steps.count,
        };
        let after = counted.saturating_sub(f.steps);
        // Training continues without rewards.
        if f.class == Class::RewardServer && after > 0 && log.steps.unrewarded >= after {
            return true;
        }
        if is_end_of_job(f) {
            // After that, further output is that of the next job.
            return after <= if exit.is_some_and(|e| e != 0) { GRACE } else { 1 };
        }
        let quiet = || !self.found.iter().any(|o| o.file == f.file && o.steps > f.steps);
        let of_machine = || weight(&clue(f)) == Weight::Machine;
        // The record of the last step is printed late if the output is a pipe or a file.
        if after == 1 && f.outermost.is_some() && log.runs.ends_within(f.sighting.line, LATE_LINES) {
            return true;
        }
        after < 2 && !(after == 1 && exit.is_none() && quiet() && !of_machine())
    }

    /// Returns true if training finished after the match, or stopped that worker after finishing.
    fn is_outlived(&self, f: &LogMatch, log: &ParsedLog) -> bool {
        let Some(done) = log.done.filter(|_| self.ended().is_none()) else {
            return false;
        };
        // A traceback of the calling script comes right after the program has exited.
        let of_a_script = f.sighting.rule.is_raised() && done < f.sighting.line + NEAR;
        if of_a_script {
            return false;
        }
        let early = log.last.is_some_and(|(step, total)| step < total / 20 * 19);
        let goes = f.sighting.line < done || f.class == Class::RayActorDied;
        !early && goes && weight(&clue(f)) == Weight::Symptom
    }

    /// The exit of the process that failed first, if known.
    fn status(&self, exit: Option<i32>) -> Option<ExitStatus> {
        let given = exit.map(ExitStatus::of_number);
        match (given, self.ended()) {
            // A launcher's own code only says that something failed; DeepSpeed exits with 256 minus the signal number.
            (Some(ExitStatus::Code(1 | 225..=255)) | None, Some(end)) => Some(end),
            (Some(given), _) => Some(given),
            (None, None) => self.followed,
        }
    }

    pub(super) fn ended(&self) -> Option<ExitStatus> {
        self.first_end().map(|end| end.status)
    }

    /// The first exit that a launcher reports and that no training step follows.
    fn first_end(&self) -> Option<&ReportedEnd> {
        let still = |end: &&ReportedEnd| {
            self.logs.get(end.file).is_some_and(|log| {
                let survived = log.runs.goes_on_after(end.line) || log.runs.ends_calmly(false);
                log.steps.count < end.steps.saturating_add(2) && !survived
            })
        };
        let mut of_last_run = self.ends.iter().filter(|end| end.line >= self.last_run(end.file));
        of_last_run.find(still)
    }

    /// Returns true if the exit explains more than this line.
    fn gives_way(&self, clue: &LogClue<'_>, weight: Weight, status: Option<ExitStatus>) -> bool {
        match (clue.class, weight) {
            // The run may have been stopped because of it.
            (Class::CkptMissingPart, _) => false,
            // A shell that cannot find a command exits with 127, or continues.
            (Class::CfgCommand, _) if !clue.text.contains("execve()") => {
                status.is_some_and(|s| is_telling(s) && class_of(s) != Class::CfgCommand)
            }
            (Class::CommLauncherTeardown, _) | (_, Weight::Report) => true,
            (_, Weight::Symptom | Weight::Hint) => status.is_some_and(is_telling),
            (_, Weight::Abort) => status.is_some_and(|s| class_of(s) == Class::NativeCrash),
            _ => false,
        }
    }

    /// The verdict if no line counts: from the exit, or none.
    fn unsaid(
        &self,
        exit: Option<i32>,
        status: Option<ExitStatus>,
        found: &[&LogMatch],
        clues: &[LogClue<'_>],
    ) -> LogVerdict {
        if let Some(log) = self.logs.iter().find(|log| exit == Some(0) && ended_early(log)) {
            let mut verdict = self.build(
                Some(Class::EndEarlySuccess.into()),
                Some(FailureAction::Stop),
                Confidence::Medium,
                None,
                found,
                clues,
            );
            verdict.step = log.last.map(|(step, _)| step);
            return verdict;
        }
        let of_a_launcher = |f: &&&LogMatch| f.class == Class::CommLauncherTeardown;
        let reports = || found.iter().filter(|f| weight(&clue(f)) == Weight::Report);
        let teardown = reports().find(|f| exit.is_none() && of_a_launcher(f));
        let reported = teardown.or_else(|| reports().find(|f| !of_a_launcher(f)));
        let failed = exit.is_some_and(|e| e != 0) || exit.is_none() && self.ended().is_some();
        let done =
            |f: &&LogMatch| f.sighting.text.ends_with(COMPLETED) && self.logs.get(f.file).is_some_and(is_complete);
        match (failed, status) {
            (true, Some(ExitStatus::Code(1))) if found.iter().any(done) => {
                self.build(None, None, Confidence::Medium, None, &[], &[])
            }
            (true, status) => {
                let torn = found.iter().find(|f| weight(&clue(f)) == Weight::Abort);
                let class = status.map_or(Class::ExitUnexplained, class_of);
                let class = match (class, torn) {
                    (Class::ExitUnexplained, Some(f)) => f.class,
                    (class, _) => class,
                };
                let confidence = if class == Class::ExitUnexplained {
                    Confidence::Low
                } else {
                    Confidence::Medium
                };
                self.build(Some(class.into()), answer(class), confidence, None, found, clues)
            }
            (false, _) => match reported {
                // A launcher stops the other workers if one fails.
                Some(f) if f.class == Class::CommLauncherTeardown => self.build(
                    Some(f.class.into()),
                    answer(f.class),
                    Confidence::Low,
                    Some(f),
                    found,
                    clues,
                ),
                Some(f) => self.build(Some(f.class.into()), None, Confidence::Medium, Some(f), found, clues),
                None => match found.iter().find(|f| exit.is_none() && is_shutdown(f)) {
                    Some(f) => self.build(
                        Some(f.class.into()),
                        answer(f.class),
                        Confidence::Medium,
                        Some(f),
                        found,
                        clues,
                    ),
                    None => self.build(None, None, Confidence::High, None, &[], &[]),
                },
            },
        }
    }

    /// A log that could not be read completely. An empty log of one rank is no reason to doubt the others.
    fn doubt(&self) -> Option<(usize, LogDoubt)> {
        let mut all = self.logs.iter().enumerate();
        let of = |(at, log): (usize, &ParsedLog)| log.shape.doubt().map(|d| (at, d));
        let unread = all.clone().filter_map(of).find(|(_, d)| *d != LogDoubt::Empty);
        let empty = all.clone().all(|(_, log)| log.shape.doubt().is_some());
        unread.or_else(|| all.find_map(of).filter(|_| empty))
    }

    /// The log of the root line, if it is not text or has gaps.
    fn noise(&self, root: &LogMatch) -> Option<(usize, LogDoubt)> {
        let log = self.logs.get(root.file)?;
        let noise = log.shape.is_noise().then_some(LogDoubt::Binary);
        noise.or_else(|| log.shape.gap()).map(|doubt| (root.file, doubt))
    }

    fn build(
        &self,
        class: Option<FailureClass>,
        action: Option<FailureAction>,
        confidence: Confidence,
        root: Option<&LogMatch>,
        found: &[&LogMatch],
        clues: &[LogClue<'_>],
    ) -> LogVerdict {
        let other = |c: &&LogClue<'_>| class != Some(public(c.class).into()) && c.class != Class::CommLauncherTeardown;
        let mut rest: Vec<&LogClue<'_>> = clues.iter().filter(other).collect();
        rest.sort_by_key(|c| weight(c));
        let runner_up = rest.first().map(|c| public(c.class).into());
        let follows = |f: &&&LogMatch| match root {
            Some(root) => !std::ptr::eq(**f, root),
            None => true,
        };
        let cascade = found.iter().filter(follows).take(CASCADE).map(|f| place(f)).collect();
        let newest = || self.logs.iter().filter_map(|log| log.steps.newest).max();
        let step = root.and_then(|f| f.step).or_else(newest).map(|s| s.0);
        let doubt = match root {
            None => self.doubt(),
            Some(root) => self.noise(root),
        };
        let confidence = match (doubt, root) {
            (None, _) => self.certainty(confidence, root),
            (Some((_, LogDoubt::Zeros | LogDoubt::LongLine)), Some(_)) => {
                self.certainty(confidence, root).at_most(Confidence::Medium)
            }
            (Some(_), _) => Confidence::Low,
        };
        // The reported exit is the cause only if the class follows from it.
        let report = self
            .first_end()
            .filter(|end| root.is_none() && class == Some(class_of(end.status).into()));
        LogVerdict {
            at_start: root.is_some_and(|f| f.class == AT_START),
            report: report.map(|end| (reported(end), end.status)),
            doubt,
            class,
            action,
            confidence,
            root: root.map(place),
            cascade,
            runner_up,
            step,
            runs: self.runs(),
        }
    }
}

fn answer(class: Class) -> Option<FailureAction> {
    Some(taxonomy::action(&class.into()))
}

/// The class to report: `AT_START` is a separate class only in the policy.
pub(super) fn public(class: Class) -> Class {
    match class {
        AT_START => Class::CodeTypeKey,
        other => other,
    }
}

/// Returns true if later steps do not refute the match: training continuing is itself the failure.
fn is_standing(f: &LogMatch) -> bool {
    matches!(f.sighting.rule.source, RuleSource::FreshStart | RuleSource::Records) || f.class == Class::CkptMissingPart
}

/// Returns true if a server says that it shuts down, which it does only if it is told to.
fn is_shutdown(f: &LogMatch) -> bool {
    f.sighting.rule.source == RuleSource::Shutdown
}

/// Returns true if the scheduler ends the job, which may still do steps in its grace period.
fn is_end_of_job(f: &LogMatch) -> bool {
    f.class == Class::SchedTimelimit || f.class.family() == Family::Sched && f.sighting.text.contains(" CANCELLED AT ")
}

/// Returns true if the log says that training is over although more steps were planned.
fn ended_early(log: &ParsedLog) -> bool {
    // A process may exit a little before the last printed step: some steps are not printed, and some count from zero.
    let early = |(step, total): (u64, u64)| log.says_end && step + 1 < total || log.exited && step < total / 20 * 19;
    !log.wanted && log.last.is_some_and(early)
}

/// Returns true if the log says that training is over after the last planned step.
fn is_complete(log: &ParsedLog) -> bool {
    log.says_end && log.last.is_some_and(|(step, total)| step >= total)
}

fn place(f: &LogMatch) -> LogLine {
    LogLine {
        file: f.file,
        line: f.sighting.line,
        text: f.sighting.text.clone(),
    }
}

fn reported(end: &ReportedEnd) -> LogLine {
    LogLine {
        file: end.file,
        line: end.line,
        text: end.text.clone(),
    }
}

#[cfg(test)]
mod tests;
