//! Records of the journal: facts, decisions with reasons, intents.
//!
//! `decide` writes records; `State::apply` reads them. *Guarded* acts change the world for good and wait for
//! their intent to be durable. *Safety* acts stop harm and are performed at once. *Asks* change nothing.

mod edit;
mod notice;
mod outcome;

pub use edit::DiskEdit;
pub use notice::NoticeKind;
pub use outcome::RunOutcome;

pub use crate::rulebook::action::FailureAction;

use crate::checkpoint::{CkptId, Depth, PinsHash, StateKind};
use crate::event::{Event, TimerKey};
use crate::id::{ActId, AttemptNo, Step, Term, Tick, WorkerId};
use crate::journal::reason::Reason;
use crate::rulebook::taxonomy::FailureClass;
use crate::spec::ResumeIntent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of the journal.
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
        /// When.
        at: Tick,
        /// A description.
        what: Decision,
        /// Why; never empty.
        reasons: Vec<Reason>,
    },
    /// An act is about to be performed.
    Intended {
        /// When.
        at: Tick,
        /// A description.
        act: Act,
        /// Why; never empty.
        reasons: Vec<Reason>,
    },
    /// An event was not acted upon.
    Ignored {
        /// When.
        at: Tick,
        /// The event, in words.
        what: String,
        /// Why it does not count.
        why: String,
    },
}

/// An act, numbered so that its result can be matched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// Number within the run.
    pub id: ActId,
    /// The term that intends it.
    pub term: Term,
    /// The attempt it belongs to.
    pub attempt: Option<AttemptNo>,
    /// The change.
    pub kind: ActKind,
}

/// Acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActKind {
    /// Change files under the checkpoint root (guarded).
    Arrange(Vec<DiskEdit>),
    /// Start the workers (guarded).
    Launch(Box<LaunchOrder>),
    /// Delete older steps to keep the user's number true (guarded).
    Prune(Vec<CkptId>),
    /// Copy the live set, which is proven, into a generation (guarded).
    Keep {
        /// The live set as it was proven.
        ckpt: CkptId,
        /// The step it holds.
        step: Step,
        /// Its kind: the copy is void if it changes meanwhile.
        pins: PinsHash,
        /// Bytes a second at most; 0 for no limit.
        rate: u64,
    },
    /// Send a signal to the workers (safety).
    Signal {
        /// Linux signal number.
        signal: i32,
    },
    /// Kill every process of the attempt (safety).
    KillTree,
    /// Stop the tree without ending it (safety).
    Freeze,
    /// Let a frozen tree go on (safety).
    Thaw,
    /// End this supervisor (guarded: the last record is durable first).
    Finish(RunOutcome),
}

impl ActKind {
    /// Returns true if it waits for its intent to be durable.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        matches!(
            self,
            Self::Arrange(_) | Self::Launch(_) | Self::Prune(_) | Self::Keep { .. } | Self::Finish(_)
        )
    }
}

/// The launch to make. The adapter turns it into argv and environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// The attempt.
    pub attempt: AttemptNo,
    /// From where.
    pub from: StartPoint,
    /// State that will not be restored.
    pub lost: Vec<StateKind>,
    /// Nodes that its workers are started on.
    #[serde(default = "crate::spec::one", skip_serializing_if = "crate::spec::is_one")]
    pub nodes: u32,
}

/// Place where an attempt starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPoint {
    /// From a proven step.
    Step {
        /// Directory relative to the root, or absolute where the user named one elsewhere.
        ckpt: CkptId,
        /// The step.
        step: Step,
        /// Checked again right before the launch.
        pins: PinsHash,
        /// Contents that every role loads (`model`, `optimizer`, `extra`).
        load: Vec<String>,
        /// Contents that each role loads, where they do not load the same.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        roles: BTreeMap<String, Vec<String>>,
    },
    /// From nothing.
    Fresh,
    /// The command runs as the user wrote it: nothing is known of its checkpoints.
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
    /// Make sure no earlier attempt lives.
    Fence {
        /// Its number.
        attempt: Option<AttemptNo>,
    },
    /// Go on with the workers of a living guard.
    TakeOver {
        /// Their attempt.
        attempt: AttemptNo,
    },
    /// Look at the disk to choose where to start.
    Choose,
    /// This is where the run starts, and what must be changed on disk first.
    StartFrom {
        /// The order that will be launched.
        order: LaunchOrder,
        /// Disk edits to be done before.
        edits: Vec<DiskEdit>,
        /// This is the step chosen when the run was taken into care.
        care: bool,
        /// Request of the configuration then.
        intent: ResumeIntent,
    },
    /// The edits are done: launch.
    Launch {
        /// The order.
        order: LaunchOrder,
    },
    /// Workers run.
    Run,
    /// A save that is going on may finish first.
    Drain {
        /// Until when.
        until: Tick,
        /// The act that follows.
        then: AfterStop,
    },
    /// End the workers.
    Stop {
        /// The act that follows.
        then: AfterStop,
        /// SIGTERM first (`false`: kill at once).
        gently: bool,
    },
    /// The cause of the attempt's end was found.
    Diagnosed(Diagnosis),
    /// The step that was resumed from failed to load: it is not chosen again.
    Distrust {
        /// The step's directory.
        ckpt: CkptId,
    },
    /// A person started the run again after an end that needed one: what was not to be chosen again may be.
    Trust {
        /// The steps' directories.
        ckpts: Vec<CkptId>,
    },
    /// A retry is charged, or not.
    Charge {
        /// Attempts without progress, after this one.
        attempts: u32,
        /// Step-backs, after this one.
        step_backs: u32,
        /// Others ended the attempt: it costs nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        spared: bool,
    },
    /// A plain command lived long: deaths of our own processes before it do not count any more.
    Refilled,
    /// The attempt printed a step beyond those of all attempts before, in a run of which nothing can be proven: the retries count anew.
    Advanced {
        /// The step.
        step: Step,
    },
    /// Wait for a condition.
    Wait {
        /// For what.
        what: WaitCondition,
        /// Until when at most.
        until: Tick,
    },
    /// A step became proven that is above the high-water mark.
    Mark {
        /// The step.
        step: Step,
    },
    /// The run should stop at the next proven step.
    StopAfterSave,
    /// The run stops in time before the machine is taken away.
    HandBack {
        /// The one that said so.
        by: String,
        /// When that is, where it is known.
        until: Option<Tick>,
    },
    /// The attempt looks stuck.
    Suspect {
        /// In words.
        what: String,
    },
    /// Something that a person should know of the attempt; by itself it ends nothing.
    Noticed {
        /// The kind.
        what: NoticeKind,
        /// In words.
        text: String,
    },
    /// The files of a save that takes long grow.
    SaveGrows {
        /// The step that is saved.
        step: Step,
        /// Its bytes so far.
        bytes: u64,
    },
    /// An act that is left out because the run is only watched.
    WouldHave {
        /// In words.
        what: String,
    },
    /// No line tells how the command gets on: a hang is not noticed.
    Unwatched {
        /// In words.
        what: String,
    },
    /// It is over.
    Finish {
        /// How.
        outcome: RunOutcome,
    },
}

/// Code of the reason to ask what a step imports before it is loaded.
pub const UNFAMILIAR_GLOBALS: &str = "unfamiliar_globals";
/// Code of the reason for which an attempt is ended whose weights are no numbers.
pub const BACK_TO_FINITE: &str = "back_to_finite";
/// The same, where the run ends with it: the trainer would soon delete the last step whose weights are finite.
pub const LAST_FINITE: &str = "last_finite";

/// The act that follows once the workers are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterStop {
    /// Find out why, decide on a relaunch.
    Diagnose,
    /// End with `Outcome::Stopped`.
    Stopped,
    /// End with the given outcome.
    LeaseLost,
    /// Look at the disk and launch.
    Choose,
}

/// The condition that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCondition {
    /// Time, as back-off.
    Backoff,
    /// A newer step can be read.
    Readable,
    /// The journal can be written.
    JournalWritable,
    /// Processes that cannot be killed are gone.
    TreeGone,
    /// A cluster that somebody else started answers, and has let go of the attempt before.
    ClusterFree,
    /// The GPUs that the run names are empty.
    GpusFree,
    /// There is room for a save.
    Space,
    /// The person who holds the run is done with it.
    Unheld,
}

/// Cause of the end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Class as in the failure table (`mem.cuda_oom`, `kill.unknown`).
    pub class: FailureClass,
    /// Answer of the table.
    pub action: FailureAction,
    /// Answer of the user's policy, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<FailureAction>,
    /// Advice of the user's rule, for a class of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Same root, same hash.
    pub fingerprint: u64,
    /// The step it happened at: the newest one that was printed, else the resume point.
    pub step: Option<Step>,
    /// In words.
    pub text: String,
    /// The node whose hardware it names: the next attempt is started without it, where another can take its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The worker whose output or end tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// An error of the program before its first step: the policy has a row of its own for it (`code.at_start`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
}

/// Questions to the world: they change nothing and are not journaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorldQuery {
    /// Scan the checkpoint root and prove newest first until `whole` whole steps are found. A later scan that is
    /// asked for replaces this one: its answer, begun too early, must not be delivered any more.
    Scan {
        /// Depth of proof.
        depth: Depth,
        /// How many whole steps are enough.
        whole: u32,
    },
    /// Let the trainer compose the configuration of a relaunch, beside the training.
    Rehearse,
    /// How much of the disk of the checkpoint root is free.
    Space,
    /// When the scheduler's job ends.
    Allocation,
    /// The finiteness of the numbers in a step: every byte is read.
    Finite {
        /// The step.
        ckpt: CkptId,
    },
    /// Wake me.
    WakeAt {
        /// Replaces an earlier wake-up of this key.
        key: TimerKey,
        /// When.
        at: Tick,
    },
}

/// The result of deciding: what to record, and what to ask.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecideOutput {
    /// To be applied and journaled in this order.
    pub records: Vec<JournalRecord>,
    /// To be asked after.
    pub asks: Vec<WorldQuery>,
}
