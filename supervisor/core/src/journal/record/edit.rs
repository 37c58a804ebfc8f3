//! Disk edits: changes under the checkpoint root.

use crate::checkpoint::CkptId;
use crate::checkpoint::reshard::ReshardSpec;
use crate::id::Step;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// A change under the checkpoint root. Each one is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskEdit {
    /// Move a step aside, under `aside/`, where the trainer does not see it.
    MoveAside {
        /// The step's directory.
        from: CkptId,
        /// Whether it was whole, in which case it is never deleted automatically.
        whole: bool,
        /// Whether it belongs to another run (`aside/foreign`).
        foreign: bool,
        /// Whether it belongs to another user: if it cannot be moved, it stays where it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        others: bool,
        /// The cause.
        why: String,
    },
    /// Move one file or directory of a step aside, because the trainer would load it and it is not whole.
    PartAside {
        /// The step's directory.
        from: CkptId,
        /// The entry, relative to the step.
        entry: Utf8PathBuf,
        /// The cause.
        why: String,
    },
    /// Make the trainer's own pointer name this step (temporary file, fsync, rename).
    WriteTracker {
        /// The step it should name.
        step: Step,
    },
    /// Remove the trainer's pointer, or move it aside, because there is nothing it could name.
    RemoveTracker,
    /// Reset the save and check intervals stored next to the live set to those of the trainer's configuration.
    SetFrequencies,
    /// Put a copy of a generation where the trainer expects its only checkpoint, as a whole; or make its pointer name
    /// what is already there.
    PutBack {
        /// The generation.
        from: CkptId,
    },
    /// Rewrite a step in place for another number of ranks; the original is moved aside as a whole step.
    Reshard(ReshardSpec),
    /// Finish an interrupted reshard: a complete result takes its place, an incomplete one is deleted.
    EndReshard(ReshardSpec),
}
