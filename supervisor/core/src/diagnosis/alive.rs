//! Matches that a log outlived: they ended no process, whatever they looked like.

use super::log_reader::{LogMatch, LogReader, ParsedLog, clue};
use super::log_verdict::Confidence;
use super::root_cause::weight;
use super::stall::is_wait;
use crate::event::scan::{RuleSource, TracebackScope};
use crate::rulebook::taxonomy::{Class, Family, Weight};

/// An error that a program logs this often, ...
const USUAL: usize = 10;
/// ... over this many lines, does not end it.
const USUAL_APART: u64 = 500;

impl LogReader {
    /// First line of the last run in a log.
    pub(super) fn last_run(&self, file: usize) -> u64 {
        self.logs
            .get(file)
            .map_or(0, |log| log.runs.last(|from| self.is_any_from(file, from)))
    }

    /// Largest number of runs in one log.
    pub(super) fn runs(&self) -> u32 {
        let all = self.logs.iter().enumerate();
        let counts = all.map(|(file, log)| log.runs.count(|from| self.is_any_from(file, from)));
        counts.max().unwrap_or(1)
    }

    /// Limits the confidence if the log only stops, has several runs, ends with a bare exception, or continued after the root line.
    pub(super) fn certainty(&self, told: Confidence, root: Option<&LogMatch>) -> Confidence {
        let Some(root) = root else {
            return match self.logs.iter().any(ParsedLog::shows_life) && self.found.iter().all(|f| !is_strong(f)) {
                true => told,
                false => told.at_most(Confidence::Medium),
            };
        };
        let open = root.sighting.rule.source == RuleSource::LastWords || self.runs() > 1 || self.is_lived_through(root);
        told.at_most(if open { Confidence::Medium } else { Confidence::High })
    }

    /// Returns true if the log shows another cause as well.
    pub(super) fn is_contested(&self, root: &LogMatch) -> bool {
        let other = |f: &LogMatch| {
            f.file == root.file && f.class != root.class && is_strong(f) && !f.sighting.rule.is_chained()
        };
        self.found.iter().any(other)
    }

    fn is_any_from(&self, file: usize, from: u64) -> bool {
        let strong = |f: &&LogMatch| weight(&clue(f)) <= Weight::Abort;
        let mut found = self.found.iter().filter(|f| f.file == file).filter(strong);
        found.any(|f| f.sighting.line >= from) || self.ends.iter().any(|end| end.file == file && end.line >= from)
    }

    /// Drops the matches that the log outlived, unless none would be left.
    pub(super) fn living<'a>(&self, found: Vec<&'a LogMatch>, exit: Option<i32>) -> Vec<&'a LogMatch> {
        let mut found = found;
        if exit.is_none() && self.ended().is_none() {
            found.retain(|f| !self.is_survived(f));
            if let Some(first) = last_of_an_interpreter(&found) {
                let before = |f: &&LogMatch| f.file == first.file && f.sighting.line < first.sighting.line;
                let ended = found
                    .iter()
                    .copied()
                    .filter(before)
                    .rfind(|f| f.outermost.is_some_and(|header| Some(header) != first.outermost));
                let earlier =
                    |f: &LogMatch| ended.is_some_and(|e| f.file == e.file && f.sighting.line <= e.sighting.line);
                found.retain(|f| !earlier(f) || is_lasting(f));
            }
        }
        if found.iter().any(|f| is_strong(f) && !self.is_lived_through(f)) {
            found.retain(|f| !self.is_lived_through(f));
        }
        found
    }

    /// Returns true if the log continued for long after the match.
    fn is_lived_through(&self, f: &LogMatch) -> bool {
        let on = |f: &LogMatch| {
            self.logs
                .get(f.file)
                .is_some_and(|log| log.runs.goes_on_after(f.sighting.line))
        };
        !is_lasting(f) && on(f)
    }

    /// Returns true if the log continued to its end after the match.
    fn is_survived(&self, f: &LogMatch) -> bool {
        // Neither an error that the program logged nor one that ended a thread has ended the program.
        let quick = f.logged || f.sighting.rule.through() == TracebackScope::Thread;
        let calm = |f: &LogMatch| self.logs.get(f.file).is_some_and(|log| log.runs.ends_calmly(quick));
        !is_lasting(f) && (self.is_lived_through(f) || calm(f) || self.is_usual(f))
    }

    /// Returns true if the program logs this error again and again.
    fn is_usual(&self, f: &LogMatch) -> bool {
        let same = |o: &&LogMatch| o.file == f.file && o.logged && o.class == f.class;
        let lines = || self.found.iter().filter(same).map(|o| o.sighting.line);
        let apart = || lines().max().unwrap_or(0) - lines().min().unwrap_or(0);
        f.logged && lines().count() >= USUAL && apart() >= USUAL_APART
    }
}

/// The first exception of the last chain that an interpreter exited with. Earlier ones belong to other processes.
fn last_of_an_interpreter<'a>(found: &[&'a LogMatch]) -> Option<&'a LogMatch> {
    let ends = |f: &&LogMatch| f.outermost.is_some() && !f.sighting.rule.quoted;
    let last = found.iter().rposition(ends)?;
    let file = found.get(last)?.file;
    let chain = found
        .get(..=last)?
        .iter()
        .rev()
        .copied()
        .filter(|f| f.file == file && f.sighting.rule.is_exception());
    let mut at_end = false;
    let of_chain = chain.take_while(|f| !std::mem::replace(&mut at_end, !f.sighting.rule.is_chained()));
    of_chain.last()
}

/// Returns true if the match alone names a cause.
fn is_strong(f: &LogMatch) -> bool {
    match weight(&clue(f)) {
        Weight::Machine | Weight::Cause => true,
        Weight::Effect => f.class.family() == Family::Sched,
        _ => false,
    }
}

/// Returns true for failures that do not stop the output.
fn is_lasting(f: &LogMatch) -> bool {
    let of_machine = || {
        let said = &f.sighting;
        weight(&clue(f)) == Weight::Machine && !said.rule.is_exception() && !said.text.contains("NCCL WARN")
    };
    matches!(
        f.sighting.rule.source,
        RuleSource::FreshStart | RuleSource::Records | RuleSource::Tail | RuleSource::Shutdown
    ) || is_wait(f.class)
        || matches!(
            f.class,
            Class::DiskSlow | Class::NumNan | Class::RewardServer | Class::CkptMissingPart
        )
        || of_machine()
}
