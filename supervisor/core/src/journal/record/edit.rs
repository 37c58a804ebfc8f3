//! Changes under the checkpoint root.

use crate::checkpoint::CkptId;
use crate::checkpoint::reshard::ReshardSpec;
use crate::id::Step;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// A change under the checkpoint root. Each is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskEdit {
    /// Move a step out of the trainer's sight, under `aside/`.
    MoveAside {
        /// A description.
        from: CkptId,
        /// It was whole: never deleted automatically.
        whole: bool,
        /// It belongs to another run (`aside/foreign`).
        foreign: bool,
        /// It belongs to another user: if it cannot be moved, it stays where it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        others: bool,
        /// Why.
        why: String,
    },
    /// Move one file or directory of a step under `aside/`: the trainer would load it, and it is not whole.
    PartAside {
        /// The step.
        from: CkptId,
        /// The entry, relative to the step.
        entry: Utf8PathBuf,
        /// Why.
        why: String,
    },
    /// Make the trainer's own pointer name this step (temporary file, fsync, rename).
    WriteTracker {
        /// The step.
        step: Step,
    },
    /// Remove the trainer's pointer, or move it aside: nothing it could name is there.
    RemoveTracker,
    /// Make what stands beside the live set say how often the trainer is to act, as its configuration does.
    SetFrequencies,
    /// Put a copy of a generation where the trainer looks for its only checkpoint, as a whole; or make its pointer name what
    /// stands there already.
    PutBack {
        /// The generation.
        from: CkptId,
    },
    /// Write a step as other ranks would have saved it, in its place; as it is now it goes aside, whole.
    Reshard(ReshardSpec),
    /// End what a reshard that was cut short has begun: what is complete takes its place, anything else is cleared.
    EndReshard(ReshardSpec),
}
