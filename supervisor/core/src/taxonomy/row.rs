//! One row of the table of classes.

use crate::record::Action;

/// Nature of a class of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A restart is expected to help.
    Transient,
    /// The same again.
    Deterministic,
    /// A restart elsewhere, or after a reset.
    Hardware,
    /// A symptom of another's death.
    Cascade,
    /// A person or the scheduler.
    Operator,
    /// A second signal is needed.
    Unclear,
    /// Reported; it ends no run.
    Report,
}

impl Kind {
    /// The letter of the table.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::Transient => "T",
            Self::Deterministic => "D",
            Self::Hardware => "H",
            Self::Cascade => "C",
            Self::Operator => "O",
            Self::Unclear => "?",
            Self::Report => "–",
        }
    }
}

/// A pattern for a line: it holds one of these texts, and matches the expression where there is one. Case does not matter to either.
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
    /// Its stable name.
    pub name: &'static str,
    /// Its nature.
    pub kind: Kind,
    /// The answer to a first occurrence; `None`: it is only reported.
    pub action: Option<Action>,
    /// Patterns that count anywhere in the output.
    pub lines: &'static [Line],
    /// Texts that count only in the line that ends a traceback, case as written.
    pub errors: &'static [&'static str],
    /// A line of this class.
    pub example: &'static str,
    /// A line that looks like it and is none.
    pub lookalike: &'static str,
    /// The source of the answer where no line has it.
    pub told_by: Option<&'static str>,
    /// The next thing for a person to do.
    pub advice: &'static str,
}

/// A line that holds this text.
pub(super) const fn holds(text: &'static str) -> Line {
    Line { holds: text, regex: "" }
}

/// A line that holds this text and matches.
pub(super) const fn line(holds: &'static str, regex: &'static str) -> Line {
    Line { holds, regex }
}

/// A row without patterns.
pub(super) const fn class(name: &'static str, kind: Kind, action: Option<Action>, advice: &'static str) -> Row {
    Row {
        name,
        kind,
        action,
        lines: &[],
        errors: &[],
        example: "",
        lookalike: "",
        told_by: None,
        advice,
    }
}

impl Row {
    /// The same with patterns for lines.
    pub(super) const fn lines(mut self, lines: &'static [Line]) -> Self {
        self.lines = lines;
        self
    }

    /// The same with texts that end a traceback.
    pub(super) const fn errors(mut self, errors: &'static [&'static str]) -> Self {
        self.errors = errors;
        self
    }

    /// The same with a line of the class, and one that looks like it and is none.
    pub(super) const fn examples(mut self, example: &'static str, lookalike: &'static str) -> Self {
        self.example = example;
        self.lookalike = lookalike;
        self
    }

    /// The same with the source of the answer, where no line has it or lines alone do not do.
    pub(super) const fn told_by(mut self, source: &'static str) -> Self {
        self.told_by = Some(source);
        self
    }
}
