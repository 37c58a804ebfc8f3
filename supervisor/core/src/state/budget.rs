//! What is counted between two signs of progress: retries, deaths, terms.

use super::{PastFailure, RunState};
use crate::id::{Step, Tick};
use crate::journal::record::REPORTED;

pub(super) const FAILURES: usize = 50;

impl RunState {
    pub(super) fn on_mark(&mut self, step: Step, at: Tick) {
        if Some(step) >= self.progress.mark {
            self.progress.is_reported = self.why.iter().any(|r| r.code == REPORTED);
        }
        self.note_save_proven(step, at);
        self.progress.mark = self.progress.mark.max(Some(step));
        self.budget.charged = 0;
        self.budget.own_deaths = 0;
        self.budget.spared = 0;
        self.disk.full = 0;
        self.budget.barren_terms = 0;
        self.requests.wish_done = true;
        // Only what was saved since is beyond doubt: a step that is found after the fact was there before.
        self.disk.doubt &= self.live().is_none();
    }

    /// Takes in a step beyond all earlier ones, in a run where none can be proven.
    pub(super) fn on_advance(&mut self, step: Step) {
        self.progress.reached = self.progress.reached.max(Some(step));
        self.budget.charged = 0;
        self.budget.own_deaths = 0;
        self.budget.spared = 0;
        self.budget.barren_terms = 0;
    }

    /// After a change the run may start fresh, or count differently.
    pub(super) fn forget_steps(&mut self) {
        self.progress.reached = None;
        if let Some(a) = self.attempt.as_mut() {
            a.end.apart = true;
        }
    }

    pub(super) fn on_charge(&mut self, attempts: u32, step_backs: u32) {
        self.budget.charged = attempts;
        self.budget.step_backs = step_backs;
        let Some(a) = self.attempt.as_mut() else {
            return;
        };
        if a.end.settled {
            // A start that failed before its launch: the attempt before it was charged already.
            return;
        }
        a.end.settled = true;
        if a.end.guard_lost {
            self.budget.own_deaths = self.budget.own_deaths.saturating_add(1);
        }
        if let Some(d) = a.end.diagnosis.clone() {
            if self.budget.failures.len() >= FAILURES {
                self.budget.failures.remove(0);
            }
            self.budget.failures.push(PastFailure {
                attempt: a.no,
                diagnosis: d,
                trained: a.trained(),
            });
        }
    }
}
