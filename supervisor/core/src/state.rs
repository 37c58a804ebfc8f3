//! The state of a run: a fold over its records.
//!
//! `apply` is total and holds no policy: what a record means for the state is decided when it is written.
//! `status`, `explain` and recovery use nothing else, so an old journal folds under new code to the same state.

mod apply;
mod attempt;
mod budget;
mod derived;
mod end_cause;
mod invariants;
mod memory;
mod own;
mod parts;
mod progress;
mod requests;
mod sightings;
mod spreads;
mod term;
mod weights;

pub use end_cause::{EndCause, RESUMED_ELSEWHERE, STALLED, WORKER_FAILED};
pub use invariants::InvariantViolation;
pub use memory::{AdoptionPoint, LetGo, NotKept, PastFailure, RollBack, RunHold, SchedulerJob, StopWish};
pub use own::{OwnStep, StepOrigin};
pub use parts::{
    AttemptEnd, AttemptLaunch, AttemptOutput, AttemptTraining, DiskState, RequestState, RetryBudget, RunProgress,
    TermContext,
};
pub use progress::AttemptProgress;
pub use sightings::SightingMoment;
pub use spreads::Spreads;

use crate::checkpoint::kind::is_live;
use crate::checkpoint::{CheckpointSummary, Resumability, Verdict};
use crate::event::ExitStatus;
use crate::event::rehearsal::Rehearsal;
use crate::id::{ActId, AttemptNo, Term, Tick, WallMs, WorkerId};
use crate::journal::reason::Reason;
use crate::journal::record::{Act, ActKind, AfterStop, LaunchOrder, RunOutcome, WaitCondition};
use crate::observe::durations::Clocks;
use crate::spec::gang::AttemptNodes;
use crate::spec::seen::TrainerSeen;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a decision may look at besides the specification and the event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// The present (or last) term.
    pub term: Term,
    /// Time of the newest record.
    pub now: Tick,
    /// The same for people.
    pub wall: WallMs,
    /// Activity of the supervisor.
    pub mode: RunMode,
    /// When it began to do so.
    pub since: Tick,
    /// Attempts launched over the life of the run.
    pub attempts: AttemptNo,
    /// The present attempt, or the last one.
    pub attempt: Option<Attempt>,
    /// An attempt was ended because its weights were no numbers any more: not done again before a person looked at the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_back: bool,
    /// Intents without a result.
    pub pending: BTreeMap<ActId, Act>,
    /// The number of the next act.
    pub next_act: ActId,
    /// The last relaunch that was tried in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<Rehearsal>,
    /// The trainer that was seen while it ran, where the command tells of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<TrainerSeen>,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// The newest decision's reasons.
    pub why: Vec<Reason>,
    /// How long things took, over all attempts.
    #[serde(default, skip_serializing_if = "Clocks::is_empty")]
    pub clocks: Clocks,
    #[serde(flatten)]
    pub context: TermContext,
    #[serde(flatten)]
    pub progress: RunProgress,
    #[serde(flatten)]
    pub budget: RetryBudget,
    #[serde(flatten)]
    pub disk: DiskState,
    #[serde(flatten)]
    pub requests: RequestState,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_yet(n: &u32) -> bool {
    *n == 0
}

/// Activity of the supervisor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// Nothing yet.
    #[default]
    Idle,
    /// Making sure that no earlier attempt lives.
    Fencing,
    /// Looking at the disk.
    Choosing,
    /// Changing the disk before a launch.
    Arranging {
        /// The launch to come.
        order: LaunchOrder,
    },
    /// Starting workers.
    Launching {
        /// The command that is launched.
        order: LaunchOrder,
    },
    /// Workers run.
    Running,
    /// A save may finish.
    Draining {
        /// Until when.
        until: Tick,
        /// The act that follows.
        then: AfterStop,
    },
    /// Workers are being ended.
    Stopping {
        /// The act that follows.
        then: AfterStop,
        /// SIGTERM was sent first.
        gently: bool,
    },
    /// Waiting for a condition.
    Waiting {
        /// Which.
        what: WaitCondition,
        /// Until when at most.
        until: Tick,
    },
    /// It is over.
    Finished,
}

impl RunMode {
    /// One word for `status` and `--json`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Fencing => "fencing",
            Self::Choosing => "choosing",
            Self::Arranging { .. } => "arranging",
            Self::Launching { .. } => "launching",
            Self::Running => "running",
            Self::Draining { .. } => "draining",
            Self::Stopping { .. } => "stopping",
            Self::Waiting { .. } => "waiting",
            Self::Finished => "finished",
        }
    }
}

/// One launch of all workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number.
    pub no: AttemptNo,
    /// The term that launched it.
    pub term: Term,
    /// The order.
    pub order: LaunchOrder,
    /// Ends so far.
    pub exits: BTreeMap<WorkerId, ExitStatus>,
    /// Its nodes, where it has several.
    #[serde(default, skip_serializing_if = "AttemptNodes::is_empty")]
    pub nodes: AttemptNodes,
    /// Lines that each worker's script had printed when it called the trainer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub called: BTreeMap<WorkerId, u64>,
    #[serde(flatten)]
    pub launch: AttemptLaunch,
    #[serde(flatten)]
    pub training: AttemptTraining,
    #[serde(flatten)]
    pub output: AttemptOutput,
    #[serde(flatten)]
    pub end: AttemptEnd,
}

impl RunState {
    /// The exit code of a run that ended: who stopped it counts.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        let by = self.requests.stop.as_ref().map(|w| w.by.as_str());
        match (self.outcome.as_ref()?, by) {
            (RunOutcome::Stopped, Some("SIGINT")) => Some(130),
            (RunOutcome::Stopped, Some("SIGTERM")) => Some(143),
            (outcome, _) => Some(outcome.exit_code()),
        }
    }

    /// The run was adopted, but nothing was launched since: its disk edits may be half done, and what is
    /// on disk is still another run's.
    #[must_use]
    pub fn care_is_unfinished(&self) -> bool {
        self.requests.care.as_ref().is_some_and(|c| self.attempts < c.attempt)
    }

    /// The newest whole step of the last scan that stands under the checkpoint root.
    #[must_use]
    pub fn newest_whole(&self) -> Option<&CheckpointSummary> {
        self.disk
            .scan
            .as_ref()?
            .steps
            .iter()
            .find(|c| c.verdict == Verdict::Whole && c.proven.is_some() && !c.id.0.is_absolute())
    }

    /// Returns true if this step's save is not over, or was cut short: it lacks state that an older step holds, or it is the
    /// newest one while its writer lives.
    #[must_use]
    pub fn is_cut_short(&self, c: &CheckpointSummary) -> bool {
        let Some(scan) = self.disk.scan.as_ref().filter(|_| c.resume != Resumability::Exact) else {
            return false;
        };
        // A save that overwrites the only checkpoint is whole or not; what it loses, any later one loses too.
        if c.save.is_some() || is_live(&c.id) {
            return false;
        }
        let newest = scan.steps.first().is_some_and(|x| x.id == c.id);
        let older = scan.steps.iter().any(|x| {
            x.step < c.step && x.resume == Resumability::Exact && x.verdict == Verdict::Whole && x.proven.is_some()
        });
        older || newest && self.live().is_some()
    }

    /// A copy of the live set is on its way.
    #[must_use]
    pub fn is_keeping(&self) -> bool {
        self.pending.values().any(|a| matches!(a.kind, ActKind::Keep { .. }))
    }

    /// Somebody wants the run to end, not at its next save but as soon as its workers can be ended.
    #[must_use]
    pub fn is_to_stop(&self) -> bool {
        self.requests.stop.as_ref().is_some_and(|w| !w.after_save)
    }

    /// The present term launched an attempt.
    #[must_use]
    pub fn has_launched(&self) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.term == self.term)
    }

    /// The attempt that lives, or may live.
    #[must_use]
    pub fn live(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|a| !a.end.gone)
    }
}
