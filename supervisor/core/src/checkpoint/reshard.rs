//! Resharding of steps for another number of ranks, and its result.

use crate::checkpoint::{CkptId, PinsHash};
use crate::id::Step;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// A step to reshard, as it was proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardSpec {
    /// Directory of the step; the result has the same name.
    pub ckpt: CkptId,
    /// The step.
    pub step: Step,
    /// Its pins when it was proven. If they differ, it is not touched.
    pub pins: PinsHash,
    /// Ranks that saved it.
    pub from: u32,
    /// Ranks that will load it.
    pub to: u32,
}

/// A resharded step, with the values of the proven step that it was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardedStep {
    /// The step that it was made from, and how.
    pub of: ReshardSpec,
    /// Its own pins.
    pub pins: PinsHash,
    /// Where the original is now, relative to the checkpoint root; `None`: an I/O worker moved it but died before it
    /// could report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Utf8PathBuf>,
}
