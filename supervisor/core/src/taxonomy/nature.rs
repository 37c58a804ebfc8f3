//! Nature and strength of a class, in the words of the rulebook. The build script reads them too.

use serde::Deserialize;

/// Nature of a class of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The tier of an entry that names none.
    #[must_use]
    pub fn tier(self) -> Weight {
        match self {
            Self::Cascade => Weight::Symptom,
            Self::Report => Weight::Report,
            Self::Transient | Self::Deterministic | Self::Hardware | Self::Operator | Self::Unclear => Weight::Cause,
        }
    }

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

/// Strength of a clue; the smallest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// The kernel, the driver, the memory of the machine.
    Machine,
    /// A cause by itself.
    Cause,
    /// A cause if no other is known: mostly it follows from one.
    Effect,
    /// Follows from the end of another.
    Symptom,
    /// A runtime that gives up because of what it printed before.
    Abort,
    /// A warning, or the end of what was retried.
    Hint,
    /// Ends no run.
    Report,
}
