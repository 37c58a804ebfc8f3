//! Cause of an attempt's end according to its complete logs, as `supervise diagnose` reports it.

use crate::id::WorkerId;
use crate::rulebook::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Cause of an attempt's end according to its logs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogCause {
    /// Failure class; `None`: the logs show no failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Whether it is a program error before the first step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
    /// Whether the root line is neither a warning nor a symptom.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sure: bool,
    /// Line that shows the cause; `None`: only the exit does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<LogPlace>,
    /// Line in which the launcher reports the exit that shows the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<LogPlace>,
    /// The exit in `report`; negative for a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i32>,
    /// Cause without the start from scratch, in case that start was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub else_cause: Option<Box<LogCause>>,
    /// Why the logs were not read; then the fields above are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// A line of a worker's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// Worker that printed the line.
    pub worker: WorkerId,
    /// File with the line.
    #[serde(default, skip_serializing_if = "LogSource::is_output")]
    pub source: LogSource,
    /// Line number, from 1.
    pub line: u64,
    /// Text of the line.
    pub text: String,
}

/// Which file of a worker was read.
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
    /// The cause for logs that could not be read.
    #[must_use]
    pub fn unread(why: &str) -> Self {
        Self {
            unread: Some(why.to_owned()),
            ..Self::default()
        }
    }

    /// All texts in it.
    pub fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let own = self.root.iter_mut().chain(&mut self.report).map(|p| &mut p.text);
        let other = self.else_cause.iter_mut();
        own.chain(other.flat_map(|c| c.root.iter_mut().chain(&mut c.report).map(|p| &mut p.text)))
    }
}
