//! Steps that are cut anew for another number of ranks, where that was cut short.

use super::Deciding;
use crate::reason::Reason;
use crate::record::{ActKind, DiskEdit};

impl Deciding<'_> {
    /// Between two renames a step may stand nowhere that a scan looks: whatever was begun is ended before anything is chosen. What is
    /// chosen then need not be a reshard again, so that nothing is cut for it.
    pub(super) fn ends_a_reshard(&mut self) -> bool {
        let Some(cut) = self.s.cutting.clone() else {
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
}
