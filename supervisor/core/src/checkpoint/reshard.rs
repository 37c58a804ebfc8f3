//! Steps that are cut anew for another number of ranks, and what comes of it.

use crate::checkpoint::{CkptId, PinsHash};
use crate::id::Step;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// A step to be cut anew, as it was proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardSpec {
    /// The step's directory; what is cut has the same name.
    pub ckpt: CkptId,
    /// The step.
    pub step: Step,
    /// Its form when it was proven: another one is not touched.
    pub pins: PinsHash,
    /// Ranks that saved it.
    pub from: u32,
    /// Ranks that will load it.
    pub to: u32,
}

/// A step that was cut anew: derived from a proven one, whose values it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardedStep {
    /// The step that it was cut from, and how.
    pub of: ReshardSpec,
    /// Its own form.
    pub pins: PinsHash,
    /// Place where the step that it was cut from stands now, relative to the checkpoint root; `None`: a helper that did not
    /// live to tell has moved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Utf8PathBuf>,
}
