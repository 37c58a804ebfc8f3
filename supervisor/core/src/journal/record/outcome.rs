//! Outcomes of a run, with their exit codes.

use crate::id::Step;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The last planned step is proven; `None`: the trainer succeeded, but its last step is not known.
    Finished {
        /// The last step.
        step: Option<Step>,
    },
    /// The training finished, but its launch script did not: it failed later, or another of its trainings was held
    /// back.
    ScriptUnfinished {
        /// The last step, if known.
        step: Option<Step>,
        /// Description.
        why: String,
    },
    /// An operator stopped it.
    Stopped,
    /// The machine was about to be preempted; the run resumes when the scheduler restarts it.
    OutOfTime,
    /// The same failure again: a relaunch would not help.
    Deterministic {
        /// Description.
        why: String,
    },
    /// Nothing can be proven, and a fresh start is not allowed.
    NoProof {
        /// Description.
        why: String,
    },
    /// Another supervisor runs here.
    LeaseHeld {
        /// Which one.
        by: String,
    },
    /// Another writer changed or added something among the checkpoints.
    Stranger {
        /// Description.
        what: String,
        /// The step it concerns, if it is one.
        step: Option<Step>,
    },
    /// The retries are used up.
    GaveUp {
        /// Description.
        why: String,
    },
    /// The machine or the file system prevents it.
    Environment {
        /// Description.
        why: String,
    },
    /// The command does not start what it should.
    Config {
        /// Description.
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

    /// Returns true if nothing starts until an operator says so (`--again`).
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
