//! Operator requests for the next start: roll back to a step, or clear a final failure.

use super::Deciding;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::RunOutcome;
use crate::state::RunMode;

impl Deciding<'_> {
    pub(super) fn on_roll_back(&mut self, by: &str, to: Step) {
        let text =
            format!("{by} sent the run back to step {to}: its next start resumes from there, and newer steps go aside");
        self.end_with_the_wish(Reason::new("rolled_back", text));
    }

    pub(super) fn on_resume(&mut self, by: &str) {
        let text = format!("{by} lets the run go on, with its next start");
        self.end_with_the_wish(Reason::new("may_go_on", text));
    }

    /// Ends a term that was only started to record the request, which the next start obeys.
    fn end_with_the_wish(&mut self, reason: Reason) {
        let is_idle = matches!(self.s.mode, RunMode::Idle | RunMode::Choosing) && self.s.live().is_none();
        if is_idle {
            self.finish(RunOutcome::Stopped, vec![reason]);
        }
    }
}
