//! Records of the journal: facts, decisions with reasons, intents.
//!
//! `decide` writes records; `RunState::apply` reads them. *Guarded* acts change files or processes for good, so they wait
//! until their intent is durable. *Safety* acts stop harm and are performed at once. *Queries* change nothing.

mod edit;
mod notice;
mod outcome;
mod save_order;

pub use edit::DiskEdit;
pub use notice::NoticeKind;
pub use outcome::RunOutcome;
pub use save_order::{SaveOrder, SaveRequestEnd, SaveRequester};

pub use crate::rulebook::action::FailureAction;

use crate::checkpoint::{CkptId, Depth, PinsHash, StateKind};
use crate::event::{Event, TimerKey};
use crate::id::{ActId, AttemptNo, Step, Term, Tick, WorkerId};
use crate::journal::reason::Reason;
use crate::rulebook::taxonomy::FailureClass;
use crate::spec::ResumeIntent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One record of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "records are folded one by one, and facts are most of them"
)]
pub enum JournalRecord {
    /// Something happened.
    Fact(Event),
    /// Something was decided.
    Decided {
        /// Time of the decision.
        at: Tick,
        /// The decision.
        what: Decision,
        /// The reasons; never empty.
        reasons: Vec<Reason>,
    },
    /// An act is about to be performed.
    Intended {
        /// Time of the intent.
        at: Tick,
        /// The act.
        act: Act,
        /// The reasons; never empty.
        reasons: Vec<Reason>,
    },
    /// An event was not acted upon.
    Ignored {
        /// Time of the event.
        at: Tick,
        /// The event, as text.
        what: String,
        /// Why it was ignored.
        why: String,
    },
}

/// An act, numbered so that its result can be matched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// Number within the run.
    pub id: ActId,
    /// The term that performs it.
    pub term: Term,
    /// The attempt it belongs to.
    pub attempt: Option<AttemptNo>,
    /// What is done.
    pub kind: ActKind,
}

/// The kinds of acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActKind {
    /// Change files under the checkpoint root (guarded).
    Arrange(Vec<DiskEdit>),
    /// Start the workers (guarded).
    Launch(Box<LaunchOrder>),
    /// Delete older steps to keep the number of steps the user set (guarded).
    Prune(Vec<CkptId>),
    /// Copy the proven live set into a generation (guarded).
    Keep {
        /// The live set as it was proven.
        ckpt: CkptId,
        /// The step it holds.
        step: Step,
        /// Its pins: the copy is void if they change while it is made.
        pins: PinsHash,
        /// Bytes per second at most; 0: no limit.
        rate: u64,
    },
    /// Ask the trainer to save at its next step boundary (guarded).
    RequestSave(SaveOrder),
    /// Send a signal to the workers (safety).
    Signal {
        /// Linux signal number.
        signal: i32,
    },
    /// Kill all processes of the attempt (safety).
    KillTree,
    /// Freeze the process tree without killing it (safety).
    Freeze,
    /// Thaw a frozen process tree (safety).
    Thaw,
    /// Exit this supervisor (guarded: the last record must be durable first).
    Finish(RunOutcome),
}

impl ActKind {
    /// Returns true if the act waits until its intent is durable.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        matches!(
            self,
            Self::Arrange(_)
                | Self::Launch(_)
                | Self::Prune(_)
                | Self::Keep { .. }
                | Self::RequestSave(_)
                | Self::Finish(_)
        )
    }
}

/// A launch. The adapter turns it into argv and environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// Number of the attempt.
    pub attempt: AttemptNo,
    /// Where the attempt starts.
    pub from: StartPoint,
    /// State that will not be restored.
    pub lost: Vec<StateKind>,
    /// Number of nodes that its workers start on.
    #[serde(default = "crate::spec::one", skip_serializing_if = "crate::spec::is_one")]
    pub nodes: u32,
}

/// Where an attempt starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPoint {
    /// From a proven step.
    Step {
        /// Directory relative to the root, or absolute if the user named one outside it.
        ckpt: CkptId,
        /// The step.
        step: Step,
        /// Pins of its files, checked again right before the launch.
        pins: PinsHash,
        /// Contents that every role loads (`model`, `optimizer`, `extra`).
        load: Vec<String>,
        /// Contents that each role loads, if they differ between roles.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        roles: BTreeMap<String, Vec<String>>,
    },
    /// From scratch.
    Fresh,
    /// The command runs as the user wrote it, because nothing is known about its checkpoints.
    AsIs,
}

impl StartPoint {
    /// The step it starts from, 0 for a fresh start.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self::Step { step, .. } => *step,
            Self::Fresh | Self::AsIs => Step(0),
        }
    }
}

/// Decisions that change the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Make sure that no process of an earlier attempt is running.
    Fence {
        /// The earlier attempt.
        attempt: Option<AttemptNo>,
    },
    /// Take over the workers of a running guard.
    TakeOver {
        /// Their attempt.
        attempt: AttemptNo,
    },
    /// Scan the disk to choose where to start.
    Choose,
    /// Where the run starts, and which disk edits are needed first.
    StartFrom {
        /// The order that will be launched.
        order: LaunchOrder,
        /// Disk edits to make before the launch.
        edits: Vec<DiskEdit>,
        /// Whether this step was chosen when the run was adopted.
        care: bool,
        /// What the configuration requested at that time.
        intent: ResumeIntent,
    },
    /// The disk edits are done: launch.
    Launch {
        /// The order to launch.
        order: LaunchOrder,
    },
    /// The workers are running.
    Run,
    /// Let a running save finish first.
    Drain {
        /// Time limit.
        until: Tick,
        /// What follows.
        then: AfterStop,
    },
    /// Stop the workers.
    Stop {
        /// What follows.
        then: AfterStop,
        /// Whether SIGTERM comes first; `false`: kill at once.
        gently: bool,
    },
    /// The cause of the attempt's end was found.
    Diagnosed(Diagnosis),
    /// The step that was resumed from failed to load and is not chosen again.
    Distrust {
        /// Directory of the step.
        ckpt: CkptId,
    },
    /// An operator restarted the run after an end that needed one: excluded steps may be chosen again.
    Trust {
        /// Directories of the steps.
        ckpts: Vec<CkptId>,
    },
    /// A retry is charged or not.
    Charge {
        /// Attempts without progress, including this one.
        attempts: u32,
        /// Step-backs, including this one.
        step_backs: u32,
        /// Whether it is not charged, because the attempt was ended from outside.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        spared: bool,
    },
    /// A plain command ran for a long time: earlier deaths of our own processes no longer count.
    Refilled,
    /// The attempt printed a step beyond all earlier attempts, in a run where nothing can be proven: the retry count
    /// restarts.
    Advanced {
        /// The step it printed.
        step: Step,
    },
    /// Wait for a condition.
    Wait {
        /// The condition.
        what: WaitCondition,
        /// Time limit.
        until: Tick,
    },
    /// A step above the high-water mark was proven.
    Mark {
        /// The new high-water mark.
        step: Step,
    },
    /// A request for a save is over.
    SaveRequestEnded {
        /// Number of the request.
        id: u64,
        /// How it ended.
        how: SaveRequestEnd,
    },
    /// Stop the run at the next proven step.
    StopAfterSave,
    /// Stop the run before it is preempted.
    HandBack {
        /// Who announced the preemption.
        by: String,
        /// Time of the preemption, if known.
        until: Option<Tick>,
    },
    /// The attempt looks stuck.
    Suspect {
        /// Description.
        what: String,
    },
    /// Something about the attempt that an operator should know. It does not end the attempt.
    Noticed {
        /// The kind of notice.
        what: NoticeKind,
        /// Description.
        text: String,
    },
    /// The files of a long save are growing.
    SaveGrows {
        /// The step that is being saved.
        step: Step,
        /// Bytes written so far.
        bytes: u64,
    },
    /// An act that was skipped because the run is only observed.
    WouldHave {
        /// The act, as text.
        what: String,
    },
    /// No known line shows the progress of the command, so a hang is not detected.
    Unwatched {
        /// Description.
        what: String,
    },
    /// The run is over.
    Finish {
        /// How it ended.
        outcome: RunOutcome,
    },
}

/// Reason code: ask what a step imports before it is loaded.
pub const UNFAMILIAR_GLOBALS: &str = "unfamiliar_globals";
/// Reason code: the run was only observed, so its end does not block a later start.
pub const ONLY_OBSERVED: &str = "only_observed";
/// Reason code: the step counts because the loop reported it.
pub const REPORTED: &str = "reported";
/// Reason code: the trainer ended its training before the last planned step.
pub const STOPPED_EARLY: &str = "stopped_early";
/// Reason code: the requested step is not whole.
pub const ASKED_STEP_NOT_WHOLE: &str = "asked_step_not_whole";
/// Reason code: the attempt was stopped because its weights are non-finite.
pub const BACK_TO_FINITE: &str = "back_to_finite";
/// Reason code: the run ends because its weights are non-finite and the trainer would soon delete the last finite step.
pub const LAST_FINITE: &str = "last_finite";

/// What follows once the workers have exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterStop {
    /// Diagnose the end and decide whether to relaunch.
    Diagnose,
    /// Finish with `Outcome::Stopped`.
    Stopped,
    /// Finish because the lease was lost.
    LeaseLost,
    /// Scan the disk and launch.
    Choose,
}

/// A condition that the run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCondition {
    /// The end of the backoff.
    Backoff,
    /// A newer step that cannot be read yet.
    Readable,
    /// A writable journal.
    JournalWritable,
    /// The exit of unkillable processes.
    TreeGone,
    /// A cluster started by someone else: it must answer, and have released the previous attempt.
    ClusterFree,
    /// The GPUs that the run names must be free.
    GpusFree,
    /// Free space for a save.
    Space,
    /// The operator who holds the run must release it.
    Unheld,
}

/// The cause of an attempt's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Class in the failure table (`mem.cuda_oom`, `kill.unknown`).
    pub class: FailureClass,
    /// The answer in the table.
    pub action: FailureAction,
    /// The answer in the user's policy, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<FailureAction>,
    /// Advice of the user's rule, for a class that the user defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Hash of the root cause: equal causes have equal hashes.
    pub fingerprint: u64,
    /// The step at which it happened: the newest one printed, else the resume point.
    pub step: Option<Step>,
    /// Description.
    pub text: String,
    /// The node whose hardware it names. The next attempt avoids it if another node can take its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The worker whose output or exit shows the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// Whether the program failed before its first step: the policy has a row for that (`code.at_start`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
}

/// Queries: they change nothing and are not journaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorldQuery {
    /// Scan the checkpoint root and prove steps, newest first, until `whole` whole steps are found. A later scan
    /// replaces this one: its result started too early and must not be delivered.
    Scan {
        depth: Depth,
        /// How many whole steps are enough.
        whole: u32,
    },
    /// Let the trainer compose the configuration of a relaunch while the training runs.
    Rehearse,
    /// Query the free space on the disk of the checkpoint root.
    Space,
    /// Query when the scheduler's job ends.
    Allocation,
    /// Check the weights of a step for non-finite values, which reads every byte.
    Finite {
        /// The step to check.
        ckpt: CkptId,
    },
    /// Look for the trainer's answer to a request for a save.
    SaveAnswer {
        attempt: AttemptNo,
        /// Number of the request.
        id: u64,
    },
    /// Set a timer.
    WakeAt {
        /// Replaces an earlier timer with this key.
        key: TimerKey,
        at: Tick,
    },
}

/// The result of deciding: what to record and what to query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecideOutput {
    /// Applied and journaled in this order.
    pub records: Vec<JournalRecord>,
    /// Sent after the records.
    pub asks: Vec<WorldQuery>,
}
