//! The classes of failure: one row each, with the lines that tell it, the first answer, and what a person should do.
//!
//! The rows stand in order of precedence: where two patterns match one line, the class of the earlier row counts. The kernel and
//! the scheduler come before memory and disks, these before checkpoints and programs, and communication comes last, for it mostly
//! tells of another's death.

mod checkpoint;
mod comm;
mod gpu;
mod host;
mod node;
mod program;
mod row;
mod runtime;
mod sched;

pub use row::{Kind, Line, Row};

use crate::record::Action;

/// The files of the table, in order of precedence.
const PARTS: [&[Row]; 8] = [
    gpu::ROWS,
    node::ROWS,
    sched::ROWS,
    host::ROWS,
    checkpoint::ROWS,
    program::ROWS,
    runtime::ROWS,
    comm::ROWS,
];

/// All rows, in order of precedence.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    PARTS.into_iter().flatten()
}

/// The row of a class.
#[must_use]
pub fn row(class: &str) -> Option<&'static Row> {
    rows().find(|r| r.name == class)
}

/// The answer to a first occurrence. A class that this version does not know gets another try after a pause: a false stop costs
/// more than a false retry. So does one that is only reported, where nothing else tells why an attempt ended.
#[must_use]
pub fn action(class: &str) -> Action {
    row(class).and_then(|r| r.action).unwrap_or(Action::RelaunchLater)
}

/// Symptoms: never a root where anything else is known.
#[must_use]
pub fn is_cascade(class: &str) -> bool {
    row(class).is_some_and(|r| r.kind == Kind::Cascade)
}

/// The letter of an action.
#[must_use]
pub fn letter(action: Action) -> &'static str {
    match action {
        Action::Relaunch => "R",
        Action::RelaunchLater => "Rb",
        Action::RelaunchOnce => "R1",
        Action::Stop => "S",
        Action::FallBack => "F",
        Action::Node => "N",
        Action::Wait => "W",
        Action::Kill => "K",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_class_has_one_row() {
        let names: BTreeSet<&str> = rows().map(|r| r.name).collect();
        assert_eq!(names.len(), rows().count());
        assert!(names.len() >= 92, "{}", names.len());
    }

    #[test]
    fn a_row_has_patterns_and_examples_or_says_what_tells_it() {
        for r in rows() {
            let patterns = !r.lines.is_empty() || !r.errors.is_empty();
            assert!(patterns || r.told_by.is_some(), "{}", r.name);
            assert_eq!(patterns, !r.example.is_empty() && !r.lookalike.is_empty(), "{}", r.name);
            assert!(r.advice.ends_with('.'), "{}", r.name);
        }
    }

    #[test]
    fn an_unknown_class_is_tried_again_later() {
        assert_eq!(action("made.up"), Action::RelaunchLater);
        assert!(!is_cascade("made.up"));
    }
}
