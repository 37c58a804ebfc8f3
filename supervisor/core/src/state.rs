//! State of a run, replayed from its journal records.
//!
//! `apply` accepts every record and holds no policy: the meaning of a record is fixed when it is written. `status`, `explain` and
//! recovery use nothing else, so new code replays an old journal to the same state.

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
mod saves;
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
pub use saves::{ANSWER_LOOK, AttemptSaves, SaveRequest};
pub use sightings::SightingMoment;
pub use spreads::Spreads;

use crate::checkpoint::kind::is_live;
use crate::checkpoint::{CheckpointSummary, Resumability, Verdict};
use crate::event::ExitStatus;
use crate::event::rehearsal::Rehearsal;
use crate::id::{ActId, AttemptNo, Term, Tick, WallMs, WorkerId};
use crate::journal::reason::Reason;
use crate::journal::record::{
    ASKED_STEP_NOT_WHOLE, Act, ActKind, AfterStop, LaunchOrder, ONLY_OBSERVED, RunOutcome, WaitCondition,
};
use crate::observe::durations::Clocks;
use crate::spec::gang::AttemptNodes;
use crate::spec::seen::TrainerSeen;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a decision may use besides the specification and the event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Current term, or the last one.
    pub term: Term,
    /// Time of the newest record.
    pub now: Tick,
    /// The same as wall-clock time.
    pub wall: WallMs,
    /// Current activity of the supervisor.
    pub mode: RunMode,
    /// When the supervisor entered this mode.
    pub since: Tick,
    /// Attempts launched since the run was created.
    pub attempts: AttemptNo,
    /// Launches that followed the end of an attempt, without a start by an operator or a scheduler in between.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub restarts: u32,
    /// Current attempt, or the last one.
    pub attempt: Option<Attempt>,
    /// Whether an attempt was stopped because of non-finite weights; not done again until an operator acts on the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_back: bool,
    /// Acts that were started and have no result yet.
    pub pending: BTreeMap<ActId, Act>,
    /// Id of the next act.
    pub next_act: ActId,
    /// Last rehearsal of a relaunch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<Rehearsal>,
    /// Trainer recognized from its processes, if the command does not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<TrainerSeen>,
    /// How the run ended.
    pub outcome: Option<RunOutcome>,
    /// Reasons of the newest decision.
    pub why: Vec<Reason>,
    /// Measured durations over all attempts.
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

/// Current activity of the supervisor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// Before the first decision.
    #[default]
    Idle,
    /// Making sure that no earlier attempt is still running.
    Fencing,
    /// Choosing the step to resume from.
    Choosing,
    /// Editing the checkpoint root before a launch.
    Arranging {
        /// Launch that follows.
        order: LaunchOrder,
    },
    /// Starting workers.
    Launching {
        /// Launch in progress.
        order: LaunchOrder,
    },
    /// Workers are running.
    Running,
    /// Waiting for a running save to finish.
    Draining {
        /// Deadline.
        until: Tick,
        /// What follows the stop.
        then: AfterStop,
    },
    /// Stopping the workers.
    Stopping {
        /// What follows the stop.
        then: AfterStop,
        /// Whether SIGTERM was sent first.
        gently: bool,
    },
    /// Waiting for a condition.
    Waiting {
        /// Condition that is awaited.
        what: WaitCondition,
        /// Deadline.
        until: Tick,
    },
    /// The run is over.
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
    /// Number of the attempt.
    pub no: AttemptNo,
    /// Term that launched it.
    pub term: Term,
    /// Order it was launched with.
    pub order: LaunchOrder,
    /// Exit statuses so far.
    pub exits: BTreeMap<WorkerId, ExitStatus>,
    /// Nodes of the attempt, if there are several.
    #[serde(default, skip_serializing_if = "AttemptNodes::is_empty")]
    pub nodes: AttemptNodes,
    /// Number of lines each worker's script had printed when it called the trainer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub called: BTreeMap<WorkerId, u64>,
    #[serde(flatten)]
    pub launch: AttemptLaunch,
    #[serde(flatten)]
    pub training: AttemptTraining,
    #[serde(flatten)]
    pub saves: AttemptSaves,
    #[serde(flatten)]
    pub output: AttemptOutput,
    #[serde(flatten)]
    pub end: AttemptEnd,
}

impl RunState {
    /// Exit code of an ended run; a stop by SIGINT or SIGTERM has its own.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        let by = self.requests.stop.as_ref().map(|w| w.by.as_str());
        match (self.outcome.as_ref()?, by) {
            (RunOutcome::Stopped, Some("SIGINT")) => Some(130),
            (RunOutcome::Stopped, Some("SIGTERM")) => Some(143),
            (outcome, _) => Some(outcome.exit_code()),
        }
    }

    /// The outcome, if a start may not act before an operator clears it. An end that was due to the options of one start does not
    /// count: an observed run, or a step named with `--from` that is not whole.
    #[must_use]
    pub fn needs_a_person(&self) -> Option<&RunOutcome> {
        let is_due_to_options = |r: &Reason| matches!(&*r.code, ONLY_OBSERVED | ASKED_STEP_NOT_WHOLE);
        let outcome = self.outcome.as_ref().filter(|outcome| outcome.needs_a_person());
        outcome.filter(|_| !self.why.iter().any(is_due_to_options))
    }

    /// Returns true if the run was adopted but nothing was launched since: its disk edits may be half done, and the checkpoints on disk
    /// still belong to another run.
    #[must_use]
    pub fn care_is_unfinished(&self) -> bool {
        self.requests.care.as_ref().is_some_and(|c| self.attempts < c.attempt)
    }

    /// Newest whole step under the checkpoint root in the last scan.
    #[must_use]
    pub fn newest_whole(&self) -> Option<&CheckpointSummary> {
        self.disk
            .scan
            .as_ref()?
            .steps
            .iter()
            .find(|c| c.verdict == Verdict::Whole && c.proven.is_some() && !c.id.0.is_absolute())
    }

    /// Returns true if the save of this step is unfinished or interrupted: it lacks state that an older step has, or it is the newest
    /// step while its writer is running.
    #[must_use]
    pub fn is_cut_short(&self, c: &CheckpointSummary) -> bool {
        let Some(scan) = self.disk.scan.as_ref().filter(|_| c.resume != Resumability::Exact) else {
            return false;
        };
        // A save that overwrites the only checkpoint is whole or not; later saves lack the same state.
        if c.save.is_some() || is_live(&c.id) {
            return false;
        }
        let newest = scan.steps.first().is_some_and(|x| x.id == c.id);
        let older = scan.steps.iter().any(|x| {
            x.step < c.step && x.resume == Resumability::Exact && x.verdict == Verdict::Whole && x.proven.is_some()
        });
        older || newest && self.live().is_some()
    }

    /// Returns true while the live set is being copied.
    #[must_use]
    pub fn is_keeping(&self) -> bool {
        self.pending.values().any(|a| matches!(a.kind, ActKind::Keep { .. }))
    }

    /// Returns true if a stop was requested that does not wait for the next save.
    #[must_use]
    pub fn is_to_stop(&self) -> bool {
        self.requests.stop.as_ref().is_some_and(|w| !w.after_save)
    }

    /// Returns true if the current term launched an attempt.
    #[must_use]
    pub fn has_launched(&self) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.term == self.term)
    }

    /// The attempt, unless all its processes have exited.
    #[must_use]
    pub fn live(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|a| !a.end.gone)
    }
}
