//! What is counted between two signs of progress: retries, deaths, terms.

use super::{PastFailure, RunState};
use crate::id::Step;

/// Failures kept for one run.
pub(super) const FAILURES: usize = 50;

impl RunState {
    pub(super) fn on_mark(&mut self, step: Step) {
        self.mark = self.mark.max(Some(step));
        self.charged = 0;
        self.own_deaths = 0;
        self.spared = 0;
        self.full = 0;
        self.barren_terms = 0;
        self.wish_done = true;
        // Only what was saved since is beyond doubt: a step that is found after the fact was there before.
        self.doubt &= self.live().is_none();
    }

    /// A step beyond all before, where none can be proven.
    pub(super) fn on_advance(&mut self, step: Step) {
        self.reached = self.reached.max(Some(step));
        self.charged = 0;
        self.own_deaths = 0;
        self.spared = 0;
        self.barren_terms = 0;
    }

    /// Whoever changed something may have begun from nothing, or count otherwise.
    pub(super) fn forget_steps(&mut self) {
        self.reached = None;
        if let Some(a) = self.attempt.as_mut() {
            a.apart = true;
        }
    }

    pub(super) fn on_charge(&mut self, attempts: u32, step_backs: u32) {
        self.charged = attempts;
        self.step_backs = step_backs;
        let Some(a) = self.attempt.as_mut() else {
            return;
        };
        if a.settled {
            // A start that failed before its launch: the attempt before it was charged already.
            return;
        }
        a.settled = true;
        if a.guard_lost {
            self.own_deaths = self.own_deaths.saturating_add(1);
        }
        if let Some(d) = a.diagnosis.clone() {
            if self.failures.len() >= FAILURES {
                self.failures.remove(0);
            }
            self.failures.push(PastFailure {
                attempt: a.no,
                diagnosis: d,
                trained: a.trained(),
            });
        }
    }
}
