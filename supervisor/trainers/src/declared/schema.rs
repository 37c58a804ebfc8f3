//! What a declaration says, after it was checked.

use super::pattern::NamePattern;
use regex::Regex;
use supervise_core::checkpoint::StateKind;

#[derive(Debug)]
pub(super) enum StepNames {
    Dirs(Vec<NamePattern>),
    /// One file that every save overwrites.
    InPlace(String),
}

#[derive(Debug)]
pub(super) struct DeclaredSteps {
    pub(super) names: StepNames,
    /// Names that the trainer takes for steps.
    pub(super) foreign_start: Option<String>,
    pub(super) foreign_has: Option<Regex>,
    /// A name that a step has until its save ends.
    pub(super) unfinished: Option<NamePattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredRole {
    pub(super) name: String,
    /// Only asked for if another step has it.
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) enum DeclaredFiles {
    Names(Vec<NamePattern>),
    /// Directories whose files are a set; `None` is the step itself.
    Sets(Vec<Option<NamePattern>>),
    /// The step is a file.
    Itself,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartFormat {
    Torch,
    Dcp,
    MegatronDist,
    Weights,
    Safetensors,
    Json,
    Pickle,
    Text,
}

impl PartFormat {
    pub(super) const ALL: [(&'static str, Self); 8] = [
        ("torch", Self::Torch),
        ("dcp", Self::Dcp),
        ("megatron_dist", Self::MegatronDist),
        ("weights", Self::Weights),
        ("safetensors", Self::Safetensors),
        ("json", Self::Json),
        ("pickle", Self::Pickle),
        ("text", Self::Text),
    ];

    pub(super) fn is_set(self) -> bool {
        matches!(self, Self::Dcp | Self::MegatronDist | Self::Weights)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartNeed {
    Always,
    /// If another finished step has it.
    Sibling,
    Optional,
}

/// What the trainer does without a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenMissing {
    Crash,
    /// It goes on and begins that state again.
    Silent,
    /// It begins at step 0.
    SilentFresh,
    /// It takes an older step.
    Skip,
    /// It ends with exit code 0.
    ExitsZero,
}

impl WhenMissing {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Crash => "a resume would fail",
            Self::Silent => "a resume would silently reset this state",
            Self::SilentFresh => "a resume would silently start at step 0",
            Self::Skip => "a resume would take an older step and say nothing",
            Self::ExitsZero => "a resume would end with exit code 0",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldName {
    pub(super) name: String,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct DeclaredPart {
    pub(super) name: String,
    pub(super) roles: Vec<DeclaredRole>,
    pub(super) files: DeclaredFiles,
    pub(super) formats: Vec<PartFormat>,
    pub(super) need: PartNeed,
    pub(super) missing: WhenMissing,
    pub(super) lost: Vec<StateKind>,
    /// Names that its content must begin with.
    pub(super) holds: Vec<HeldName>,
    /// Its content must begin with the same names as in other finished steps.
    pub(super) as_sibling: bool,
    /// The key of the number in it that must be the step.
    pub(super) step_key: Option<String>,
    pub(super) never_saved: Vec<StateKind>,
    pub(super) imports: Vec<String>,
}

/// What shows that a save has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FinishMark {
    Tracker,
    File(String),
    Rename,
    Parts,
}

/// What the trainer does if its tracker is missing or unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrackerFallback {
    Fresh,
    FreshFrom(String),
    Crash,
    ExitsZero,
    Highest,
}

impl TrackerFallback {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Fresh => "the trainer would begin at step 0".to_owned(),
            Self::FreshFrom(key) => format!("the trainer would begin from {key}"),
            Self::Crash => "the trainer would fail at its start".to_owned(),
            Self::ExitsZero => "the trainer would end with exit code 0".to_owned(),
            Self::Highest => "the trainer would take the highest step".to_owned(),
        }
    }
}

#[derive(Debug)]
pub(super) struct DeclaredTracker {
    /// Kept for the life of the process, like the names of every adapter.
    pub(super) file: &'static str,
    pub(super) text: NamePattern,
    /// Other texts that are no mistake.
    pub(super) also: Vec<String>,
    pub(super) missing: TrackerFallback,
    pub(super) garbage: TrackerFallback,
}

#[derive(Debug, Default)]
pub(super) struct DeclaredResume {
    pub(super) at: Vec<String>,
    pub(super) fresh: Vec<String>,
    pub(super) strip: Vec<String>,
    pub(super) script: Option<String>,
}

/// What a line of output means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredLine {
    pub(super) means: String,
    pub(super) has_step: bool,
}

/// A line's patterns.
#[derive(Debug)]
pub(super) struct LineRule {
    pub(super) line: DeclaredLine,
    pub(super) pattern: Regex,
    pub(super) not_if: Option<Regex>,
}

#[derive(Debug, Default)]
pub(super) struct DeclaredCommand {
    /// Words of the command in order, one list for each way to start the trainer; `*` matches within a word.
    pub(super) any: Vec<Vec<String>>,
    pub(super) needs: Vec<String>,
}
