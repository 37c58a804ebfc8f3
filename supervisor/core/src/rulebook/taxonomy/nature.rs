//! Nature and strength of a class, in the words of the rulebook. The build script reads them too.

use serde::Deserialize;

/// Nature of a class of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
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

impl FailureKind {
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

/// How many failures at one step end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndsAfter {
    /// The answer decides.
    #[default]
    Answer,
    /// This many times, unless the user changed the answer.
    Times(u32),
    /// A repetition proves nothing: only the limit of retries ends the run.
    Retries,
}

/// What else the logs must show for a refinement to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondSignal {
    /// No step was done, and another process holds most of the GPU's memory.
    GpuHeldByAnother,
    /// No living process holds the GPU's memory that is missing.
    GpuHeldByNobody,
    /// The training began, and no step was finished.
    FirstStep,
    /// The files are those of another number of ranks.
    OtherWorldSize,
    /// The line names a path inside a saved step.
    InsideStep,
    /// A notice that the node is taken away came shortly before.
    NodePreempted,
    /// The trainer asked again for the GPUs of the node that is gone.
    GpusMissing,
    /// A node was lost.
    NodeLost,
    /// An inference engine says that it ends because of this exception.
    EndsEngine,
    /// A health probe of the engines failed as well.
    ProbeFailed,
    /// The line names one node of several.
    NamesNode,
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
