//! Interrupted reshards.

use super::Deciding;
use crate::journal::reason::Reason;
use crate::journal::record::{ActKind, Decision, DiskEdit};
use crate::spec::ResumeIntent;

impl Deciding<'_> {
    /// Finishes an interrupted reshard before anything is chosen: between its two renames a scan may not see the step
    /// at all. The choice may then be another step, so no new reshard is started here.
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

    /// Chooses an older step if reading all bytes showed that this one is damaged, unless the operator named it.
    pub(super) fn leaves_what_was_to_be_cut(&mut self, found: &Reason) -> bool {
        let asked = self.spec.policy.start.from.is_some() || matches!(self.spec.resume, ResumeIntent::Path { .. });
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
