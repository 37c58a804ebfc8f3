//! Holds: an operator works on the run, so failures and hangs are left alone and nothing is launched.
//!
//! A trainer that could destroy or spoil the last good state is stopped anyway: it starts fresh, goes back, or its
//! weights are non-finite.

use super::Deciding;
use crate::event::TimerKey;
use crate::id::{Ms, Tick};
use crate::journal::reason::Reason;
use crate::journal::record::{Decision, WaitCondition};
use crate::state::RunMode;

impl Deciding<'_> {
    /// Delays a launch until the hold is released. Returns false if there is no hold.
    pub(super) fn waits_for_its_holder(&mut self) -> bool {
        let Some(held) = self.s.requests.held.clone().filter(|_| self.s.is_held()) else {
            return false;
        };
        let (what, until) = (WaitCondition::Unheld, Tick(u64::MAX));
        let reason = Reason::new("held", format!("{}; `supervise unhold` lets it go on", held.words()));
        self.decided(Decision::Wait { what, until }, vec![reason]);
        true
    }

    /// Handles everything that happened during the hold. Time spent in a debugger is no stall.
    pub(super) fn on_unhold(&mut self, by: &str) {
        match &self.s.mode {
            RunMode::Waiting {
                what: WaitCondition::Unheld,
                ..
            } => self.choose(vec![Reason::new("unheld", format!("{by} lets the run go on"))]),
            RunMode::Running => {
                if let Some((_, status)) = self.s.attempt.as_ref().and_then(|a| a.end.first_failure) {
                    self.on_worker_exited(status);
                }
                self.wake(TimerKey::StallCheck, Ms(0));
            }
            _ => {}
        }
    }
}
