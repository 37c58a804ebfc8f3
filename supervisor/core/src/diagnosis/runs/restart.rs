//! Detects a new run by what precedes its messages: a later time, or the id of another process.

use crate::diagnosis::patterns::{Patterns, ProcessName};
use std::collections::BTreeSet;

/// Lines that are compared, before and after a failure.
const LINES: usize = 200;
/// Bytes before a failure that are searched for these lines.
const BEFORE: usize = 32 << 10;
/// Lines after which the next failure is compared with what precedes it.
const APART: u64 = 50;
/// A longer time without a message is no pause within a run.
const PAUSE_MS: u64 = 10 * 60 * 1000;
/// Lines without trouble and of no known process that prove a new run.
const SURE: u64 = 12;
/// A step up to so far beyond the last one continues the same run, and one as far before it does not.
const NEAR: u64 = 3;

/// What a run printed up to its last failure, and the place after it where the next one may begin.
#[derive(Debug, Default, Clone)]
pub(in crate::diagnosis) struct RestartDetector {
    armed_at: u64,
    time: Option<u64>,
    step: Option<u64>,
    pids: BTreeSet<ProcessName>,
    /// Lines that are still compared.
    left: usize,
    /// First line of what may be a new run, and its processes.
    begin: Option<u64>,
    fresh: BTreeSet<ProcessName>,
}

impl RestartDetector {
    /// Remembers the step, the times and the processes before a failure, given the pieces of the log before it, last piece first.
    pub(in crate::diagnosis) fn arm(&mut self, patterns: &Patterns, line: u64, step: Option<u64>, before: &[&[u8]]) {
        (self.left, self.step) = (LINES, step);
        if self.armed_at > 0 && line < self.armed_at + APART {
            return;
        }
        *self = Self {
            armed_at: line,
            left: LINES,
            step,
            ..Self::default()
        };
        let mut budget = BEFORE;
        for piece in before {
            let piece = &piece[piece.len().saturating_sub(budget)..];
            budget -= piece.len();
            for line in piece.rsplit(|b| matches!(b, b'\n' | b'\r')).take(LINES) {
                self.time = self.time.max(patterns.time_of(line));
                self.pids.extend(patterns.pid_of(line));
            }
        }
    }

    /// Latest time of the lines before the failure, and of those compared since.
    pub(in crate::diagnosis) fn time(&self) -> Option<u64> {
        self.time
    }

    /// Returns true while lines are compared.
    pub(in crate::diagnosis) fn is_armed(&self) -> bool {
        self.left > 0 && (self.time.is_some() || !self.pids.is_empty())
    }

    /// Takes back the begin of a run: a run that fails may be silent for long, and its other processes may print for the first time.
    pub(in crate::diagnosis) fn take_back(&mut self) {
        self.begin = None;
        self.pids.append(&mut self.fresh);
    }

    /// Compares a line. Returns the first line of a new run once it is sure. `step` reads the step of a record.
    pub(in crate::diagnosis) fn note(
        &mut self,
        patterns: &Patterns,
        number: u64,
        line: &[u8],
        step: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let (pid, time) = (patterns.pid_of(line), patterns.time_of(line));
        if pid.as_ref().is_some_and(|pid| self.pids.contains(pid)) {
            self.take_back();
        } else if self.begin.is_none() {
            let other = pid
                .as_ref()
                .is_some_and(|(name, _)| self.pids.iter().any(|(known, _)| known == name));
            let later = self.time.zip(time).is_some_and(|(last, now)| now > last + PAUSE_MS);
            self.begin = (other || later).then_some(number);
        }
        let Some(begin) = self.begin else {
            self.left = self.left.saturating_sub(1);
            self.time = self.time.max(time);
            return None;
        };
        self.fresh.extend(pid);
        let (goes_on, goes_back) = match (self.step, step()) {
            (Some(last), Some(step)) => (step > last && step <= last + NEAR, step + NEAR <= last),
            _ => (false, false),
        };
        if !goes_on && !goes_back && number < begin + SURE {
            return None;
        }
        *self = Self::default();
        (!goes_on).then_some(begin)
    }
}
