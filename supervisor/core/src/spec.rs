//! The specification of a run, with its policy. It is complete, and frozen for the length of a term.

mod assist;
mod declared;
pub mod gang;
pub mod policy;
mod saves;
pub mod script;
pub mod seen;
mod trainer;

use crate::checkpoint::StateKind;
use crate::id::{Ms, RunId, Step};
use crate::spec::policy::Policy;
use crate::spec::script::LearnedCall;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use assist::{Assist, SAVE_REQUEST, SAVE_VARIABLE};
pub use declared::DeclaredTrainer;
pub use saves::{AcceptAhead, InPlaceSpec, Protect, RoleSpread, SavePolicy};
pub use trainer::TrainerKind;

/// All that a term needs to know about its run. Frozen when the term starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub run: RunId,
    /// What its configuration calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub trainer: TrainerKind,
    pub trainer_version: Option<String>,
    /// The file that declares the trainer, if it is not one of the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredTrainer>,
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
    /// Whether the trainer saves at a step boundary if it is asked to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub save_door: bool,
    /// Whether the trainer saves a step on SIGTERM before it exits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub saves_at_stop: bool,
}

impl RunSpec {
    /// Grace period after SIGTERM when the run is to end.
    #[must_use]
    pub fn last_grace(&self) -> Ms {
        let (stop, save) = (self.policy.grace.stop, self.policy.grace.save);
        if self.saves_at_stop { stop.max(save) } else { stop }
    }

    /// Why no save can be asked for; `None`: one can.
    #[must_use]
    pub fn no_save_door(&self) -> Option<&'static str> {
        if !self.policy.assist.save_requests {
            Some("assist.save_requests is false")
        } else if !self.policy.recovers() {
            Some("the run is only observed, or its checkpoints are not proven")
        } else if !self.save_door {
            Some("this trainer takes no requests: `supervise plan` says why")
        } else {
            None
        }
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

    /// Directory of steps moved aside and of the lease, if the trainer bears no `.supervise` in its checkpoint root.
    #[must_use]
    pub fn outside_store(&self) -> Option<&Utf8Path> {
        self.declared.as_ref()?.store.as_deref()
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

    /// One process per rank, all on this node.
    #[must_use]
    pub fn ranks(workers: u32) -> Self {
        Self {
            launcher: LauncherKind::Gang,
            workers,
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
