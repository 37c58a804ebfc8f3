//! Steps that are cut anew for another number of ranks.

use super::RunState;
use crate::checkpoint::reshard::ReshardedStep;
use crate::checkpoint::{CheckpointSummary, CkptId, PinsHash};
use crate::journal::record::DiskEdit;

/// Steps remembered for one run.
const REMEMBERED: usize = 20;

impl RunState {
    /// From the intent on it may be begun: whoever comes next ends it first.
    pub(super) fn note_cutting(&mut self, edits: &[DiskEdit]) {
        let cut = edits.iter().find_map(|edit| match edit {
            DiskEdit::Reshard(cut) => Some(cut.clone()),
            _ => None,
        });
        self.cutting = cut.or(self.cutting.take());
    }

    pub(super) fn note_derived(&mut self, derived: &ReshardedStep) {
        self.derived.retain(|d| d.of != derived.of);
        if self.derived.len() >= REMEMBERED {
            self.derived.remove(0);
        }
        self.derived.push(derived.clone());
    }

    /// The step as it stands there was cut anew in this run, and nobody touched it since.
    #[must_use]
    pub fn derived_from(&self, ckpt: &CkptId, pins: PinsHash) -> Option<&ReshardedStep> {
        self.derived.iter().find(|d| d.of.ckpt == *ckpt && d.pins == pins)
    }

    /// The same for a step of a scan.
    #[must_use]
    pub fn derivation(&self, c: &CheckpointSummary) -> Option<&ReshardedStep> {
        self.derived_from(&c.id, c.pins)
    }
}
