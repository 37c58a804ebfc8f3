//! Steps that are cut anew for another number of ranks, where that was cut short.

use super::Deciding;
use crate::journal::reason::Reason;
use crate::journal::record::{ActKind, Decision, DiskEdit};
use crate::spec::ResumeIntent;

impl Deciding<'_> {
    /// Between two renames a step may stand nowhere that a scan looks: whatever was begun is ended before anything is chosen. What is
    /// chosen then need not be a reshard again, so that nothing is cut for it.
    pub(super) fn ends_a_reshard(&mut self) -> bool {
        let Some(cut) = self.s.disk.cutting.clone() else {
            return false;
        };
        let text = format!(
            "{} was being cut anew for {} ranks, and that was not seen to end",
            cut.ckpt, cut.to
        );
        self.act(
            ActKind::Arrange(vec![DiskEdit::EndReshard(cut)]),
            vec![Reason::new("reshard_cut_short", text)],
        );
        true
    }

    /// The step is damaged, as the pass over all its bytes found: an older one is chosen, unless a person named this one.
    pub(super) fn leaves_what_was_to_be_cut(&mut self, found: &Reason) -> bool {
        let asked = self.spec.policy.from.is_some() || matches!(self.spec.resume, ResumeIntent::Path { .. });
        let Some(ckpt) = self.s.disk.cutting.as_ref().map(|cut| cut.ckpt.clone()) else {
            return false;
        };
        if asked || self.s.disk.distrusted.contains(&ckpt) {
            return false;
        }
        let text = format!("{ckpt} is damaged ({}): an older step is looked for", found.text);
        self.decided(Decision::Distrust { ckpt }, vec![Reason::new("damaged_when_cut", text)]);
        true
    }
}
