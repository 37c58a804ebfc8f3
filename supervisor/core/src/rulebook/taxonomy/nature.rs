//! Kinds and weights of failure classes, as named in the rulebook. The build script uses them too.

use serde::Deserialize;

/// Kind of a failure class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A restart is expected to help.
    Transient,
    /// A restart fails in the same way.
    Deterministic,
    /// A restart on another node, or after a reset, is expected to help.
    Hardware,
    /// A symptom of the death of another process.
    Cascade,
    /// Caused by the operator or the scheduler.
    Operator,
    /// A second signal is needed.
    Unclear,
    /// Reported; it ends no run.
    Report,
}

impl FailureKind {
    /// The default tier of an entry.
    #[must_use]
    pub fn tier(self) -> Weight {
        match self {
            Self::Cascade => Weight::Symptom,
            Self::Report => Weight::Report,
            Self::Transient | Self::Deterministic | Self::Hardware | Self::Operator | Self::Unclear => Weight::Cause,
        }
    }

    /// The letter in the table.
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

/// Number of failures at one step that end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndsAfter {
    /// The answer decides.
    #[default]
    Answer,
    /// This many times, unless the user changed the answer.
    Times(u32),
    /// A repetition proves nothing; only the retry limit ends the run.
    Retries,
}

/// What else the logs must show for a refinement to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondSignal {
    /// No step was finished, and another process holds most of the GPU memory.
    GpuHeldByAnother,
    /// No running process holds the missing GPU memory.
    GpuHeldByNobody,
    /// Training began, and no step was finished.
    FirstStep,
    /// The files were saved with another world size.
    OtherWorldSize,
    /// The line names a path inside a saved step.
    InsideStep,
    /// A preemption notice came shortly before.
    NodePreempted,
    /// The trainer asked again for the GPUs of the lost node.
    GpusMissing,
    /// A node was lost.
    NodeLost,
    /// An inference engine says that it exits because of this exception.
    EndsEngine,
    /// A health probe of the engines failed as well.
    ProbeFailed,
    /// The line names one node of several.
    NamesNode,
}

/// Weight of a clue; the smallest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// From the kernel, the driver or the machine's memory.
    Machine,
    /// A cause on its own.
    Cause,
    /// A cause if no other is known; usually a consequence of one.
    Effect,
    /// Follows from the end of another process.
    Symptom,
    /// A runtime aborted because of an earlier message.
    Abort,
    /// A warning, or a failure that is retried.
    Hint,
    /// Ends no run.
    Report,
}
