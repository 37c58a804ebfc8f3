//! The cause of an attempt's end as its logs tell it, read whole when its last process is gone: what `supervise diagnose` says of them.

use crate::id::WorkerId;
use crate::rulebook::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The cause that the logs of an attempt tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogCause {
    /// Class; `None`: they tell of no failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// An error of the program before its first step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
    /// A line tells it that is neither a warning nor a symptom.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sure: bool,
    /// The line that tells it; `None`: the exit does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<LogPlace>,
    /// The line in which the launcher reports the end that tells it, and that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<LogPlace>,
    /// See `report`; a signal is negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i32>,
    /// The cause that is left where the start from nothing, which this one tells of, was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub else_cause: Option<Box<LogCause>>,
    /// Why the logs were not read: nothing of the above is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// A line of a worker's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// The worker.
    pub worker: WorkerId,
    /// Where the line stands.
    #[serde(default, skip_serializing_if = "LogSource::is_output")]
    pub source: LogSource,
    /// Its line, from 1.
    pub line: u64,
    /// The line.
    pub text: String,
}

/// What a worker left that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// Its output.
    #[default]
    Output,
    /// Its torch error file.
    ErrorFile,
}

impl LogSource {
    fn is_output(&self) -> bool {
        *self == Self::Output
    }
}

/// `worker 3 line 12`.
impl Display for LogPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.source {
            LogSource::Output => write!(f, "worker {} line {}", self.worker, self.line),
            LogSource::ErrorFile => write!(f, "the error file of worker {}", self.worker),
        }
    }
}

impl LogCause {
    /// Logs that were not read, and why.
    #[must_use]
    pub fn unread(why: &str) -> Self {
        Self {
            unread: Some(why.to_owned()),
            ..Self::default()
        }
    }

    /// Every text in it.
    pub fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let own = self.root.iter_mut().chain(&mut self.report).map(|p| &mut p.text);
        let other = self.else_cause.iter_mut();
        own.chain(other.flat_map(|c| c.root.iter_mut().chain(&mut c.report).map(|p| &mut p.text)))
    }
}
