//! One row of the rulebook.

use super::class::{Class, Family};
use super::nature::{Kind, Weight};
use crate::record::Action;

/// A pattern for a line: it holds one of these texts and matches the expression, if there is one. Case does not matter to either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Texts that are looked for first, among those of all rows at once; `|` stands between them.
    pub holds: &'static str,
    /// Regular expression over bytes; empty: the text is enough.
    pub regex: &'static str,
}

/// A class of failures.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The class.
    pub class: Class,
    /// Its family.
    pub family: Family,
    /// Its stable code.
    pub code: &'static str,
    /// What happened, in a few words.
    pub meaning: &'static str,
    /// Its nature.
    pub kind: Kind,
    /// The answer to a first occurrence; `None`: it is only reported.
    pub action: Option<Action>,
    /// Strength of a line of this class beside lines of others.
    pub tier: Weight,
    /// A checkpoint may be the cause.
    pub blames_checkpoint: bool,
    /// A relaunch after it costs a retry.
    pub costs_retry: bool,
    /// Numbers of the driver's Xid messages of this class.
    pub xids: &'static [u32],
    /// Patterns that count anywhere in the output.
    pub lines: &'static [Line],
    /// Texts that count only in the line that ends a traceback, case as written.
    pub errors: &'static [&'static str],
    /// What tells the class if no line does.
    pub told_by: Option<&'static str>,
    /// The next thing for a person to do.
    pub advice: &'static str,
}
