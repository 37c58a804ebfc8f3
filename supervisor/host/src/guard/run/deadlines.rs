//! How long workers may run without a supervisor, and without a renewal of their run's lease.

use super::Guard;
use supervise_core::event::TrainerPhase;

impl Guard {
    /// Kills the workers if no supervisor has been connected for too long. A running save gets more time.
    pub(super) fn on_orphaned(&mut self, now: u64) {
        if self.orphan_due().is_some_and(|due| now >= due) {
            self.tree.kill(now);
        }
    }

    /// Kills the workers in time: another machine may take the lease soon and must find none, whatever the supervisor
    /// does.
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
