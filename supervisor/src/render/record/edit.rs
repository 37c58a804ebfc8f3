//! Changes under the checkpoint root, as text.

use super::FOREIGN;
use crate::render::{count, one_line};
use supervise_core::checkpoint::kind::{is_older, is_own};
use supervise_core::checkpoint::reshard::ReshardedStep;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::DiskEdit;

/// A change under the checkpoint root, as text.
#[must_use]
pub fn edit_words(edit: &DiskEdit) -> String {
    match edit {
        DiskEdit::MoveAside { from, why, .. } => format!("moved aside: {from} ({why})"),
        DiskEdit::PartAside { from, entry, why } => format!("moved aside: {from}/{entry} ({why})"),
        DiskEdit::WriteTracker { step } => format!("the tracker file names step {step}"),
        DiskEdit::RemoveTracker => "the tracker file is removed".to_owned(),
        DiskEdit::SetFrequencies => "recover_info says how often to save, as the configuration does".to_owned(),
        DiskEdit::PutBack { from } if is_own(from) => format!("LATEST names {from}, which is there already"),
        DiskEdit::PutBack { from } if is_older(from) => format!("LATEST goes aside: the trainer then reads {from}"),
        DiskEdit::PutBack { from } => format!("put back, as a whole: {from}"),
        DiskEdit::Reshard(cut) => format!(
            "{} is cut anew, from {} to {}; as it is it goes aside",
            cut.ckpt,
            count(cut.from.into(), "rank"),
            cut.to
        ),
        DiskEdit::EndReshard(cut) => format!("what was begun to cut {} anew is ended", cut.ckpt),
    }
}

/// The same with the reason why a step is not the resume point, which says more than its being newer.
#[must_use]
pub fn edit_because(edit: &DiskEdit, reasons: &[Reason]) -> String {
    let DiskEdit::MoveAside { from, .. } = edit else {
        return edit_words(edit);
    };
    let prefix = format!("{from} is ");
    let said = reasons
        .iter()
        .filter(|r| r.code != "newest_whole")
        .find_map(|r| r.text.strip_prefix(&prefix));
    said.map_or_else(
        || edit_words(edit),
        |why| format!("moved aside: {from} ({})", one_line(why, FOREIGN)),
    )
}

pub(super) fn derived(derived: &ReshardedStep) -> String {
    let cut = &derived.of;
    let kept = derived
        .kept
        .as_ref()
        .map_or_else(String::new, |at| format!("; the original is in {at}"));
    format!(
        "{} was cut anew, from {} to {}: every tensor of the model and of the optimizer is what it was{kept}",
        cut.ckpt,
        count(cut.from.into(), "rank"),
        cut.to
    )
}
