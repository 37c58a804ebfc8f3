//! How a run ends, and its exit code.

use crate::id::Step;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The last planned step is proven; `None`: the trainer ended well, its last step cannot be known.
    Finished {
        /// The step.
        step: Option<Step>,
    },
    /// The training finished, and its launch script did not: it failed later, or another training of it was held back.
    ScriptUnfinished {
        /// The last step, where it is known.
        step: Option<Step>,
        /// In words.
        why: String,
    },
    /// An operator stopped it.
    Stopped,
    /// The machine was about to be taken away; the run goes on when the scheduler starts it again.
    OutOfTime,
    /// The same failure again: relaunching will not help.
    Deterministic {
        /// A description.
        why: String,
    },
    /// Nothing provable, and starting over is not allowed.
    NoProof {
        /// A description.
        why: String,
    },
    /// Another supervisor works here.
    LeaseHeld {
        /// Who.
        by: String,
    },
    /// Somebody else wrote, or put something, among the checkpoints.
    Stranger {
        /// In words.
        what: String,
        /// The step that it is, where it is one.
        step: Option<Step>,
    },
    /// Retries used up.
    GaveUp {
        /// In words.
        why: String,
    },
    /// The machine or the file system does not allow it.
    Environment {
        /// In words.
        why: String,
    },
    /// The command does not start what it has to start.
    Config {
        /// In words.
        why: String,
    },
}

impl RunOutcome {
    /// The documented exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Finished { .. } => 0,
            Self::Stopped => 7,
            Self::ScriptUnfinished { .. } => 8,
            Self::OutOfTime => 75,
            Self::Deterministic { .. } => 3,
            Self::NoProof { .. } => 4,
            Self::LeaseHeld { .. } | Self::Stranger { .. } => 5,
            Self::GaveUp { .. } => 6,
            Self::Environment { .. } => 69,
            Self::Config { .. } => 78,
        }
    }

    /// Nothing is started any more before a person says so (`--again`).
    #[must_use]
    pub fn needs_a_person(&self) -> bool {
        matches!(
            self,
            Self::Deterministic { .. } | Self::NoProof { .. } | Self::GaveUp { .. }
        )
    }

    /// One word for tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "finished",
            Self::Stopped => "stopped",
            Self::ScriptUnfinished { .. } => "script_unfinished",
            Self::OutOfTime => "out_of_time",
            Self::Deterministic { .. } => "deterministic_failure",
            Self::NoProof { .. } => "no_provable_checkpoint",
            Self::LeaseHeld { .. } => "lease_held",
            Self::Stranger { .. } => "stranger",
            Self::GaveUp { .. } => "gave_up",
            Self::Environment { .. } => "environment",
            Self::Config { .. } => "configuration",
        }
    }
}
