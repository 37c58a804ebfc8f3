//! A trainer's configuration as the parts of a run's specification: what it is read from, and what comes of it.

use crate::adapter::TrainerFacts;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::compose::ComposedConfig;
use supervise_config::interpolation::Env;
use supervise_config::{ConfigTree, ValueOrigin};
use supervise_core::checkpoint::{Finding, StateKind};
use supervise_core::id::Step;
use supervise_core::spec::{
    GangSpec, LauncherKind, Numbering, ResumeIntent, RoleSpec, SaveCadence, SavePolicy, TrainerKind,
};

/// Texts of files by their absolute paths.
pub type FileText<'a> = &'a dyn Fn(&Utf8Path) -> Option<String>;

/// All that a configuration is read from.
pub struct ReadInput<'a> {
    /// The user's YAML after composition, without verl's own layers beneath; `None`: only a command was given.
    pub composed: Option<&'a ComposedConfig>,
    /// Its file, absolute.
    pub config_file: Option<&'a Utf8Path>,
    /// Overrides from `--set`, as written.
    pub set: &'a [String],
    /// The command after `--` or from the settings; empty: the adapter's own.
    pub command: &'a [String],
    /// Working directory of the workers, absolute.
    pub cwd: &'a Utf8Path,
    /// The environment, for `${oc.env:…}`.
    pub env: Env<'a>,
    /// The text of a file that the command, or a program in it, reads before the trainer starts; `None`: it cannot be read.
    pub file: FileText<'a>,
    /// Worker processes on this machine, where the settings say it.
    pub workers: Option<u32>,
    /// The launcher of the ranks, where the settings say it.
    pub launcher: Option<LauncherKind>,
    /// The user who runs the workers, as the password database names it.
    pub user: Option<&'a str>,
    /// The trainer, where the settings say it.
    pub kind: Option<TrainerKind>,
    /// The script that makes this call has started a Ray cluster before it.
    pub starts_ray: bool,
    /// A Ray cluster over several machines that nobody names is ours to start.
    pub may_start_ray: bool,
    /// The supervisor is to resume the run.
    pub recovery: bool,
    /// A person said so of this very run: a wish in the trainer's own command does not count against it.
    pub recovery_said: bool,
    /// The trainer's version, as the interpreter that will run it says; `None`: not known.
    pub version: Option<&'a str>,
    /// The configuration as the trainer's own interpreter composed it for this command and these overrides; `None`: it was not asked.
    pub printed: Option<&'a ConfigTree>,
}

/// The reading: a run's specification without its identity, its policy and its environment.
#[derive(Debug, Clone)]
pub struct ReadOutput {
    /// The trainer.
    pub kind: TrainerKind,
    /// The checkpoint root, absolute.
    pub root: Option<Utf8PathBuf>,
    /// When it saves.
    pub cadence: SaveCadence,
    /// The last planned step, where it is said.
    pub last_step: Option<Step>,
    /// The world size of its checkpoints.
    pub world: Option<u32>,
    /// Settings that the trainer divides by its ranks, and cannot: each in words, with what it needs instead.
    pub indivisible: Vec<String>,
    /// Roles that every step holds.
    pub roles: Vec<RoleSpec>,
    /// Request of the user's own settings at the first start.
    pub resume: ResumeIntent,
    /// The user's number of steps to keep.
    pub keep: Option<u32>,
    /// How the workers are started.
    pub gang: GangSpec,
    /// The command, `{config}` and `{overrides}` still in it.
    pub command: Vec<String>,
    /// State that is never restored.
    pub not_restored: Vec<StateKind>,
    /// Settings that every launch needs beside the specification.
    pub facts: TrainerFacts,
    /// The configuration as it counts for the trainer, as far as it is read here.
    pub tree: ConfigTree,
    /// Notes.
    pub findings: Vec<Finding>,
    /// Place of its saves.
    pub saves: SavePolicy,
    /// How its training records are numbered.
    pub numbering: Numbering,
    /// The trainer may end its training before the last planned step, and says so.
    pub may_end_early: bool,
    /// The command goes on after the last step with work that counts.
    pub has_tail: bool,
    /// The trainer saves a step when it is told to end, before it ends.
    pub saves_at_stop: bool,
    /// The run is to be resumed: `false` also where the trainer's own command switches that off.
    pub recovery: bool,
    /// Machines that the configuration asks for, where it says so.
    pub machines: Option<MachineCount>,
}

/// Machines that a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineCount {
    /// How many.
    pub nodes: u32,
    /// GPUs on each; 0 where it trains on CPUs.
    pub gpus: u32,
}

impl ReadOutput {
    /// A run of which nothing is known: one driver, no checkpoints.
    pub(crate) fn blank(kind: TrainerKind) -> Self {
        Self {
            kind,
            root: None,
            cadence: SaveCadence {
                every: None,
                at_end: false,
            },
            last_step: None,
            world: None,
            indivisible: Vec::new(),
            roles: Vec::new(),
            resume: ResumeIntent::Auto,
            keep: None,
            gang: GangSpec {
                launcher: LauncherKind::Driver,
                workers: 1,
                nodes: 1,
                gpus: Vec::new(),
            },
            command: Vec::new(),
            not_restored: Vec::new(),
            facts: TrainerFacts::default(),
            tree: ConfigTree::empty(ValueOrigin::Default {
                of: "supervise".to_owned(),
            }),
            findings: Vec::new(),
            saves: SavePolicy::Steps,
            numbering: Numbering::Steps,
            may_end_early: false,
            saves_at_stop: false,
            has_tail: false,
            recovery: true,
            machines: None,
        }
    }
}
