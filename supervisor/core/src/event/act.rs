//! Results of acts.

use crate::checkpoint::reshard::ReshardedStep;
use crate::id::ProcRef;
use serde::{Deserialize, Serialize};

/// Result of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActOutput {
    /// Done, nothing to say.
    Done,
    /// The steps that were to be deleted are gone.
    Pruned,
    /// A step was cut anew for another number of ranks; what it was stands aside.
    Resharded(ReshardedStep),
    /// Workers run.
    Launched {
        /// The guard.
        guard: ProcRef,
        /// The workers by id.
        workers: Vec<ProcRef>,
        /// The command of worker 0, secrets redacted.
        argv: Vec<String>,
        /// Their interpreters had been started ahead: whether they went on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<StandbyResult>,
    },
}

/// Fate of interpreters that were started before the attempt whose workers they were to become.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandbyResult {
    /// They became the workers.
    Went,
    /// The driver's did; the one from which the workers of its Ray were to be forked did not.
    WentAlone {
        /// Why.
        why: String,
        /// Another would end for the same reason: none is started ahead any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasting: bool,
    },
    /// At least one did not, and was started as ever.
    Cold {
        /// Why.
        why: String,
        /// Others would end for the same reason: none is started ahead any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasting: bool,
    },
}

/// Why an act failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActError {
    /// In words: what, where, why.
    pub what: String,
    /// The same again may succeed.
    pub retryable: bool,
    /// Kind of the failure, where it decides the exit code.
    pub kind: ActErrorKind,
}

/// Kinds of failed acts that are decided upon differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActErrorKind {
    /// The command cannot be executed (not found, not executable).
    Command,
    /// The resume point is not what was proven (pins differ).
    PinsChanged,
    /// A cluster that somebody else started does not answer, or still holds something of the attempt before.
    Held,
    /// A GPU that the run names is in use.
    GpuBusy,
    /// A GPU that the run names is not there, or must be reset.
    GpuUnfit,
    /// A save began while the live set was copied.
    Voided,
    /// There is no room: for a copy and the next save, or for a change of our own (the disk or a quota is full).
    NoRoom,
    /// The step cannot be cut anew for another number of ranks.
    NotCut,
    /// The step that was to be cut anew is damaged: a checksum does not fit, or a file is gone, whatever its proof said.
    NotWhole,
    /// The disk refused (no space, read-only, permission).
    Disk,
    /// A limit of this user or of the machine keeps a process, a thread or a file from being made.
    Limit,
    /// Anything else.
    Other,
}
