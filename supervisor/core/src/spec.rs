//! The specification of a run: frozen per term, complete, with the policy that decides over it.

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

/// Everything about one run that a term needs. Frozen when the term begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Identity.
    pub run: RunId,
    /// Trainer framework.
    pub trainer: TrainerKind,
    /// Version of the trainer where known.
    pub trainer_version: Option<String>,
    /// Hash over the effective configuration: a change is journaled.
    pub config_hash: u64,
    /// Canonical checkpoint root; `None` where the trainer has none (plain).
    pub root: Option<Utf8PathBuf>,
    /// Directory of the journal and the attempts.
    pub run_dir: Utf8PathBuf,
    /// The trainer's YAML as named on the command line.
    pub config_file: Option<Utf8PathBuf>,
    /// The command as the user (or the adapter's default) gave it; `{config}` and `{overrides}` still in it.
    pub command: Vec<String>,
    /// The trainer's call that the command makes, where the command is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt: Option<LearnedCall>,
    /// Working directory of the workers.
    pub cwd: Utf8PathBuf,
    /// Additional environment of the workers.
    pub env: BTreeMap<String, String>,
    /// How many processes are started, and how.
    pub gang: GangSpec,
    /// When the trainer saves.
    pub cadence: SaveCadence,
    /// The last planned step, where the configuration tells.
    pub last_step: Option<Step>,
    /// The world size a checkpoint of this run must have, where known.
    pub world: Option<u32>,
    /// Settings that the trainer divides by its ranks, and cannot: each in words, with what it needs instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indivisible: Vec<String>,
    /// Roles that every step must hold.
    pub roles: Vec<RoleSpec>,
    /// Request of the user's own `resume_mode`.
    pub resume: ResumeIntent,
    /// The user's number of steps to keep; `None` keeps all.
    pub keep: Option<u32>,
    /// The rules of deciding.
    pub policy: Policy,
    /// State that is never restored by this trainer, said at each resume.
    pub not_restored: Vec<StateKind>,
    /// The places of its saves.
    #[serde(default, rename = "live", skip_serializing_if = "SavePolicy::is_steps")]
    pub saves: SavePolicy,
    /// How its training records are numbered.
    #[serde(default, skip_serializing_if = "Numbering::is_steps")]
    pub numbering: Numbering,
    /// The trainer may end its training before the last planned step, and says so: early stopping, a time limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_end_early: bool,
    /// The command goes on after the last step with work that counts, such as saving the model: if that fails, the run is not finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tail: bool,
    /// The trainer saves a step when it is told to end, before it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub saves_at_stop: bool,
}

impl RunSpec {
    /// The time that SIGTERM leaves the workers where the run is to end.
    #[must_use]
    pub fn last_grace(&self) -> Ms {
        let (stop, save) = (self.policy.stop_grace, self.policy.save_grace);
        if self.saves_at_stop { stop.max(save) } else { stop }
    }

    /// Roles are kept in different numbers of steps.
    #[must_use]
    pub fn keeps_by_role(&self) -> bool {
        self.roles.iter().any(|role| role.keep.is_some())
    }

    /// The smallest number of steps in which the trainer keeps all that it saves.
    #[must_use]
    pub fn least_kept(&self) -> Option<u32> {
        let of_roles = self.roles.iter().filter_map(|role| role.keep).min();
        of_roles.or(self.keep)
    }

    /// The words that call the trainer: the command's own, or those that its script was seen to use.
    #[must_use]
    pub fn trainer_command(&self) -> &[String] {
        self.learnt.as_ref().map_or(&self.command, |l| &l.command)
    }
}

/// How the training records that a trainer prints are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbering {
    /// By the step: the first one after a resume from N is N+1.
    #[default]
    Steps,
    /// By something else, versions of the weights for instance: the first one proves no resume.
    Else,
}

impl Numbering {
    /// Records are numbered by the step.
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
    /// One process, which starts the rest by itself.
    #[must_use]
    pub fn driver() -> Self {
        Self {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: Vec::new(),
        }
    }

    /// Workers of each node.
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
    /// Number of worker processes, on all nodes.
    pub workers: u32,
    /// Nodes that they are dealt out to, equally many to each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// GPU indices dealt out to the workers; empty: `CUDA_VISIBLE_DEVICES` is left alone.
    pub gpus: Vec<u32>,
}

/// The launcher of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherKind {
    /// One process that starts the rest by itself (`main_ppo`, torchrun).
    Driver,
    /// We start each rank with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
    Gang,
    /// We start Ray on each node, and on the first one the driver.
    Ray,
}

/// When the trainer saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveCadence {
    /// Every so many steps; `None`: only where `at_end` says.
    pub every: Option<u64>,
    /// The last step is always saved.
    pub at_end: bool,
}

/// One role whose state is saved under its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpec {
    /// `actor`, `critic`; empty for SFT, whose files stand directly in the step.
    pub name: String,
    /// Contents that the configuration says are saved: `model`, `optimizer`, `extra`, `hf_model`.
    pub save_contents: Vec<String>,
    /// Contents that the configuration says are loaded.
    pub load_contents: Vec<String>,
    /// The user set `load_contents` itself (a wish, honoured once).
    pub load_wish: bool,
    /// How Megatron saves and loads it; `None`: another strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub megatron: Option<MegatronSpec>,
    /// Ranks that share one copy of the model (`fsdp_size`; below 1: all of them); `None`: another strategy, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsdp_size: Option<i64>,
    /// Ranks that share a sequence, where each group of them has one state of the dataloader; `None`: it has none of its own, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// The user's number of steps to keep it in, where roles have different ones; `None`: in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

/// The settings that decide which of Megatron's checkpoints a role can be loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MegatronSpec {
    /// How the ranks share the model.
    pub parallel: ParallelSizes,
    /// Weights go through a bridge to the Hugging Face format.
    pub bridge: bool,
    /// Weights are saved and loaded by Megatron's own writer.
    pub dist: bool,
    /// Only adapters are trained.
    pub adapters: bool,
    /// The optimizer is saved so that ranks that share the model otherwise can load it.
    pub any_parallel: bool,
    /// The learning-rate schedule is restored; otherwise it begins anew at each resume.
    pub schedule: bool,
}

/// How many ranks share one copy of a model, by kind of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelSizes {
    /// Parts of each layer.
    pub tensor: u32,
    /// Groups of layers.
    pub pipeline: u32,
    /// Parts of each sequence.
    pub context: u32,
    /// Groups of experts.
    pub expert: u32,
}

impl ParallelSizes {
    /// Ranks that together hold one copy and work on one sequence; `None` beyond what can be counted.
    #[must_use]
    pub fn ranks(self) -> Option<u32> {
        self.tensor.checked_mul(self.pipeline)?.checked_mul(self.context)
    }
}

/// Request of the user's configuration at the first start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeIntent {
    /// The newest proven step, or fresh where nothing is there.
    Auto,
    /// The same, and the trainer finds it by its tracker: it may load more by that way than by a path.
    Tracker,
    /// From nothing, once.
    Disabled,
    /// From this step directory, once (absolute).
    Path {
        /// Absolute directory of the step.
        path: Utf8PathBuf,
        /// The step its name says.
        step: Step,
    },
}

/// The rules of deciding. Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Attempts without progress before giving up.
    pub retries: u32,
    /// The user's answers to failures, by class or family.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, FailureAction>,
    /// The user's lines that tell a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<FailureLine>,
    /// Answer to a relaunch that prints other numbers than the attempt before it.
    #[serde(default)]
    pub resume_check: ResumeCheck,
    /// How many times a run may step back behind its resume point.
    pub step_backs: u32,
    /// Before each launch, the GPUs that the run names must be there, empty and sound.
    #[serde(default)]
    pub check_gpus: bool,
    /// First pause before a relaunch without progress.
    pub backoff_initial: Ms,
    /// Factor from pause to pause.
    pub backoff_factor: f64,
    /// Longest pause.
    pub backoff_max: Ms,
    /// Share of a pause that is random, 0 to 1.
    pub backoff_jitter: f64,
    /// SIGTERM to SIGKILL.
    pub stop_grace: Ms,
    /// How long a save that is going on may delay a stop.
    pub save_grace: Ms,
    /// How long a guard without a supervisor waits.
    pub orphan_grace: Ms,
    /// Depth of proof before a launch.
    pub depth: Depth,
    /// A plan was told how deep to look: no step is proven deeper, whoever wrote it. Never set for a run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub depth_is_fixed: bool,
    /// `false` switches proof off (for demonstrations of what then happens).
    pub prove: bool,
    /// Names that a checkpoint may import although nothing else is known of them: `module.name`, `module.*`, `*`.
    #[serde(default)]
    pub trust_globals: Vec<String>,
    /// A name on the danger list does not condemn.
    #[serde(default)]
    pub trust_unsafe: bool,
    /// Users beside root and the run's own whose files a checkpoint may hold, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_owners: Vec<u32>,
    /// Bytes a second that a proof in the background may read; 0 for no limit.
    #[serde(default)]
    pub background_rate: u64,
    /// Bytes of memory that looking into checkpoints may take, in each process; 0 for what is built in.
    #[serde(default)]
    pub memory: u64,
    /// State that may be lost without asking.
    pub degraded: DegradedPolicy,
    /// A step that another number of ranks saved is cut anew for those of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Start-up may take this long before it counts as a stall.
    pub stall_startup: Ms,
    /// A step may take this many times what one in a thousand exceeds.
    pub stall_factor: f64,
    /// ... but never less than this.
    pub stall_minimum: Ms,
    /// A save may take this long.
    pub stall_save: Ms,
    /// Without progress for so long, an attempt is ended whatever its processes do.
    #[serde(default)]
    pub stall_hard: HardLimit,
    /// The user's pattern of lines that tell a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Keep the user's number of steps true by deleting older ones.
    pub prune: bool,
    /// The trainer's own number is raised by this many.
    pub keep_raise: u32,
    /// Starting from nothing is allowed where nothing is provable.
    pub allow_fresh: bool,
    /// Start from nothing on purpose; what is there goes aside.
    pub fresh: bool,
    /// The user's choice among steps where a roll-back was suspected (`--from N`).
    pub from: Option<Step>,
    /// The trainer saves and resumes (`false`: `--no-recovery`).
    pub recovery: bool,
    /// The trainer's own command switches its recovery off, and no setting does.
    #[serde(default)]
    pub off_by_command: bool,
    /// Launch once, then only say what would have been done.
    pub observe: bool,
    /// Pause between scans of the checkpoint root while running.
    pub scan_interval: Ms,
    /// A run whose memory would not last until the save after next is restarted right after a save.
    #[serde(default)]
    pub restart_for_memory: bool,
    /// A relaunch is tried in advance, once workers run.
    #[serde(default)]
    pub rehearse: bool,
    /// How the trainer is helped to help itself.
    #[serde(default)]
    pub assist: Assist,
    /// How the only checkpoint of a trainer is kept from being lost.
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

/// The time without progress that ends an attempt by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HardLimit {
    /// The larger of 60 minutes and 20 times the longest time between steps.
    #[default]
    Auto,
    /// There is none.
    Never,
    /// This.
    After(Ms),
}

/// What is done where a relaunch prints other numbers than the attempt before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeCheck {
    /// It is said.
    #[default]
    Report,
    /// The run ends.
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

    /// The least that allows losing `lost`, as the settings spell it; `None` where nothing does.
    #[must_use]
    pub fn that_allows(lost: &[StateKind]) -> Option<&'static str> {
        [(Self::DataOrder, "data_order"), (Self::ModelOnly, "model_only")]
            .into_iter()
            .find_map(|(policy, word)| policy.allows(lost).then_some(word))
    }
}
