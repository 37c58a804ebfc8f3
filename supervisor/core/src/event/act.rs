//! Results of acts.

use crate::checkpoint::reshard::ReshardedStep;
use crate::id::ProcRef;
use serde::{Deserialize, Serialize};

/// Result of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActOutput {
    /// Done, with nothing to report.
    Done,
    /// The steps were deleted.
    Pruned,
    /// A step was resharded for another number of ranks; the original was moved aside.
    Resharded(ReshardedStep),
    /// The workers were started.
    Launched {
        /// The guard.
        guard: ProcRef,
        /// The workers by id.
        workers: Vec<ProcRef>,
        /// The command of worker 0, secrets redacted.
        argv: Vec<String>,
        /// Whether the workers' standby processes were used, if there were any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<StandbyResult>,
    },
}

/// What became of the standby processes that were to become the workers of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandbyResult {
    /// They became the workers.
    Went,
    /// The driver's became a worker, but the one from which its Ray workers were to be forked did not.
    WentAlone {
        /// The cause.
        why: String,
        /// Whether others would fail for the same reason: no standby is started any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasting: bool,
    },
    /// At least one failed, and its worker was started in the usual way.
    Cold {
        /// The cause.
        why: String,
        /// Whether others would fail for the same reason: no standby is started any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasting: bool,
    },
}

/// Why an act failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActError {
    /// Description: what failed, where, why.
    pub what: String,
    /// Whether a retry may succeed.
    pub retryable: bool,
    /// Kind of the failure, if it decides the exit code.
    pub kind: ActErrorKind,
}

/// Kinds of failed acts that lead to different decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActErrorKind {
    /// The command cannot be executed (not found, not executable).
    Command,
    /// The resume point is not what was proven (pins differ).
    PinsChanged,
    /// A cluster started by someone else does not answer, or still holds something of the previous attempt.
    Held,
    /// A GPU that the run names is in use.
    GpuBusy,
    /// A GPU that the run names is missing or must be reset.
    GpuUnfit,
    /// A save started while the live set was copied.
    Voided,
    /// Not enough free space for a copy and the next save, or for our own changes (disk or quota full).
    NoRoom,
    /// The step cannot be resharded for another number of ranks.
    NotCut,
    /// The step to reshard is damaged despite its proof: a checksum does not match, or a file is missing.
    NotWhole,
    /// A disk error (no space, read-only, permission).
    Disk,
    /// A limit of this user or machine prevents creating a process, thread or file.
    Limit,
    /// Anything else.
    Other,
}
