//! What a run's settings decide: one part for each subject. On disk the parts are one flat object.

use crate::checkpoint::{Depth, StateKind};
use crate::id::{Ms, Step};
use crate::rulebook::action::FailureAction;
use crate::rulebook::failure_line::FailureLine;
use crate::spec::{Assist, Protect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policy of a run. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    #[serde(flatten)]
    pub failure: FailurePolicy,
    #[serde(flatten)]
    pub backoff: BackoffPolicy,
    #[serde(flatten)]
    pub grace: GracePolicy,
    #[serde(flatten)]
    pub proof: ProofPolicy,
    #[serde(flatten)]
    pub stall: StallPolicy,
    #[serde(flatten)]
    pub retention: RetentionPolicy,
    #[serde(flatten)]
    pub start: StartPolicy,
    /// State that may be lost without asking.
    pub degraded: DegradedPolicy,
    /// What to do if a relaunch prints other metrics than the attempt before it.
    #[serde(default)]
    pub resume_check: ResumeCheck,
    /// Whether a step saved by another number of ranks is resharded for this run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Whether the GPUs that the run names are checked before each launch: present, free and healthy.
    #[serde(default)]
    pub check_gpus: bool,
    /// Interval between scans of the checkpoint root while the run is running.
    pub scan_interval: Ms,
    /// Whether a run whose memory would not last until the save after next is restarted right after a save.
    #[serde(default)]
    pub restart_for_memory: bool,
    /// Most training that may be lost: a save is asked for in time; `None`: no such promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_loss: Option<Ms>,
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

impl Policy {
    /// Returns true if the run resumes from proven steps, and acts instead of only reporting.
    #[must_use]
    pub fn recovers(&self) -> bool {
        self.proof.is_on && self.start.recovery && !self.start.observe
    }
}

/// How a failure is recognized and answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailurePolicy {
    /// Attempts without progress before giving up.
    pub retries: u32,
    /// How often a run may step back behind its resume point.
    pub step_backs: u32,
    /// The user's answers to failures, by class or family.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, FailureAction>,
    /// The user's patterns of lines that show a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<FailureLine>,
}

/// The wait before a relaunch without progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackoffPolicy {
    #[serde(rename = "backoff_initial")]
    pub initial: Ms,
    /// Factor from one backoff to the next.
    #[serde(rename = "backoff_factor")]
    pub factor: f64,
    #[serde(rename = "backoff_max")]
    pub max: Ms,
    /// Random share of a backoff, 0 to 1.
    #[serde(rename = "backoff_jitter")]
    pub jitter: f64,
}

/// How long processes are waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GracePolicy {
    /// From SIGTERM to SIGKILL.
    #[serde(rename = "stop_grace")]
    pub stop: Ms,
    /// How long a running save may delay a stop.
    #[serde(rename = "save_grace")]
    pub save: Ms,
    /// How long a guard without a supervisor waits.
    #[serde(rename = "orphan_grace")]
    pub orphan: Ms,
}

/// How checkpoints are proven, and what they may contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProofPolicy {
    /// Depth of proof before a launch.
    pub depth: Depth,
    /// Whether no step is proven deeper than `depth`, whoever wrote it: set when a plan was given a depth, never for a
    /// run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub depth_is_fixed: bool,
    /// `false` switches proof off (to demonstrate what happens without it).
    #[serde(rename = "prove")]
    pub is_on: bool,
    /// Imports that a checkpoint may contain although they are unknown: `module.name`, `module.*`, `*`.
    #[serde(default)]
    pub trust_globals: Vec<String>,
    /// Whether a name on the danger list is accepted.
    #[serde(default)]
    pub trust_unsafe: bool,
    /// Whether a reported step counts although the format of its files is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_reported: bool,
    /// Uids, besides root and the run's own, that may own a checkpoint's files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_owners: Vec<u32>,
    /// Bytes per second that a background proof may read; 0: no limit.
    #[serde(default)]
    pub background_rate: u64,
    /// Bytes of memory that each process may use to check checkpoints; 0: the built-in limit.
    #[serde(default)]
    pub memory: u64,
}

/// How long an attempt may go without progress, and what progress is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StallPolicy {
    /// How long start-up may take before it counts as a stall.
    #[serde(rename = "stall_startup")]
    pub startup: Ms,
    /// A step may take this many times the 99.9th percentile.
    #[serde(rename = "stall_factor")]
    pub factor: f64,
    /// Lower limit of that time.
    #[serde(rename = "stall_minimum")]
    pub minimum: Ms,
    /// How long a save may take.
    #[serde(rename = "stall_save")]
    pub save: Ms,
    /// An attempt without progress for this long is ended, whatever its processes do.
    #[serde(default, rename = "stall_hard")]
    pub hard: HardLimit,
    /// The user's pattern of lines that show a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

/// Which steps are deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetentionPolicy {
    /// Whether older steps are deleted to keep the number of steps the user set.
    pub prune: bool,
    /// How much the trainer's own number of kept steps is raised by.
    pub keep_raise: u32,
}

/// What this start may do, and where it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartPolicy {
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
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            failure: FailurePolicy::default(),
            backoff: BackoffPolicy::default(),
            grace: GracePolicy::default(),
            proof: ProofPolicy::default(),
            stall: StallPolicy::default(),
            retention: RetentionPolicy::default(),
            start: StartPolicy::default(),
            degraded: DegradedPolicy::DataOrder,
            resume_check: ResumeCheck::Report,
            elastic: false,
            check_gpus: true,
            scan_interval: Ms::secs(10),
            restart_for_memory: false,
            max_loss: None,
            rehearse: false,
            assist: Assist::default(),
            protect: Protect::default(),
        }
    }
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            retries: 5,
            step_backs: 2,
            rules: BTreeMap::new(),
            lines: Vec::new(),
        }
    }
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self {
            initial: Ms::secs(5),
            factor: 2.0,
            max: Ms::secs(300),
            jitter: 0.2,
        }
    }
}

impl Default for GracePolicy {
    fn default() -> Self {
        Self {
            stop: Ms::secs(30),
            save: Ms::secs(300),
            orphan: Ms::secs(120),
        }
    }
}

impl Default for ProofPolicy {
    fn default() -> Self {
        Self {
            depth: Depth::Full,
            depth_is_fixed: false,
            is_on: true,
            trust_globals: Vec::new(),
            trust_unsafe: false,
            trust_reported: false,
            trust_owners: Vec::new(),
            background_rate: 1 << 30,
            memory: 256 << 20,
        }
    }
}

impl Default for StallPolicy {
    fn default() -> Self {
        Self {
            startup: Ms::secs(1800),
            factor: 3.0,
            minimum: Ms::secs(600),
            save: Ms::secs(1800),
            hard: HardLimit::Auto,
            progress: None,
        }
    }
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self {
            prune: true,
            keep_raise: 2,
        }
    }
}

impl Default for StartPolicy {
    fn default() -> Self {
        Self {
            allow_fresh: false,
            fresh: false,
            from: None,
            recovery: true,
            off_by_command: false,
            observe: false,
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
