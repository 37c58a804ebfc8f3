//! Requests to the trainer to save at its next step boundary.

use crate::id::{Step, Tick};
use serde::{Deserialize, Serialize};

/// A request to save at the next step boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveOrder {
    /// Number of the request within the run.
    pub id: u64,
    /// Who asked.
    pub by: SaveRequester,
    /// When the step must be proven; `None`: no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Tick>,
}

/// Who asked for a save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveRequester {
    /// An operator.
    Operator(String),
    /// The notice of a preemption.
    Notice(String),
    /// The promise to lose no more than `max_loss`.
    MaxLoss,
    /// A planned restart, because memory will run out.
    Memory,
}

impl SaveRequester {
    /// Who it is, as text.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Operator(by) | Self::Notice(by) => by,
            Self::MaxLoss => "max_loss",
            Self::Memory => "memory.restart_after_save",
        }
    }
}

/// How a request for a save ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveRequestEnd {
    /// A step that was saved since is proven.
    Proven {
        /// The proven step.
        step: Step,
        /// Whether the trainer would not have saved it by itself: it is deleted before the user's own steps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        extra: bool,
    },
    /// The trainer did not answer in time. A later answer counts.
    Unanswered,
    /// The trainer answered, but no step was proven in time.
    Unproven,
    /// The request could not be written.
    Failed {
        /// The cause.
        why: String,
    },
}
