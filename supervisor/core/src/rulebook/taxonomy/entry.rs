//! One row of the rulebook.

use super::class::{Class, Family};
use super::nature::{EndsAfter, FailureKind, SecondSignal, Weight};
use crate::id::Ms;
use crate::rulebook::action::FailureAction;

/// A pattern for a line: it holds one of these texts and matches the expression, if there is one. Case does not matter to either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePattern {
    /// Texts that are looked for first, among those of all rows at once; `|` stands between them.
    pub holds: &'static str,
    /// Regular expression over bytes; empty: the text is enough.
    pub regex: &'static str,
}

/// A second signal that makes a line of one class a failure of another, or changes the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refinement {
    /// The second signal.
    pub when: SecondSignal,
    /// The class that the failure gets.
    pub class: Class,
    /// The answer that it gets.
    pub action: FailureAction,
}

/// A class of failures.
#[derive(Debug, Clone, Copy)]
pub struct RulebookEntry {
    /// The class.
    pub class: Class,
    /// Its family.
    pub family: Family,
    /// Its stable code.
    pub code: &'static str,
    /// What happened, in a few words.
    pub meaning: &'static str,
    /// Its nature.
    pub kind: FailureKind,
    /// The answer to a first occurrence; `None`: it is only reported.
    pub action: Option<FailureAction>,
    /// The answer to a first occurrence under `supervise run`, if it differs: nobody asked for a signal from outside, and a cluster
    /// that lost a machine may get it back.
    pub supervised_action: Option<FailureAction>,
    /// The shortest pause before a relaunch: a service asked for patience.
    pub pause: Ms,
    /// Strength of a line of this class beside lines of others.
    pub tier: Weight,
    /// A checkpoint may be the cause.
    pub blames_checkpoint: bool,
    /// A relaunch after it costs a retry.
    pub costs_retry: bool,
    /// How many failures at one step end a run.
    pub ends_after: EndsAfter,
    /// The first that applies changes the class or the answer.
    pub refinements: &'static [Refinement],
    /// Numbers of the driver's Xid messages of this class.
    pub xids: &'static [u32],
    /// Patterns that count anywhere in the output.
    pub lines: &'static [LinePattern],
    /// Texts that count only in the line that ends a traceback, case as written.
    pub errors: &'static [&'static str],
    /// What tells the class if no line does.
    pub told_by: Option<&'static str>,
    /// The next thing for a person to do.
    pub advice: &'static str,
}
