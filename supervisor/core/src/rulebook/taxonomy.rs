//! The rulebook: one row per failure class, with the patterns that match it, the first answer, and advice for the operator.
//!
//! The build script checks `rules/*.toml` and compiles them into this table, in order of precedence: if two patterns match a line, the
//! earlier class wins. Kernel and scheduler come before memory and disks, these before checkpoints and programs; communication comes
//! last because it mostly reports the death of another process.

mod class;
mod entry;
mod nature;

pub use class::{Class, FailureClass, Family};
pub use entry::{LinePattern, Refinement, RulebookEntry};
pub use nature::{EndsAfter, FailureKind, SecondSignal, Weight};

use crate::id::Ms;
use crate::rulebook::action::FailureAction;

static ROWS: &[RulebookEntry] = &include!(concat!(env!("OUT_DIR"), "/rulebook.rs"));

/// All rows, in order of precedence.
pub fn rows() -> impl Iterator<Item = &'static RulebookEntry> {
    ROWS.iter()
}

/// The answer to a first occurrence. A class unknown to this version is retried after a pause: a false stop costs more than a false
/// retry. So is a class that is only reported, if nothing else explains the end of an attempt.
#[must_use]
pub fn action(class: &FailureClass) -> FailureAction {
    class
        .row()
        .and_then(|r| r.action)
        .unwrap_or(FailureAction::RelaunchLater)
}

/// The class of an NVIDIA Xid error; `None` for those that are no failure or follow from another.
#[must_use]
pub fn class_of_xid(number: u32) -> Option<Class> {
    let fails = |r: &&RulebookEntry| !matches!(r.kind, FailureKind::Cascade | FailureKind::Report);
    rows().filter(fails).find(|r| r.xids.contains(&number)).map(|r| r.class)
}

/// The letter of an action in tables.
#[must_use]
pub fn letter(action: FailureAction) -> &'static str {
    match action {
        FailureAction::Relaunch => "R",
        FailureAction::RelaunchLater => "Rb",
        FailureAction::RelaunchOnce => "R1",
        FailureAction::Stop => "S",
        FailureAction::FallBack => "F",
        FailureAction::Node => "N",
        FailureAction::Wait => "W",
        FailureAction::Kill => "K",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rulebook_has_its_classes() {
        assert!(rows().count() >= 92, "{}", rows().count());
    }

    #[test]
    fn an_unknown_class_is_tried_again_later() {
        assert_eq!(action(&"made.up".into()), FailureAction::RelaunchLater);
    }
}
