//! Questions that a trainer framework has to answer, so that the rest of the program need not know it.
//!
//! Is this run one of its (`is_called`, `is_meant`), what does its configuration say (`read`), what do its lines mean (`rules`), which
//! steps are there and what is each worth (`tracker`), what goes into argv and environment so that it starts exactly there (`arrange`),
//! what should a person know before the launch (`preflight`).

mod in_place;
mod names;
mod payload;

pub use in_place::InPlaceLayout;
pub use names::{TrainerNames, UserPart};
pub use payload::AdapterPayload;

use crate::code::PlainCode;
use crate::kit::MetricsTool;
use crate::launch::RayMode;
use crate::read::{ReadInput, ReadOutput};
use crate::script_call::RewrittenCall;
use crate::slurm::SlurmJobs;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ConfigTree};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, Finding, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::event::scan::ScanRule;
use supervise_core::id::Step;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::script::CallOrder;
use supervise_core::spec::seen::TrainerSeen;
use supervise_core::spec::{DegradedPolicy, ResumeIntent, RoleSpec, RunSpec, SavePolicy, TrainerKind};

/// Form of a run's checkpoints by its configuration. `None` everywhere: judge what is there.
#[derive(Debug, Clone, Default)]
pub struct ExpectedLayout {
    /// Roles that every step must hold.
    pub roles: Option<Vec<RoleSpec>>,
    /// World size that the run will load with.
    pub world: Option<u32>,
    /// Counts of optimizer and schedule may begin anew: the policy allows to lose them, or the run goes on from a step of
    /// another root, which the steps that stand here already know nothing of.
    pub counts_anew: bool,
    /// Names that a checkpoint may import: `module.name`, `module.*`, `*`.
    pub trust_globals: Vec<String>,
    /// A name on the danger list does not condemn.
    pub trust_unsafe: bool,
    /// Users beside root and our own whose files a step may hold.
    pub trust_owners: Vec<u32>,
    /// The step that a person named: it may belong to anybody.
    pub named: Option<Step>,
    /// The directory of a step that the configuration names.
    pub named_path: Option<Utf8PathBuf>,
    /// Bytes of memory that looking into files may take; 0 for what is built in.
    pub memory: u64,
    /// Version of the trainer that will load, where it is known.
    pub version: Option<String>,
    /// The one directory under the root that is a step; `None`: all that look like one.
    pub only: Option<String>,
    /// Further facts that the adapter reads from a run's specification.
    pub own: AdapterPayload,
}

impl ExpectedLayout {
    /// Expectations of any run of a trainer with steps.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        Self {
            roles: Some(spec.roles.clone()),
            world: spec.world,
            counts_anew: spec.policy.degraded == DegradedPolicy::ModelOnly || from_elsewhere(spec),
            trust_globals: spec.policy.trust_globals.clone(),
            trust_unsafe: spec.policy.trust_unsafe,
            trust_owners: spec.policy.trust_owners.clone(),
            named: spec.policy.from,
            named_path: match &spec.resume {
                ResumeIntent::Path { path, .. } => Some(path.clone()),
                ResumeIntent::Auto | ResumeIntent::Tracker | ResumeIntent::Disabled => None,
            },
            memory: spec.policy.memory,
            version: spec.trainer_version.clone(),
            only: None,
            own: AdapterPayload::default(),
        }
    }

    /// Returns true if this run may go on without its optimizer or schedule, so that their counts begin anew.
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

/// The first resume is from a step outside of the checkpoint root.
fn from_elsewhere(spec: &RunSpec) -> bool {
    match (&spec.resume, &spec.root) {
        (ResumeIntent::Path { path, .. }, Some(root)) => path.parent() != Some(root),
        _ => false,
    }
}

/// The steps under one checkpoint root, folded from file facts.
pub trait StepTracker: Send {
    /// Takes one fact in. The order of facts on different paths does not matter.
    fn note(&mut self, fact: &FileFact);
    /// Every step found, newest first.
    fn steps(&self) -> Vec<(CkptId, Step)>;
    /// The files that have to be looked into before the step can be called proven, relative to the root.
    fn needs(&self, ckpt: &CkptId, depth: Depth) -> Vec<RequiredFile>;
    /// Verdict on the step, from its names and the reports at hand (by path relative to the root). Without the reports
    /// that [`StepTracker::needs`] asks for it is judged by names alone and stays unproven.
    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary;
    /// Counters of a step that rise from step to step, from the reports at hand.
    fn marks(&self, ckpt: &CkptId, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters;
    /// Tells what is known of steps that were proven before; judgements from now on compare with it.
    fn remember(&mut self, earlier: Vec<EarlierStep>);
    /// The step's pins as last noted.
    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash>;
    /// Things worth saying that belong to no step.
    fn remarks(&self) -> Vec<String>;
    /// Returns true if an entry of this name can only be one of its steps.
    fn is_step_name(&self, _name: &str) -> bool {
        false
    }
    /// Drops a step that is no longer of interest (it went aside).
    fn forget(&mut self, ckpt: &CkptId);
    /// The name of the trainer's own pointer, directly under the root; empty where it has none.
    fn tracker_file(&self) -> &'static str;
    /// Content of that pointer; `None` where the file is missing. Judgements from now on may rest on it.
    fn read_tracker(&mut self, bytes: Option<&[u8]>) -> TrackerState;
    /// Returns true if a step may be judged otherwise when that pointer changes.
    fn rests_on_tracker(&self, _ckpt: &CkptId) -> bool {
        false
    }
}

/// Facts of the configuration beyond the run's specification, needed again at every launch.
#[derive(Debug, Clone, Default)]
pub struct TrainerFacts {
    /// Our Python runs in its interpreter, and hands it the step to resume from.
    pub hooked: bool,
    /// The user's numbers of steps to keep, by the trainer's key.
    pub keep: Vec<(String, u32)>,
    /// The user's own overrides from the command line, passed on before ours.
    pub settings: Vec<String>,
    /// Its Ray cluster.
    pub ray: RayMode,
    /// How often the trainer's own launcher would begin again, where the user said it.
    pub retries: Option<u32>,
    /// Tools that keep its metrics, where they begin anew at each start.
    pub trackers: Vec<MetricsTool>,
    /// Directories that the trainer does not make: by the key that names them.
    pub must_exist: Vec<(String, Utf8PathBuf)>,
    /// Further facts that the adapter reads at a launch.
    pub own: AdapterPayload,
}

/// What the launch happens in.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// The environment that the workers inherit.
    pub env: BTreeMap<String, String>,
    /// Facts of the configuration beyond the specification.
    pub trainer: TrainerFacts,
    /// The attempt with which the run was taken into care: another one after each start from nothing.
    pub began: u32,
}

impl HostFacts {
    /// Returns true if the user set a variable, in the settings or in the environment.
    #[must_use]
    pub fn is_set(&self, spec: &RunSpec, name: &str) -> bool {
        spec.env.contains_key(name) || self.env.contains_key(name)
    }
}

/// A setting injected to improve the trainer's behaviour.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InjectedSetting {
    /// The setting that switches it off.
    pub setting: &'static str,
    /// Why it is set.
    pub why: String,
    /// Overrides for the command.
    pub overrides: Vec<String>,
    /// Variables for the environment.
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

    /// Nothing is left of it.
    fn is_empty(&self) -> bool {
        self.env.is_empty() && self.overrides.is_empty()
    }
}

/// A launch, as the guard needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchPlan {
    /// The command, the same for each worker.
    pub argv: Vec<String>,
    /// Environment to be set; what the user set is not among it.
    pub env: Vec<(String, String)>,
    /// The overrides that were put into the command.
    pub overrides: Vec<String>,
    /// A directory for what the attempt needs only while it lives: made before it starts, deleted after its end.
    pub scratch: Option<Utf8PathBuf>,
    /// Records of earlier attempts, by which their processes were found: deleted before the workers start.
    pub stale_names: Option<Utf8PathBuf>,
    /// Changes, in words.
    pub notes: Vec<String>,
    /// Settings injected to improve the trainer's behaviour.
    pub helps: Vec<InjectedSetting>,
    /// Treatment of the trainer's call, where the command is a script.
    pub call: Option<CallOrder>,
}

impl LaunchPlan {
    /// Puts helps into the launch; what the user set is left alone.
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
    /// Limits of our tables, in words.
    pub why: String,
    /// The call as it would be launched, without what a resume adds.
    pub command: Vec<String>,
    /// The words behind its interpreter that make it print its configuration, as it is before interpolations are followed.
    pub words: Vec<String>,
    /// A module or script of somebody else's is asked only where its file has this word: it might train instead of answering.
    pub only_if: Option<(String, &'static str)>,
}

/// A trainer framework.
pub trait TrainerAdapter: Sync {
    /// Its name in journals and in a run's identity.
    fn kind(&self) -> TrainerKind;
    /// The name of its framework in the settings: several trainers of one framework share it.
    fn framework(&self) -> &'static str;
    /// Returns true if anything is known of its steps and its checkpoints.
    fn has_steps(&self) -> bool {
        true
    }
    /// If its framework has several trainers: how a person says in the command which one is meant.
    fn entries(&self) -> Option<&'static str> {
        None
    }
    /// The Python package that it is installed as.
    fn package(&self) -> Option<&'static str> {
        None
    }
    /// That package changes nothing for its imports but variables, so that these may be made without it.
    fn imports_plainly(&self) -> bool {
        false
    }
    /// Defaults, keys and layouts differ between its releases: the interpreter is asked which one would run.
    fn has_releases(&self) -> bool {
        false
    }
    /// Returns true if its configuration alone, without a command, tells which run is meant.
    fn is_run_by_file(&self) -> bool {
        false
    }
    /// The command that starts such a configuration, with a name in capitals for what only the user knows; `None`: it is not known.
    fn proposal(&self, _tree: &ConfigTree) -> Option<Vec<String>> {
        None
    }
    /// The words behind the interpreter that make a command compose and print its configuration instead of training; `None`: it
    /// cannot be tried in advance.
    fn rehearsed(&self, _command: &[String]) -> Option<Vec<String>> {
        None
    }
    /// Why only the trainer itself can say what its configuration comes to, and the call that would be asked: its release, its
    /// configuration or its entry point is in no table here. `None`: what is read here is enough.
    fn asks(&self, _input: &ReadInput<'_>) -> Option<Asks> {
        None
    }
    /// Names of it and of its settings, for what is said to a person.
    fn words(&self) -> &'static TrainerNames;
    /// The start of the names of its step directories in a checkpoint root; `None`: its steps have no directories of their own.
    fn step_prefix(&self) -> Option<&'static str> {
        None
    }
    /// Configurations that its installation brings, by their names: not missing where they stand nowhere else.
    fn own_configs(&self) -> &'static [&'static str] {
        &[]
    }
    /// Which trainer a script starts can be learnt by running it up to that call.
    fn is_learnt(&self) -> bool {
        false
    }
    /// Returns true if these words, which a script calls, start a training of its.
    fn starts(&self, words: &[String]) -> bool {
        self.is_called(words)
    }
    /// Programs of its own, by whose names scripts start it.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }
    /// Puts our words into the call that a script makes: exactly once.
    ///
    /// # Errors
    /// In words: it is not the call that was learnt.
    fn fill(
        &self,
        _words: &[String],
        _order: &CallOrder,
        _restarts_by_environment: bool,
    ) -> Result<RewrittenCall, String> {
        Err(format!("no call of {} was learnt", self.words().name))
    }

    /// The settings of a call in a script that tell one training from another, as the script wrote them.
    fn call_root(&self, _words: &[String]) -> String {
        String::new()
    }

    /// A command of which no call is known is supervised all the same, where the settings say whose it is and where it saves.
    fn resumes_by_itself(&self) -> bool {
        false
    }
    /// It ends at once over a key of its configuration that it does not know: it is given a copy without our block.
    fn refuses_block(&self) -> bool {
        false
    }
    /// The configuration that a command gives to the trainer's own reader, as it is written there.
    fn config_in(&self, _command: &[String]) -> Option<String> {
        None
    }
    /// A Python script of this text starts this trainer with everything in its code.
    fn trains_by_code(&self, _code: &PlainCode) -> bool {
        false
    }
    /// Python that runs first in the interpreter of a command which tells nothing of the trainer in it: it tells of that
    /// ([`seen`](Self::seen)), and may hand it the step to resume from.
    fn hook(&self, _spec: &RunSpec) -> Option<&'static str> {
        None
    }
    /// It can be seen so.
    fn is_seen(&self) -> bool {
        false
    }
    /// The trainer of which that Python told. `known`: what it told in an attempt before.
    fn seen(&self, _told: &str, _known: Option<&TrainerSeen>) -> Option<TrainerSeen> {
        None
    }
    /// The exception with which that Python failed, if it saw no trainer because of that.
    fn hook_failed(&self, _told: &str) -> Option<String> {
        None
    }
    /// Files that a command names and that may be that configuration: what is none is told by its content.
    fn configs_in(&self, command: &[String]) -> Vec<String> {
        self.config_in(command).into_iter().collect()
    }
    /// Returns true if a text is a configuration of this trainer, be there something wrong with it. `name`: its file, for errors.
    fn is_config(&self, _text: &str, _name: &str) -> bool {
        false
    }
    /// The user's name, where it is a part of the checkpoint root.
    fn user_part(&self, _root: &Utf8Path) -> Option<UserPart> {
        None
    }
    /// Place where a run keeps what it needs, where that is not inside of its checkpoint root.
    fn store_of(&self, _root: &Utf8Path) -> Option<Utf8PathBuf> {
        None
    }
    /// Returns true if a directory of this name, with these names directly in it, can only be a step of its.
    fn is_step(&self, _name: &str, _names: &[String]) -> bool {
        false
    }
    /// Returns true if a command starts one of its programs.
    fn is_called(&self, command: &[String]) -> bool;
    /// Returns true if a configuration can only be one of its.
    fn is_meant(&self, composed: &ComposedConfig) -> bool;
    /// Statements of its configuration about a run.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its key, its place and what to do next.
    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>>;
    /// Meaning of its lines of output.
    fn rules(&self) -> Vec<ScanRule>;
    /// A run's expectations of its checkpoints.
    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout::of(spec)
    }
    /// The layout of its checkpoint, where it keeps one only and overwrites it.
    fn in_place(&self) -> Option<&'static dyn InPlaceLayout> {
        None
    }
    /// By what its jobs with Slurm are known, where its workers are such jobs: they outlive whoever submitted them.
    fn jobs(&self, _saves: &SavePolicy) -> Option<SlurmJobs> {
        None
    }
    /// Returns true if an entry can only stand in a directory of one role of a step.
    fn is_of_role(&self, _name: &str) -> bool {
        false
    }
    /// Codes of findings that only this trainer's configuration or checkpoints have, with what each means.
    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// An empty fold over the files of a checkpoint root.
    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker>;
    /// Command and environment of a launch.
    ///
    /// # Errors
    /// The order cannot be expressed for this trainer: the reason says what is wrong.
    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason>;
    /// Notes for a person before a launch.
    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding>;
}
