//! Why the supervisor stopped an attempt.

use crate::journal::reason::Reason;
use crate::journal::record::NoticeKind;
use serde::{Deserialize, Serialize};

/// Reason code: the other workers are stopped because one failed.
pub const WORKER_FAILED: &str = "worker_failed";

/// Reason code: the attempt stalled.
pub const STALLED: &str = "stalled";

/// Reason code: the attempt resumed from another step than ordered.
pub const RESUMED_ELSEWHERE: &str = "resumed_elsewhere";

/// Why the supervisor stopped an attempt, with the text of the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// One of its workers had failed.
    WorkerFailed(String),
    /// It stalled. What its ranks print afterwards, and how they exit, is a consequence.
    Stalled(String),
    /// It did not resume from the step it was ordered to.
    NotResumed(String),
    Jumped(String),
    Other(String),
}

impl EndCause {
    /// The cause for a reason, by its code.
    #[must_use]
    pub fn of(reason: &Reason) -> Self {
        let text = reason.text.clone();
        match &*reason.code {
            WORKER_FAILED => Self::WorkerFailed(text),
            STALLED => Self::Stalled(text),
            RESUMED_ELSEWHERE => Self::NotResumed(text),
            code if code == NoticeKind::ResumeJump.code() => Self::Jumped(text),
            _ => Self::Other(text),
        }
    }

    /// The text of the reason.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::WorkerFailed(text)
            | Self::Stalled(text)
            | Self::NotResumed(text)
            | Self::Jumped(text)
            | Self::Other(text) => text,
        }
    }
}
