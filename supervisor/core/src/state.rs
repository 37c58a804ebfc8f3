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
pub use progress::AttemptProgress;
pub use sightings::SightingMoment;
pub use spreads::Spreads;

use crate::checkpoint::finiteness::WeightsLook;
use crate::checkpoint::kind::is_live;
use crate::checkpoint::reshard::{ReshardSpec, ReshardedStep};
use crate::checkpoint::{CheckpointSummary, CkptId, PinsHash, Resumability, Verdict};
use crate::event::rehearsal::Rehearsal;
use crate::event::scan::RuleKind;
use crate::event::{ExitStatus, ScanReport, Sighting, TrainerPhase};
use crate::id::{ActId, AttemptNo, Ms, ProcRef, Step, Term, Tick, WallMs, WorkerId};
use crate::journal::reason::Reason;
use crate::journal::record::{Act, ActKind, AfterStop, Diagnosis, LaunchOrder, NoticeKind, RunOutcome, WaitCondition};
use crate::observe::collapse::CollapseTracker;
use crate::observe::creep::Creep;
use crate::observe::durations::Clocks;
use crate::observe::machine::MachineFacts;
use crate::observe::numbers::StepNumbers;
use crate::spec::gang::AttemptNodes;
use crate::spec::script::ScriptNews;
use crate::spec::seen::TrainerSeen;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a decision may look at besides the specification and the event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// The present (or last) term.
    pub term: Term,
    /// Configuration hash of the present term.
    pub config: u64,
    /// Version of the trainer, where a term knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_version: Option<String>,
    /// Its version before that term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_before: Option<String>,
    /// Boot id of the machine at the beginning of the term.
    pub boot: String,
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
    /// Highest step ever proven in this run.
    pub mark: Option<Step>,
    /// Highest step that an attempt before the present one printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Step>,
    /// Attempts without progress since the last mark.
    pub charged: u32,
    /// Times the run stepped back behind its mark.
    pub step_backs: u32,
    /// Deaths of our own processes since the last mark.
    pub own_deaths: u32,
    /// Attempts that others ended since the last mark.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub spared: u32,
    /// Terms that launched since the last mark.
    pub barren_terms: u32,
    /// Remembered failures since the configuration last changed.
    pub failures: Vec<PastFailure>,
    /// Numbers that earlier attempts printed, newest last; at most one for each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepNumbers>,
    /// The last scan of the disk.
    pub scan: Option<ScanReport>,
    /// Highest step of which every byte was read and found right, of those in our care.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Step>,
    /// How much was recorded of scans as differences since the last one that was recorded whole; `None`: the next one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_told: Option<u64>,
    /// Steps that were there when the last attempt was gone: a new one before the next launch is a stranger's.
    pub settled: Option<Vec<CkptId>>,
    /// Steps that this run wrote or accepted, by their directories: what the file system said of them then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, OwnStep>,
    /// Steps that were there when the last attempt was launched and that this run did not write, with their pins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, PinsHash>,
    /// An attempt was alive in this term: what it writes is seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// The live set was put back from a copy since the last scan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_back: bool,
    /// Steps of other users that were told to go aside: one that is still there could not be moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immovable: Vec<CkptId>,
    /// Place where the run was taken into care.
    pub care: Option<AdoptionPoint>,
    /// The user's wish (`disable`, `resume_path`, `--fresh`) was fulfilled: a step of our own is proven.
    pub wish_done: bool,
    /// The machine was rebooted or its disk was full since the last mark: every byte is read.
    pub doubt: bool,
    /// How often in a row the disk was found full since the last mark, by an attempt or by a change of our own.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub full: u32,
    /// The last change of our own, or the last launch, found no room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_room: bool,
    /// Steps that failed to load.
    pub distrusted: Vec<CkptId>,
    /// An attempt was ended because its weights were no numbers any more: not done again before a person looked at the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_back: bool,
    /// The disk was looked at since the present choice began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looked: bool,
    /// Looks at the weights of steps, by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<WeightsLook>,
    /// The course of its entropy and reward.
    #[serde(default, skip_serializing_if = "CollapseTracker::is_empty")]
    pub course: CollapseTracker,
    /// A stop was asked for.
    pub stop: Option<StopWish>,
    /// A person works on the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<RunHold>,
    /// A person lets it go on after an end that needed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go: Option<LetGo>,
    /// A person sent the run back: the next launch resumes from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<RollBack>,
    /// The scheduler's job that the present term runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<SchedulerJob>,
    /// Intents without a result.
    pub pending: BTreeMap<ActId, Act>,
    /// The number of the next act.
    pub next_act: ActId,
    /// The last planned step as the trainer printed it.
    pub total: Option<Step>,
    /// The journal cannot be written now.
    pub journal_stalled: bool,
    /// The I/O worker does not answer now.
    #[serde(rename = "lane_stalled")]
    pub io_stalled: Option<String>,
    /// Deleting older steps failed when this was the mark: not tried again before the next one.
    #[serde(default)]
    pub prune_failed: Option<Step>,
    /// Copies of the live set in a row that a save voided.
    #[serde(default)]
    pub voided: u32,
    /// The live set that could not be copied: not tried again before the next save.
    #[serde(default)]
    pub keep_failed: Option<NotKept>,
    /// How often the live set was arranged since the last launch: it is looked at once more before the next.
    #[serde(default)]
    pub arranged: u32,
    /// A step that is being cut anew: until that is known to have ended, nothing else is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutting: Option<ReshardSpec>,
    /// Steps that were cut anew, the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<ReshardedStep>,
    /// How each save is spread over ranks.
    #[serde(default, skip_serializing_if = "Spreads::is_empty")]
    pub spreads: Spreads,
    /// Disk edits were begun since the last launch: what differs from before may be ours, whether or not they were seen to end.
    #[serde(default)]
    pub arranging: bool,
    /// Another supervisor took the lease in this term.
    #[serde(default)]
    pub lease_lost: Option<String>,
    /// It is the run's place that was lost in this term: its directory was moved, replaced or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub displaced: bool,
    /// Since when, in this term, a cluster has held something of the attempt before at each launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Tick>,
    /// The last relaunch that was tried in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<Rehearsal>,
    /// The trainer that was seen while it ran, where the command tells of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<TrainerSeen>,
    /// How long things took, over all attempts.
    #[serde(default, skip_serializing_if = "Clocks::is_empty")]
    pub clocks: Clocks,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// The last step when it ended finished.
    #[serde(default)]
    pub finished: Option<Step>,
    /// The newest decision's reasons.
    pub why: Vec<Reason>,
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
    /// Steps between its saves, where the step that it resumes from says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_every: Option<u64>,
    /// When the workers ran.
    pub launched: Option<Tick>,
    /// The same for people.
    pub launched_wall: Option<WallMs>,
    /// The guard.
    pub guard: Option<ProcRef>,
    /// The workers.
    pub workers: Vec<ProcRef>,
    /// The command of worker 0.
    pub argv: Vec<String>,
    /// Ends so far.
    pub exits: BTreeMap<WorkerId, ExitStatus>,
    /// The first end that was a failure.
    pub first_failure: Option<(WorkerId, ExitStatus)>,
    /// It failed before we ended anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_by_itself: bool,
    /// The last lines of the worker that failed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Newest step that was printed.
    pub step: Option<Step>,
    /// Its present activity.
    pub phase: TrainerPhase,
    /// When it last got on.
    pub last_progress: Tick,
    /// When its tree last worked (CPU or output).
    pub last_active: Tick,
    /// Longest time between two steps.
    pub longest_step: Ms,
    /// How it gets on.
    #[serde(default)]
    pub pace: AttemptProgress,
    /// Sightings of failures, in order.
    pub sightings: Vec<(RuleKind, Sighting)>,
    /// When each of them was heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<SightingMoment>,
    /// Newest step that its only checkpoint was seen whole with, and which save of it came first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<(Step, CkptId)>,
    /// The trainer said from which step it resumed.
    pub resumed: Option<Step>,
    /// The step of its first training record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Step>,
    /// Numbers that it printed, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<StepNumbers>,
    /// Training records in a row whose loss is no number, up to now.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub lost: u32,
    /// Steps whose numbers were looked at, the last ones, and how many of their files hold some that are not finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked_at: Vec<(CkptId, Option<u32>)>,
    /// Things that were noticed of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noticed: BTreeMap<NoticeKind, String>,
    /// The trainer said that it starts from nothing.
    pub scratch: bool,
    /// The trainer said that it ended as planned.
    pub ended: bool,
    /// When the trainer said that it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Tick>,
    /// No process of it is left.
    pub gone: bool,
    /// Its guard died.
    pub guard_lost: bool,
    /// Its nodes, where it has several.
    #[serde(default, skip_serializing_if = "AttemptNodes::is_empty")]
    pub nodes: AttemptNodes,
    /// How much it used of what can run out.
    #[serde(default, skip_serializing_if = "Creep::is_empty")]
    pub creep: Creep,
    /// Facts of the machine about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<MachineFacts>,
    /// We ended it, for this reason.
    pub ended_by_us: Option<EndCause>,
    /// That was because its weights are no numbers any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoilt: bool,
    /// The same, and the run ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hopeless: bool,
    /// Faults of its script that it should not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptNews>,
    /// Lines that each worker's script had printed when it called the trainer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub called: BTreeMap<WorkerId, u64>,
    /// Processes that SIGKILL did not end.
    pub unkillable: Vec<ProcRef>,
    /// Its end was judged and charged.
    pub settled: bool,
    /// Cause of its end.
    pub diagnosis: Option<Diagnosis>,
    /// The mark when it was launched.
    pub mark_before: Option<Step>,
    /// The configuration was changed since, or a person looked at the run: later attempts may count other steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

impl RunState {
    /// The exit code of a run that ended: who stopped it counts.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        let by = self.stop.as_ref().map(|w| w.by.as_str());
        match (self.outcome.as_ref()?, by) {
            (RunOutcome::Stopped, Some("SIGINT")) => Some(130),
            (RunOutcome::Stopped, Some("SIGTERM")) => Some(143),
            (outcome, _) => Some(outcome.exit_code()),
        }
    }

    /// The run was taken into care, but nothing was launched since: its disk edits may be half done, and what is
    /// on disk is still another run's.
    #[must_use]
    pub fn care_is_unfinished(&self) -> bool {
        self.care.as_ref().is_some_and(|c| self.attempts < c.attempt)
    }

    /// The newest whole step of the last scan that stands under the checkpoint root.
    #[must_use]
    pub fn newest_whole(&self) -> Option<&CheckpointSummary> {
        self.scan
            .as_ref()?
            .steps
            .iter()
            .find(|c| c.verdict == Verdict::Whole && c.proven.is_some() && !c.id.0.is_absolute())
    }

    /// Returns true if this step's save is not over, or was cut short: it lacks state that an older step holds, or it is the
    /// newest one while its writer lives.
    #[must_use]
    pub fn is_cut_short(&self, c: &CheckpointSummary) -> bool {
        let Some(scan) = self.scan.as_ref().filter(|_| c.resume != Resumability::Exact) else {
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
        self.stop.as_ref().is_some_and(|w| !w.after_save)
    }

    /// The present term launched an attempt.
    #[must_use]
    pub fn has_launched(&self) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.term == self.term)
    }

    /// The attempt that lives, or may live.
    #[must_use]
    pub fn live(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|a| !a.gone)
    }
}
