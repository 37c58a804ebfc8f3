//! The rulebook: classes of failure, one row each, with the lines that tell it, the first answer, and what a person should do.
//!
//! It is written in `rules/*.toml`; the build script checks it and makes this table of it. The rows stand in order of precedence: if
//! two patterns match one line, the class of the earlier row counts. The kernel and the scheduler come before memory and disks, these
//! before checkpoints and programs, and communication comes last because it mostly tells of another's death.

mod class;
mod entry;
mod nature;

pub use class::{Class, FailureClass, Family};
pub use entry::{LinePattern, Refinement, RulebookEntry};
pub use nature::{EndsAfter, FailureKind, SecondSignal, Weight};

use crate::id::Ms;
use crate::rulebook::action::FailureAction;

/// The rows, in order of precedence.
static ROWS: &[RulebookEntry] = &include!(concat!(env!("OUT_DIR"), "/rulebook.rs"));

/// All rows, in order of precedence.
pub fn rows() -> impl Iterator<Item = &'static RulebookEntry> {
    ROWS.iter()
}

/// The answer to a first occurrence. A class that this version does not know gets another try after a pause: a false stop costs
/// more than a false retry. So does one that is only reported, if nothing else tells why an attempt ended.
#[must_use]
pub fn action(class: &FailureClass) -> FailureAction {
    class
        .row()
        .and_then(|r| r.action)
        .unwrap_or(FailureAction::RelaunchLater)
}

/// The class of an error of NVIDIA's driver; `None` for those that are no failure or follow from another.
#[must_use]
pub fn class_of_xid(number: u32) -> Option<Class> {
    let fails = |r: &&RulebookEntry| !matches!(r.kind, FailureKind::Cascade | FailureKind::Report);
    rows().filter(fails).find(|r| r.xids.contains(&number)).map(|r| r.class)
}

/// The letter of an action.
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
