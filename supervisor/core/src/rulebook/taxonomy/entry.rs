//! Row types of the rulebook.

use super::class::{Class, Family};
use super::nature::{EndsAfter, FailureKind, SecondSignal, Weight};
use crate::id::Ms;
use crate::rulebook::action::FailureAction;

/// Pattern for a line: one of these texts, and the expression if there is one. Both ignore case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePattern {
    /// Texts separated by `|`, searched first, for all rows at once.
    pub holds: &'static str,
    /// Regular expression on bytes; empty if the text is enough.
    pub regex: &'static str,
}

/// Second signal that changes the class of a failure or the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refinement {
    /// The second signal.
    pub when: SecondSignal,
    /// Refined class.
    pub class: Class,
    /// Refined answer.
    pub action: FailureAction,
}

/// A failure class.
#[derive(Debug, Clone, Copy)]
pub struct RulebookEntry {
    /// The class.
    pub class: Class,
    /// First part of the code.
    pub family: Family,
    /// Stable code.
    pub code: &'static str,
    /// What happened, in a few words.
    pub meaning: &'static str,
    /// Kind of failure.
    pub kind: FailureKind,
    /// The answer to a first occurrence; `None`: it is only reported.
    pub action: Option<FailureAction>,
    /// The answer under `supervise run`, if it differs: there, nobody asked for a signal from outside, and a cluster may get a lost
    /// machine back.
    pub supervised_action: Option<FailureAction>,
    /// Minimum pause before a relaunch, for services that asked to wait.
    pub pause: Ms,
    /// Weight of its lines against lines of other classes.
    pub tier: Weight,
    /// Whether a checkpoint may be the cause.
    pub blames_checkpoint: bool,
    /// Whether a relaunch after it is charged as a retry.
    pub costs_retry: bool,
    /// Number of failures at one step that end a run.
    pub ends_after: EndsAfter,
    /// Refinements; the first that applies counts.
    pub refinements: &'static [Refinement],
    /// Xid numbers of this class.
    pub xids: &'static [u32],
    /// Patterns that count anywhere in the output.
    pub lines: &'static [LinePattern],
    /// Case-sensitive texts that count only in the last line of a traceback.
    pub errors: &'static [&'static str],
    /// How the class is recognized if not by a line.
    pub told_by: Option<&'static str>,
    /// What the operator should do next.
    pub advice: &'static str,
}
