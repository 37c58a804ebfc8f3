//! Why the supervisor ended an attempt.

use crate::journal::reason::Reason;
use crate::journal::record::NoticeKind;
use serde::{Deserialize, Serialize};

/// Code of the reason to end the others after a worker failed.
pub const WORKER_FAILED: &str = "worker_failed";

/// Code of the reason to end an attempt that stands still.
pub const STALLED: &str = "stalled";

/// Code of the reason to end an attempt that resumed from another step than it was ordered to.
pub const RESUMED_ELSEWHERE: &str = "resumed_elsewhere";

/// Why the supervisor ended an attempt, with the words of the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// One of its workers had failed before.
    WorkerFailed(String),
    /// It stood still. What its ranks print and how they end from then on is a consequence.
    Stalled(String),
    /// It did not resume from the step that it was ordered to.
    NotResumed(String),
    /// Its numbers jumped at its resume point.
    Jumped(String),
    /// Anything else.
    Other(String),
}

impl EndCause {
    /// The cause that a reason names by its code.
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

    /// The words of the reason.
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
