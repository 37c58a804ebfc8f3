//! Reading a trainer's configuration into a run's specification: input and output.

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

/// Looks up the text of a file by its absolute path.
pub type FileText<'a> = &'a dyn Fn(&Utf8Path) -> Option<String>;

/// Everything a configuration is read from.
pub struct ReadInput<'a> {
    /// The user's YAML after composition, without verl's own layers; `None`: only a command was given.
    pub composed: Option<&'a ComposedConfig>,
    pub config_file: Option<&'a Utf8Path>,
    /// Overrides from `--set`, as written.
    pub set: &'a [String],
    /// The command after `--` or from the settings; if empty, the adapter's own.
    pub command: &'a [String],
    pub cwd: &'a Utf8Path,
    /// The environment, for `${oc.env:…}`.
    pub env: Env<'a>,
    /// Text of a file that the command, or a program in it, reads before the trainer starts; `None` if unreadable.
    pub file: FileText<'a>,
    pub workers: Option<u32>,
    pub launcher: Option<LauncherKind>,
    /// The user who runs the workers, from the password database.
    pub user: Option<&'a str>,
    pub kind: Option<TrainerKind>,
    /// The script that makes this call started a Ray cluster before it.
    pub starts_ray: bool,
    /// We may start a Ray cluster over several machines if the configuration names none.
    pub may_start_ray: bool,
    /// The supervisor is to resume the run.
    pub recovery: bool,
    /// The operator set `recovery` for this very run, which overrides the trainer's own command.
    pub recovery_said: bool,
    /// The trainer's version, reported by its interpreter; `None` if unknown.
    pub version: Option<&'a str>,
    /// The configuration as the trainer's own interpreter composed it for this command and these overrides; `None`:
    /// not asked.
    pub printed: Option<&'a ConfigTree>,
}

/// A run's specification without its identity, its policy and its environment.
#[derive(Debug, Clone)]
pub struct ReadOutput {
    pub kind: TrainerKind,
    /// What the configuration calls the run.
    pub name: Option<String>,
    pub root: Option<Utf8PathBuf>,
    pub cadence: SaveCadence,
    /// The last planned step, if configured.
    pub last_step: Option<Step>,
    pub world: Option<u32>,
    /// Settings that the ranks must divide evenly but do not: each as text, with a value that works.
    pub indivisible: Vec<String>,
    pub roles: Vec<RoleSpec>,
    /// What the user's own settings request for the first start.
    pub resume: ResumeIntent,
    /// How many steps the user retains.
    pub keep: Option<u32>,
    pub gang: GangSpec,
    /// The command, with `{config}` and `{overrides}` still in it.
    pub command: Vec<String>,
    pub not_restored: Vec<StateKind>,
    /// Settings that every launch needs besides the specification.
    pub facts: TrainerFacts,
    /// The effective configuration, as far as it is read here.
    pub tree: ConfigTree,
    pub findings: Vec<Finding>,
    /// How its saves are laid out.
    pub saves: SavePolicy,
    /// How its training records are numbered.
    pub numbering: Numbering,
    /// The trainer may stop before the last planned step, and says so.
    pub may_end_early: bool,
    /// The command does work that counts after the last step.
    pub has_tail: bool,
    /// The trainer saves a step when it is asked to stop.
    pub saves_at_stop: bool,
    /// The run is to be resumed; `false` also if the trainer's own command disables it.
    pub recovery: bool,
    /// Machines that the configuration asks for, if it says.
    pub machines: Option<MachineCount>,
}

/// Machines that a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineCount {
    pub nodes: u32,
    /// GPUs per machine; 0 for CPU training.
    pub gpus: u32,
}

impl ReadOutput {
    /// A run of which nothing is known: one driver process, no checkpoints.
    pub(crate) fn blank(kind: TrainerKind) -> Self {
        Self {
            kind,
            name: None,
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
