//! Processes that stay after the training is done: a bounded wait, then success.
//!
//! Processes that neither compute nor print after the end wait for something that will not happen, such as a peer that
//! left its group. Those that work are left alone: uploads or evaluations after the last step belong to the user.

use super::Deciding;
use super::stall_limits::StallLimits;
use crate::id::Ms;
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, NoticeKind, RunOutcome};
use crate::spec::script::ScriptNews;
use crate::state::Attempt;

/// Time that such processes get, or less if a step takes less.
const STAY: Ms = Ms::secs(600);
/// Processes that neither computed nor printed for this long are still.
const STILL: Ms = Ms::secs(30);

impl Deciding<'_> {
    /// Returns true if the trainer announced its end, or its last planned step is proven.
    pub(super) fn is_over(&self, a: &Attempt) -> bool {
        StallLimits::new(&self.s, self.spec, a).is_over()
    }

    /// Returns true if the training was over when we stopped it, so that the exit status says nothing.
    pub(super) fn was_done(&self, a: &Attempt) -> bool {
        a.outstayed() && (self.is_over(a) || a.output.noticed.contains_key(&NoticeKind::DoneButStays))
    }

    pub(super) fn with_the_script(&self, outcome: RunOutcome) -> RunOutcome {
        let script = self.s.attempt.as_ref().and_then(|a| a.output.script.as_ref());
        match (outcome, script.and_then(ScriptNews::left_undone)) {
            (RunOutcome::Finished { step }, Some(why)) => RunOutcome::ScriptUnfinished { step, why },
            (outcome, _) => outcome,
        }
    }

    /// Stops processes that stay. Returns false if there are none, or not for long enough.
    pub(super) fn end_what_stays(&mut self) -> bool {
        let Some(a) = self.s.live().filter(|a| self.is_over(a)) else {
            return false;
        };
        let since = self.e.at.since(a.training.last_progress);
        let still = self.e.at.since(a.training.last_active);
        let limit = STAY.0.min(self.spec.policy.stall.minimum.0);
        if since.0 < limit || still < STILL || self.save_in_progress() {
            return false;
        }
        let text = format!(
            "training finished {} s ago but its processes did not exit; stopping them (not a failure)",
            since.0 / 1000
        );
        let reason = Reason::new(NoticeKind::DoneButStays.code(), text.clone());
        self.notice(NoticeKind::DoneButStays, text, reason.clone());
        self.stop(AfterStop::Diagnose, true, vec![reason]);
        true
    }
}
