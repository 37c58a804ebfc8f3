//! The specification of a run, with its policy. It is complete, and frozen for the length of a term.

mod assist;
pub mod gang;
mod saves;
pub mod script;
pub mod seen;
mod trainer;

use crate::checkpoint::{Depth, StateKind};
use crate::id::{Ms, RunId, Step};
use crate::rulebook::action::FailureAction;
use crate::rulebook::failure_line::FailureLine;
use crate::spec::script::LearnedCall;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use assist::Assist;
pub use saves::{AcceptAhead, InPlaceSpec, Protect, RoleSpread, SavePolicy};
pub use trainer::TrainerKind;

/// All that a term needs to know about its run. Frozen when the term starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub run: RunId,
    pub trainer: TrainerKind,
    pub trainer_version: Option<String>,
    /// Hash over the effective configuration. A change is journaled.
    pub config_hash: u64,
    /// Canonical checkpoint root; `None` if the trainer has none (plain).
    pub root: Option<Utf8PathBuf>,
    /// Directory of the journal and the attempts.
    pub run_dir: Utf8PathBuf,
    /// The trainer's YAML, as named on the command line.
    pub config_file: Option<Utf8PathBuf>,
    /// The command as the user (or the adapter's default) gave it, with `{config}` and `{overrides}` not yet replaced.
    pub command: Vec<String>,
    /// The trainer call that the command makes, if the command is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt: Option<LearnedCall>,
    pub cwd: Utf8PathBuf,
    pub env: BTreeMap<String, String>,
    pub gang: GangSpec,
    pub cadence: SaveCadence,
    /// The last planned step, if the configuration says it.
    pub last_step: Option<Step>,
    /// The world size that a checkpoint of this run must have, if known.
    pub world: Option<u32>,
    /// Settings that do not divide by the number of ranks although the trainer divides them, each as text with the
    /// value it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indivisible: Vec<String>,
    pub roles: Vec<RoleSpec>,
    /// What the user's own `resume_mode` requests.
    pub resume: ResumeIntent,
    /// How many steps the user keeps; `None` keeps all.
    pub keep: Option<u32>,
    pub policy: Policy,
    /// State that this trainer never restores. Mentioned at each resume.
    pub not_restored: Vec<StateKind>,
    /// How and where it saves.
    #[serde(default, rename = "live", skip_serializing_if = "SavePolicy::is_steps")]
    pub saves: SavePolicy,
    #[serde(default, skip_serializing_if = "Numbering::is_steps")]
    pub numbering: Numbering,
    /// Whether the trainer may end before the last planned step and says so (early stopping, a time limit).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_end_early: bool,
    /// Whether the command does more work after the last step, such as saving the model. If that fails, the run is not
    /// finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tail: bool,
    /// Whether the trainer saves a step on SIGTERM before it exits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub saves_at_stop: bool,
}

impl RunSpec {
    /// Grace period after SIGTERM when the run is to end.
    #[must_use]
    pub fn last_grace(&self) -> Ms {
        let (stop, save) = (self.policy.stop_grace, self.policy.save_grace);
        if self.saves_at_stop { stop.max(save) } else { stop }
    }

    /// Returns true if the roles are kept in different numbers of steps.
    #[must_use]
    pub fn keeps_by_role(&self) -> bool {
        self.roles.iter().any(|role| role.keep.is_some())
    }

    /// The smallest number of steps in which the trainer keeps everything it saves.
    #[must_use]
    pub fn least_kept(&self) -> Option<u32> {
        let of_roles = self.roles.iter().filter_map(|role| role.keep).min();
        of_roles.or(self.keep)
    }

    /// The words that call the trainer: the command itself, or the call its script was seen to make.
    #[must_use]
    pub fn trainer_command(&self) -> &[String] {
        self.learnt.as_ref().map_or(&self.command, |l| &l.command)
    }
}

/// How the training records that a trainer prints are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbering {
    /// By step: the first one after a resume from N is N+1.
    #[default]
    Steps,
    /// By something else, such as versions of the weights: the first record does not prove a resume.
    Else,
}

impl Numbering {
    /// Returns true if records are numbered by step.
    #[must_use]
    pub fn is_steps(&self) -> bool {
        *self == Self::Steps
    }
}

pub(crate) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
pub(crate) fn is_one(nodes: &u32) -> bool {
    *nodes == 1
}

impl GangSpec {
    /// One process, which starts the rest itself.
    #[must_use]
    pub fn driver() -> Self {
        Self {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: Vec::new(),
        }
    }

    /// Number of workers on each node.
    #[must_use]
    pub fn per_node(&self) -> u32 {
        self.workers.checked_div(self.nodes).unwrap_or(self.workers)
    }
}

/// How workers are started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangSpec {
    /// One driver process, or one process per rank with torch's environment.
    pub launcher: LauncherKind,
    /// Number of worker processes on all nodes together.
    pub workers: u32,
    /// Nodes that the workers are spread over evenly.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// GPU indices for the workers; if empty, `CUDA_VISIBLE_DEVICES` is left alone.
    pub gpus: Vec<u32>,
}

/// How the ranks are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherKind {
    /// One process that starts the rest itself (`main_ppo`, torchrun).
    Driver,
    /// We start each rank with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
    Gang,
    /// We start Ray on each node, and the driver on the first.
    Ray,
}

/// When the trainer saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveCadence {
    /// Save interval in steps; `None`: only at the end, if `at_end` is set.
    pub every: Option<u64>,
    /// Whether the last step is always saved.
    pub at_end: bool,
}

/// One role whose state is saved under its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpec {
    /// `actor`, `critic`; empty for SFT, whose files are directly in the step's directory.
    pub name: String,
    /// Contents that the configuration says are saved: `model`, `optimizer`, `extra`, `hf_model`.
    pub save_contents: Vec<String>,
    /// Contents that the configuration says are loaded.
    pub load_contents: Vec<String>,
    /// Whether the user set `load_contents`, which is honored once.
    pub load_wish: bool,
    /// How Megatron saves and loads it; `None`: another strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub megatron: Option<MegatronSpec>,
    /// Ranks that share one copy of the model (`fsdp_size`; below 1: all of them); `None`: another strategy, or not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsdp_size: Option<i64>,
    /// Ranks that share a sequence, if each group of them has its own dataloader state; `None`: no such groups, or not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// How many steps the user keeps of it, if roles differ; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

/// Settings that decide which Megatron checkpoints a role can load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MegatronSpec {
    /// How the ranks share the model.
    pub parallel: ParallelSizes,
    /// Whether weights go through a bridge to the Hugging Face format.
    pub bridge: bool,
    /// Whether Megatron's own writer saves and loads the weights.
    pub dist: bool,
    /// Whether only adapters are trained.
    pub adapters: bool,
    /// Whether the optimizer is saved in a form that other parallel sizes can load.
    pub any_parallel: bool,
    /// Whether the learning-rate schedule is restored; otherwise it restarts at each resume.
    pub schedule: bool,
}

/// How many ranks share one copy of a model, by kind of parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelSizes {
    /// Slices of each layer.
    pub tensor: u32,
    /// Groups of layers.
    pub pipeline: u32,
    /// Slices of each sequence.
    pub context: u32,
    /// Groups of experts.
    pub expert: u32,
}

impl ParallelSizes {
    /// Ranks that together hold one copy and work on one sequence; `None` on overflow.
    #[must_use]
    pub fn ranks(self) -> Option<u32> {
        self.tensor.checked_mul(self.pipeline)?.checked_mul(self.context)
    }
}

/// What the user's configuration requests at the first start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeIntent {
    /// The newest proven step, or a fresh start if there is none.
    Auto,
    /// The same, but the trainer finds it through its tracker: it may load more that way than by a path.
    Tracker,
    /// A fresh start, once.
    Disabled,
    /// This step directory, once (absolute).
    Path {
        /// Absolute directory of the step.
        path: Utf8PathBuf,
        /// The step in its name.
        step: Step,
    },
}

/// The policy. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Attempts without progress before giving up.
    pub retries: u32,
    /// The user's answers to failures, by class or family.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, FailureAction>,
    /// The user's patterns of lines that show a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<FailureLine>,
    /// What to do if a relaunch prints other metrics than the attempt before it.
    #[serde(default)]
    pub resume_check: ResumeCheck,
    /// How often a run may step back behind its resume point.
    pub step_backs: u32,
    /// Whether the GPUs that the run names are checked before each launch: present, free and healthy.
    #[serde(default)]
    pub check_gpus: bool,
    /// First backoff before a relaunch without progress.
    pub backoff_initial: Ms,
    /// Factor from one backoff to the next.
    pub backoff_factor: f64,
    pub backoff_max: Ms,
    /// Random share of a backoff, 0 to 1.
    pub backoff_jitter: f64,
    /// From SIGTERM to SIGKILL.
    pub stop_grace: Ms,
    /// How long a running save may delay a stop.
    pub save_grace: Ms,
    /// How long a guard without a supervisor waits.
    pub orphan_grace: Ms,
    /// Depth of proof before a launch.
    pub depth: Depth,
    /// Whether no step is proven deeper than `depth`, whoever wrote it: set when a plan was given a depth, never for a
    /// run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub depth_is_fixed: bool,
    /// `false` switches proof off (to demonstrate what happens without it).
    pub prove: bool,
    /// Imports that a checkpoint may contain although they are unknown: `module.name`, `module.*`, `*`.
    #[serde(default)]
    pub trust_globals: Vec<String>,
    /// Whether a name on the danger list is accepted.
    #[serde(default)]
    pub trust_unsafe: bool,
    /// Uids, besides root and the run's own, that may own a checkpoint's files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_owners: Vec<u32>,
    /// Bytes per second that a background proof may read; 0: no limit.
    #[serde(default)]
    pub background_rate: u64,
    /// Bytes of memory that each process may use to check checkpoints; 0: the built-in limit.
    #[serde(default)]
    pub memory: u64,
    /// State that may be lost without asking.
    pub degraded: DegradedPolicy,
    /// Whether a step saved by another number of ranks is resharded for this run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// How long start-up may take before it counts as a stall.
    pub stall_startup: Ms,
    /// A step may take this many times the 99.9th percentile.
    pub stall_factor: f64,
    /// Lower limit of that time.
    pub stall_minimum: Ms,
    /// How long a save may take.
    pub stall_save: Ms,
    /// An attempt without progress for this long is ended, whatever its processes do.
    #[serde(default)]
    pub stall_hard: HardLimit,
    /// The user's pattern of lines that show a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Whether older steps are deleted to keep the number of steps the user set.
    pub prune: bool,
    /// How much the trainer's own number of kept steps is raised by.
    pub keep_raise: u32,
    /// Whether a fresh start is allowed if nothing can be proven.
    pub allow_fresh: bool,
    /// Whether to start fresh on purpose; existing steps are moved aside.
    pub fresh: bool,
    /// The step the user chose after a suspected roll-back (`--from N`).
    pub from: Option<Step>,
    /// Whether the trainer saves and resumes (`false`: `--no-recovery`).
    pub recovery: bool,
    /// Whether the trainer's command itself, rather than a setting, switches recovery off.
    #[serde(default)]
    pub off_by_command: bool,
    /// Whether to launch once and then only report what would have been done.
    pub observe: bool,
    /// Interval between scans of the checkpoint root while the run is running.
    pub scan_interval: Ms,
    /// Whether a run whose memory would not last until the save after next is restarted right after a save.
    #[serde(default)]
    pub restart_for_memory: bool,
    /// Whether a relaunch is rehearsed once the workers run.
    #[serde(default)]
    pub rehearse: bool,
    /// Settings that are injected into the trainer.
    #[serde(default)]
    pub assist: Assist,
    /// How a trainer's only checkpoint is protected.
    #[serde(default)]
    pub protect: Protect,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retries: 5,
            rules: BTreeMap::new(),
            lines: Vec::new(),
            resume_check: ResumeCheck::Report,
            step_backs: 2,
            check_gpus: true,
            backoff_initial: Ms::secs(5),
            backoff_factor: 2.0,
            backoff_max: Ms::secs(300),
            backoff_jitter: 0.2,
            stop_grace: Ms::secs(30),
            save_grace: Ms::secs(300),
            orphan_grace: Ms::secs(120),
            depth: Depth::Full,
            depth_is_fixed: false,
            prove: true,
            trust_globals: Vec::new(),
            trust_unsafe: false,
            trust_owners: Vec::new(),
            background_rate: 1 << 30,
            memory: 256 << 20,
            degraded: DegradedPolicy::DataOrder,
            elastic: false,
            stall_startup: Ms::secs(1800),
            stall_factor: 3.0,
            stall_minimum: Ms::secs(600),
            stall_save: Ms::secs(1800),
            stall_hard: HardLimit::Auto,
            progress: None,
            prune: true,
            keep_raise: 2,
            allow_fresh: false,
            fresh: false,
            from: None,
            recovery: true,
            off_by_command: false,
            observe: false,
            scan_interval: Ms::secs(10),
            restart_for_memory: false,
            rehearse: false,
            assist: Assist::default(),
            protect: Protect::default(),
        }
    }
}

/// The time without progress that alone ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HardLimit {
    /// The larger of 60 minutes and 20 times the longest time between steps.
    #[default]
    Auto,
    /// No hard limit.
    Never,
    After(Ms),
}

/// What to do if a relaunch prints other metrics than the attempt before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeCheck {
    /// Report it.
    #[default]
    Report,
    /// End the run.
    Stop,
}

/// How much may be lost at a resume without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DegradedPolicy {
    /// Nothing.
    Never,
    /// The data order.
    DataOrder,
    /// Everything but the weights.
    ModelOnly,
    /// Nothing: the run ends with a question that says what would be lost.
    Ask,
}

impl DegradedPolicy {
    /// Returns true if losing `lost` is allowed.
    #[must_use]
    pub fn allows(self, lost: &[StateKind]) -> bool {
        match self {
            Self::Never | Self::Ask => lost.is_empty(),
            Self::DataOrder => lost.iter().all(|k| *k == StateKind::DataOrder),
            Self::ModelOnly => !lost.contains(&StateKind::Weights),
        }
    }

    /// The strictest policy that allows losing `lost`, as the settings spell it; `None` if none does.
    #[must_use]
    pub fn that_allows(lost: &[StateKind]) -> Option<&'static str> {
        [(Self::DataOrder, "data_order"), (Self::ModelOnly, "model_only")]
            .into_iter()
            .find_map(|(policy, word)| policy.allows(lost).then_some(word))
    }
}
