//! A person sends the run back to a step.

use super::Deciding;
use crate::id::Step;
use crate::reason::Reason;
use crate::record::Outcome;
use crate::state::Mode;

impl Deciding<'_> {
    /// The next start obeys the wish; this term was begun to write it down, and ends with that.
    pub(super) fn on_roll_back(&mut self, by: &str, to: Step) {
        let is_idle = matches!(self.s.mode, Mode::Idle | Mode::Choosing) && self.s.live().is_none();
        if !is_idle {
            return;
        }
        let text =
            format!("{by} sent the run back to step {to}: its next start resumes from there, and newer steps go aside");
        self.finish(Outcome::Stopped, vec![Reason::new("rolled_back", text)]);
    }
}
