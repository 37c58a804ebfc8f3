//! The questions each trainer adapter answers, so that the rest of the program need not know the trainer.
//!
//! Does this run belong to it (`is_called`, `is_meant`), what does its configuration say (`read`), what do its output
//! lines mean (`rules`), which steps exist and how good is each (`tracker`), which argv and environment start it
//! exactly there (`arrange`), and what should the operator know before the launch (`preflight`).

mod in_place;
mod names;
mod payload;
pub(crate) mod save_door;

pub use in_place::InPlaceLayout;
pub use names::{TrainerNames, UserPart};
pub use payload::AdapterPayload;
pub use save_door::SaveDoor;

use crate::code::PlainCode;
use crate::kit::MetricsTool;
use crate::launch::RayMode;
use crate::read::{ReadInput, ReadOutput};
use crate::script_call::RewrittenCall;
use crate::slurm::SlurmJobs;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fmt;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ConfigTree};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, Finding, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::event::scan::ScanRule;
use supervise_core::id::Step;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::policy::DegradedPolicy;
use supervise_core::spec::script::CallOrder;
use supervise_core::spec::seen::TrainerSeen;
use supervise_core::spec::{ResumeIntent, RoleSpec, RunSpec, SavePolicy, TrainerKind};

/// The checkpoint layout a run's configuration leads us to expect. `None` means: judge the files as they are.
#[derive(Debug, Clone, Default)]
pub struct ExpectedLayout {
    pub roles: Option<Vec<RoleSpec>>,
    /// World size that will load the checkpoint.
    pub world: Option<u32>,
    /// Optimizer and schedule counters may restart: the policy allows losing them, or the run resumes from a step in
    /// another root.
    pub counts_anew: bool,
    /// Names that a checkpoint may import: `module.name`, `module.*`, `*`.
    pub trust_globals: Vec<String>,
    /// A name on the danger list does not fail a step.
    pub trust_unsafe: bool,
    /// A reported step counts although the format of its files is unknown.
    pub trust_reported: bool,
    /// UIDs, besides root and ours, that may own the files of a step.
    pub trust_owners: Vec<u32>,
    /// The step the operator named; anyone may own it.
    pub named: Option<Step>,
    /// The directory of a step that the configuration names.
    pub named_path: Option<Utf8PathBuf>,
    /// Memory limit for inspecting files, in bytes; 0 means the built-in limit.
    pub memory: u64,
    pub version: Option<String>,
    /// The only directory under the root that is a step; `None`: every directory that looks like one.
    pub only: Option<String>,
    pub own: AdapterPayload,
}

impl ExpectedLayout {
    /// Derives the expectations from a run's specification.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        Self {
            roles: Some(spec.roles.clone()),
            world: spec.world,
            counts_anew: spec.policy.degraded == DegradedPolicy::ModelOnly || from_elsewhere(spec),
            trust_globals: spec.policy.proof.trust_globals.clone(),
            trust_unsafe: spec.policy.proof.trust_unsafe,
            trust_reported: spec.policy.proof.trust_reported,
            trust_owners: spec.policy.proof.trust_owners.clone(),
            named: spec.policy.start.from,
            named_path: match &spec.resume {
                ResumeIntent::Path { path, .. } => Some(path.clone()),
                ResumeIntent::Auto | ResumeIntent::Tracker | ResumeIntent::Disabled => None,
            },
            memory: spec.policy.proof.memory,
            version: spec.trainer_version.clone(),
            only: None,
            own: AdapterPayload::default(),
        }
    }

    /// Returns true if this run may resume without its optimizer or schedule, which restarts their counters.
    pub(crate) fn loads_in_part(&self) -> bool {
        let all = |r: &RoleSpec| {
            ["optimizer", "extra"]
                .iter()
                .all(|c| r.load_contents.iter().any(|l| l == c))
        };
        let saves = |r: &RoleSpec| !r.load_wish || all(r);
        self.counts_anew || self.roles.as_ref().is_some_and(|roles| !roles.iter().all(saves))
    }
}

/// Returns true if the first resume loads a step outside the checkpoint root.
fn from_elsewhere(spec: &RunSpec) -> bool {
    match (&spec.resume, &spec.root) {
        (ResumeIntent::Path { path, .. }, Some(root)) => path.parent() != Some(root),
        _ => false,
    }
}

/// The steps under one checkpoint root, built from file facts.
pub trait StepTracker: Send {
    /// Adds one fact. Facts about different paths may arrive in any order.
    fn note(&mut self, fact: &FileFact);
    /// Lists the steps found, newest first.
    fn steps(&self) -> Vec<(CkptId, Step)>;
    /// Lists the files to inspect before the step can be proven, relative to the root.
    fn needs(&self, ckpt: &CkptId, depth: Depth) -> Vec<RequiredFile>;
    /// Judges the step by its file names and the reports so far (by path relative to the root). Without the reports
    /// that [`StepTracker::needs`] asks for, it is judged by names alone and stays unproven.
    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary;
    /// Reads the step's counters that rise from step to step, from the reports so far.
    fn marks(&self, ckpt: &CkptId, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters;
    /// Hands over steps that were proven earlier; later judgements compare with them.
    fn remember(&mut self, earlier: Vec<EarlierStep>);
    /// Returns the step's pins as last noted.
    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash>;
    /// Returns remarks that belong to no step.
    fn remarks(&self) -> Vec<String>;
    /// Returns true if an entry of this name can only be a step of this trainer.
    fn is_step_name(&self, _name: &str) -> bool {
        false
    }
    /// Drops a step (it was moved aside).
    fn forget(&mut self, ckpt: &CkptId);
    /// Name of the trainer's own pointer file, directly under the root; empty if it has none.
    fn tracker_file(&self) -> &'static str;
    /// Reads that pointer; `None` if the file is missing. Later judgements may depend on it.
    fn read_tracker(&mut self, bytes: Option<&[u8]>) -> TrackerState;
    /// Returns true if a change of the pointer may change the judgement of a step.
    fn rests_on_tracker(&self, _ckpt: &CkptId) -> bool {
        false
    }
    /// Content of the pointer that names a step.
    fn tracker_text(&self, step: Step) -> String {
        step.to_string()
    }
    /// Returns true if the trainer would take an entry of this name for a step, or fail because of it.
    fn takes_name(&self, name: &str) -> bool {
        self.is_step_name(name)
    }
}

/// Facts from the configuration that every launch needs, beyond the run's specification.
#[derive(Debug, Clone, Default)]
pub struct TrainerFacts {
    /// Our Python hook runs in the trainer's interpreter and passes it the step to resume from.
    pub hooked: bool,
    /// How many steps the user wants to retain, by the trainer's key.
    pub keep: Vec<(String, u32)>,
    /// The user's own overrides from the command line, passed before ours.
    pub settings: Vec<String>,
    pub ray: RayMode,
    /// Restarts by the trainer's own launcher, if the user set a number.
    pub retries: Option<u32>,
    /// Metrics tools that would start a new experiment at each start.
    pub trackers: Vec<MetricsTool>,
    /// Directories that the trainer does not create, with the key that names each.
    pub must_exist: Vec<(String, Utf8PathBuf)>,
    pub own: AdapterPayload,
}

/// The environment a launch happens in.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    pub env: BTreeMap<String, String>,
    pub trainer: TrainerFacts,
    /// The attempt at which the run was adopted; changes with every fresh start.
    pub began: u32,
}

impl HostFacts {
    /// Returns true if the user set a variable, in the settings or in the environment.
    #[must_use]
    pub fn is_set(&self, spec: &RunSpec, name: &str) -> bool {
        spec.env.contains_key(name) || self.env.contains_key(name)
    }
}

/// A setting injected to improve the trainer's behavior.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InjectedSetting {
    pub setting: &'static str,
    pub why: String,
    pub overrides: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl InjectedSetting {
    pub(crate) fn new(setting: &'static str, why: impl Into<String>) -> Self {
        Self {
            setting,
            why: why.into(),
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    fn is_empty(&self) -> bool {
        self.env.is_empty() && self.overrides.is_empty()
    }
}

/// A launch, as the guard needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchPlan {
    /// The command, the same for each worker.
    pub argv: Vec<String>,
    /// Environment to set, without the variables the user set.
    pub env: Vec<(String, String)>,
    pub overrides: Vec<String>,
    /// Scratch directory of the attempt: created before it starts, deleted after it ends.
    pub scratch: Option<Utf8PathBuf>,
    /// Records that identified the processes of earlier attempts: deleted before the workers start.
    pub stale_names: Option<Utf8PathBuf>,
    pub notes: Vec<String>,
    pub helps: Vec<InjectedSetting>,
    /// How to rewrite the trainer's call, if the command is a script.
    pub call: Option<CallOrder>,
}

impl LaunchPlan {
    /// Adds injected settings to the launch, except variables that the user set.
    pub(crate) fn help(&mut self, helps: Vec<InjectedSetting>, spec: &RunSpec, host: &HostFacts) {
        for mut help in helps {
            help.env.retain(|(name, _)| !host.is_set(spec, name));
            if !help.is_empty() {
                self.overrides.extend(help.overrides.iter().cloned());
                self.env.extend(help.env.iter().cloned());
                self.helps.push(help);
            }
        }
    }
}

/// A question that only the trainer's own interpreter can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asks {
    /// Why our tables do not suffice, as text.
    pub why: String,
    /// The call as it would be launched, without what a resume adds.
    pub command: Vec<String>,
    /// Arguments after the interpreter that make the trainer print its configuration with interpolations unresolved.
    pub words: Vec<String>,
    /// A third-party module or script is asked only if its file contains this word: otherwise it might train instead
    /// of answering.
    pub only_if: Option<(String, &'static str)>,
}

impl fmt::Debug for dyn TrainerAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrainerAdapter({})", self.kind().name())
    }
}

/// A trainer framework.
pub trait TrainerAdapter: Sync {
    /// Its name in journals and in a run's identity.
    fn kind(&self) -> TrainerKind;
    /// Name of its framework in the settings; several trainers may share one.
    fn framework(&self) -> &'static str;
    /// Returns true if its steps and checkpoints are understood.
    fn has_steps(&self) -> bool {
        true
    }
    /// How a command selects one of the framework's trainers, if there are several.
    fn entries(&self) -> Option<&'static str> {
        None
    }
    /// The Python package that contains it.
    fn package(&self) -> Option<&'static str> {
        None
    }
    /// Whether its package only sets variables at import, so that we can set them without importing it.
    fn imports_plainly(&self) -> bool {
        false
    }
    /// Whether defaults, keys and layouts differ between releases: then the interpreter is asked which one would run.
    fn has_releases(&self) -> bool {
        false
    }
    /// Returns true if its configuration alone, without a command, identifies the run.
    fn is_run_by_file(&self) -> bool {
        false
    }
    /// Proposes a command that starts such a configuration, with capitals for what only the user knows; `None` if
    /// unknown.
    fn proposal(&self, _tree: &ConfigTree) -> Option<Vec<String>> {
        None
    }
    /// Arguments after the interpreter that make a command print its composed configuration instead of training;
    /// `None` if it cannot be tried in advance.
    fn rehearsed(&self, _command: &[String]) -> Option<Vec<String>> {
        None
    }
    /// Why only the trainer itself can say what its configuration amounts to, and the call to ask: our tables lack
    /// its release, its configuration or its entry point. `None`: our own reading suffices.
    fn asks(&self, _input: &ReadInput<'_>) -> Option<Asks> {
        None
    }
    /// Names of the trainer and of its settings, for messages.
    fn words(&self) -> &'static TrainerNames;
    /// Prefix of its step directories in a checkpoint root; `None`: its steps have no directories of their own.
    fn step_prefix(&self) -> Option<&'static str> {
        None
    }
    /// Names of configurations that ship with its installation: not missing if found nowhere else.
    fn own_configs(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether running a launch script up to the trainer's call can show which trainer it starts.
    fn is_learnt(&self) -> bool {
        false
    }
    /// Returns true if these words, called by a script, start this trainer.
    fn starts(&self, words: &[String]) -> bool {
        self.is_called(words)
    }
    /// Programs of the framework by whose names scripts start it.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }
    /// Puts our overrides into a script's call exactly once.
    ///
    /// # Errors
    /// Why this is not the call that was learned.
    fn fill(
        &self,
        _words: &[String],
        _order: &CallOrder,
        _restarts_by_environment: bool,
    ) -> Result<RewrittenCall, String> {
        Err(format!("no call of {} was learnt", self.words().name))
    }

    /// The settings in a script's call that identify the training, as the script wrote them.
    fn call_root(&self, _words: &[String]) -> String {
        String::new()
    }

    /// Whether a command without a known call is still supervised if the settings name its trainer and checkpoint
    /// root.
    fn resumes_by_itself(&self) -> bool {
        false
    }
    /// Whether it exits on unknown configuration keys, so that it gets a copy without our block.
    fn refuses_block(&self) -> bool {
        false
    }
    /// The configuration text that a command gives to the trainer's own reader.
    fn config_in(&self, _command: &[String]) -> Option<String> {
        None
    }
    /// Returns true if this Python code starts the trainer with all its settings in the code.
    fn trains_by_code(&self, _code: &PlainCode) -> bool {
        false
    }
    /// Python to run first in an interpreter whose command does not reveal the trainer: it reports the trainer
    /// ([`seen`](Self::seen)) and may pass it the step to resume from.
    fn hook(&self, _spec: &RunSpec) -> Option<&'static str> {
        None
    }
    /// Whether a running attempt can be asked to save.
    fn save_door(&self, _spec: &RunSpec, _facts: &TrainerFacts) -> SaveDoor {
        SaveDoor::none("the command starts no trainer that can be asked")
    }
    /// Whether that Python can identify this trainer.
    fn is_seen(&self) -> bool {
        false
    }
    /// Parses the report of that Python. `known`: its report in an earlier attempt.
    fn seen(&self, _told: &str, _known: Option<&TrainerSeen>) -> Option<TrainerSeen> {
        None
    }
    /// The exception that kept that Python from seeing a trainer, if there was one.
    fn hook_failed(&self, _told: &str) -> Option<String> {
        None
    }
    /// Files in a command that may be its configuration; their content decides.
    fn configs_in(&self, command: &[String]) -> Vec<String> {
        self.config_in(command).into_iter().collect()
    }
    /// Returns true if a text is a configuration of this trainer, even a broken one. `name`: its file, for errors.
    fn is_config(&self, _text: &str, _name: &str) -> bool {
        false
    }
    /// The user's name, if it is part of the checkpoint root.
    fn user_part(&self, _root: &Utf8Path) -> Option<UserPart> {
        None
    }
    /// Whether a declaration tells what it knows.
    fn is_declared(&self) -> bool {
        false
    }
    /// The directory of a run's other state, if it is outside the checkpoint root.
    fn store_of(&self, _root: &Utf8Path) -> Option<Utf8PathBuf> {
        None
    }
    /// Returns true if a directory of this name, with these entries, can only be a step of this trainer.
    fn is_step(&self, _name: &str, _names: &[String]) -> bool {
        false
    }
    /// Whether a step may have any name, and a mark beside it shows what it is.
    fn marks_steps(&self) -> bool {
        false
    }
    /// Returns true if an entry of a checkpoint root can only be such a mark.
    fn is_mark(&self, _name: &str) -> bool {
        false
    }
    /// Returns true if a command starts one of its programs.
    fn is_called(&self, command: &[String]) -> bool;
    /// Returns true if a configuration can only belong to this trainer.
    fn is_meant(&self, composed: &ComposedConfig) -> bool;
    /// Reads what its configuration says about a run.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its key, its location and a hint.
    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>>;
    /// Rules for its output lines.
    fn rules(&self) -> Vec<ScanRule>;
    /// Derives the checkpoint layout to expect.
    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout::of(spec)
    }
    /// The layout of its checkpoint, if it keeps only one and overwrites it.
    fn in_place(&self) -> Option<&'static dyn InPlaceLayout> {
        None
    }
    /// How to recognize its Slurm jobs, if its workers are such jobs: they outlive the process that submitted them.
    fn jobs(&self, _saves: &SavePolicy) -> Option<SlurmJobs> {
        None
    }
    /// Returns true if an entry can only belong in the directory of one role of a step.
    fn is_of_role(&self, _name: &str) -> bool {
        false
    }
    /// Finding codes that only this trainer has, with the meaning of each.
    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Creates an empty tracker for a checkpoint root.
    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker>;
    /// Builds command and environment of a launch.
    ///
    /// # Errors
    /// Why the order cannot be expressed for this trainer.
    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason>;
    /// Notes for the operator before a launch.
    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding>;
}
