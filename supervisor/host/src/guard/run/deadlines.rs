//! How long workers may go on: without a supervisor, and without a renewal of their run's lease.

use super::Guard;
use supervise_core::event::TrainerPhase;

impl Guard {
    /// The leash has been broken for too long. A save that goes on then gets some more time.
    pub(super) fn on_orphaned(&mut self, now: u64) {
        if self.orphan_due().is_some_and(|due| now >= due) {
            self.tree.kill(now);
        }
    }

    /// Another machine may take the lease soon, and must find no worker: whatever the supervisor is doing.
    pub(super) fn on_unrenewed(&mut self, now: u64) {
        if self.lease_due().is_some_and(|due| now >= due) && !self.tree.is_gone() {
            self.tree.kill(now);
        }
    }

    pub(super) fn lease_due(&self) -> Option<u64> {
        let until = self.lease?;
        Some(if self.lost_at.is_some() {
            until.alone.0
        } else {
            until.led.0
        })
    }

    pub(super) fn orphan_due(&self) -> Option<u64> {
        let grace = self.order.orphan_grace.0;
        let saving = self.facts.phase == TrainerPhase::Save && !self.tree.is_gone();
        let more = if saving { self.order.save_grace.0 } else { 0 };
        Some(self.lost_at?.saturating_add(grace).saturating_add(more))
    }
}
