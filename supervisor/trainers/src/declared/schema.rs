//! What a declaration says, after it was checked.

use super::pattern::NamePattern;
use regex::Regex;
use supervise_core::checkpoint::StateKind;
use supervise_core::event::scan::RuleKind;

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
    /// A file of a step that other trainers' steps do not have.
    pub(super) recognized_by: Option<String>,
    /// The trainer takes the step that its command names, and none by itself.
    pub(super) is_given: bool,
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
    /// Taken out for a fresh start; with `=VALUE` only if the command says that value.
    pub(super) strip_fresh: Vec<String>,
    /// Words with which a resume is not complete.
    pub(super) guard: Vec<String>,
    /// Name and value of a variable.
    pub(super) script: Option<(String, String)>,
    /// The first training record after a resume from N is N+1.
    pub(super) first_step_confirms: bool,
}

/// How a command takes settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WordStyle {
    /// `--key value`, `--key=value`.
    #[default]
    Flags,
    /// `--key=value` only.
    FlagsEqual,
    /// `key=value`.
    Pairs,
    None,
}

/// A place where a setting may be said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SettingSource {
    /// Keys whose values are joined as parts of a path; usually one.
    pub(super) keys: Vec<String>,
    /// Values for keys that are not said; empty: there is none.
    pub(super) defaults: Vec<String>,
    /// Appended to the path.
    pub(super) then: Option<String>,
    /// A variable of the environment, instead of keys.
    pub(super) env: Option<String>,
    /// Added to the number.
    pub(super) add: i64,
}

/// A setting that decides whether the run may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingRule {
    pub(super) key: String,
    pub(super) values: Vec<String>,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct DeclaredSettings {
    pub(super) root: Vec<SettingSource>,
    pub(super) every: Vec<SettingSource>,
    pub(super) last: Vec<SettingSource>,
    pub(super) keep: Vec<SettingSource>,
    pub(super) world: Vec<SettingSource>,
    pub(super) same_as_root: Vec<String>,
    /// Refused unless the setting is one of these.
    pub(super) must: Vec<SettingRule>,
    /// Refused if the setting is one of these.
    pub(super) refuse: Vec<SettingRule>,
    pub(super) store_outside: bool,
}

/// What a line of output means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredLine {
    pub(super) means: String,
    pub(super) has_step: bool,
    pub(super) kind: RuleKind,
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
    pub(super) style: WordStyle,
    /// The flag that names the trainer's YAML.
    pub(super) config: Option<String>,
}
