//! Steps that were resharded for another number of ranks.

use super::RunState;
use crate::checkpoint::reshard::ReshardedStep;
use crate::checkpoint::{CheckpointSummary, CkptId, PinsHash};
use crate::journal::record::DiskEdit;

const REMEMBERED: usize = 20;

impl RunState {
    /// Notes an intended reshard: from now on it may have started, so a successor finishes it first.
    pub(super) fn note_cutting(&mut self, edits: &[DiskEdit]) {
        let cut = edits.iter().find_map(|edit| match edit {
            DiskEdit::Reshard(cut) => Some(cut.clone()),
            _ => None,
        });
        self.disk.cutting = cut.or(self.disk.cutting.take());
    }

    pub(super) fn note_derived(&mut self, derived: &ReshardedStep) {
        self.disk.derived.retain(|d| d.of != derived.of);
        if self.disk.derived.len() >= REMEMBERED {
            self.disk.derived.remove(0);
        }
        self.disk.derived.push(derived.clone());
    }

    /// The record of a reshard, if this run made the step with these pins.
    #[must_use]
    pub fn derived_from(&self, ckpt: &CkptId, pins: PinsHash) -> Option<&ReshardedStep> {
        self.disk.derived.iter().find(|d| d.of.ckpt == *ckpt && d.pins == pins)
    }

    /// The same for a step of a scan.
    #[must_use]
    pub fn derivation(&self, c: &CheckpointSummary) -> Option<&ReshardedStep> {
        self.derived_from(&c.id, c.pins)
    }
}
