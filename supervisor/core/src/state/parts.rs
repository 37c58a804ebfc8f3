//! Parts of a run's state and of an attempt. They are written flat, among the other fields.

use crate::checkpoint::finiteness::WeightsLook;
use crate::checkpoint::reshard::{ReshardSpec, ReshardedStep};
use crate::checkpoint::{CkptId, PinsHash};
use crate::event::scan::RuleKind;
use crate::event::{ExitStatus, ScanReport, Sighting, TrainerPhase};
use crate::id::{Ms, ProcRef, Step, Tick, WallMs, WorkerId};
use crate::journal::record::{Diagnosis, NoticeKind};
use crate::observe::collapse::CollapseTracker;
use crate::observe::creep::Creep;
use crate::observe::machine::MachineFacts;
use crate::observe::numbers::StepNumbers;
use crate::spec::script::ScriptNews;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{
    AdoptionPoint, AttemptProgress, EndCause, LetGo, NotKept, OwnStep, PastFailure, RollBack, RunHold, SchedulerJob,
    SightingMoment, Spreads, StopWish, is_none_yet,
};

/// Circumstances of the present term: trainer, machine, lease, journal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TermContext {
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
    /// The scheduler's job that the present term runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<SchedulerJob>,
    /// Another supervisor took the lease in this term.
    #[serde(default)]
    pub lease_lost: Option<String>,
    /// It is the run's place that was lost in this term: its directory was moved, replaced or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub displaced: bool,
    /// Since when, in this term, a cluster has held something of the attempt before at each launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Tick>,
    /// The journal cannot be written now.
    pub journal_stalled: bool,
    /// The I/O worker does not answer now.
    #[serde(rename = "lane_stalled")]
    pub io_stalled: Option<String>,
}

/// How far the training is, over all attempts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunProgress {
    /// Highest step ever proven in this run.
    pub mark: Option<Step>,
    /// Highest step that an attempt before the present one printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Step>,
    /// The last planned step as the trainer printed it.
    pub total: Option<Step>,
    /// The last step when it ended finished.
    #[serde(default)]
    pub finished: Option<Step>,
    /// Numbers that earlier attempts printed, newest last; at most one for each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepNumbers>,
    /// The course of its entropy and reward.
    #[serde(default, skip_serializing_if = "CollapseTracker::is_empty")]
    pub course: CollapseTracker,
    /// Looks at the weights of steps, by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<WeightsLook>,
}

/// What the retries are counted by.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RetryBudget {
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
}

/// Steps on disk: the last scan, whose they are, and what is being done to them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskState {
    /// The last scan of the disk.
    pub scan: Option<ScanReport>,
    /// Highest step of which every byte was read and found right, among this run's steps.
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
    /// The disk was looked at since the present choice began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looked: bool,
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
    /// A step that is being resharded: until that is known to have ended, nothing else is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutting: Option<ReshardSpec>,
    /// Steps that were resharded, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<ReshardedStep>,
    /// How each save is spread over ranks.
    #[serde(default, skip_serializing_if = "Spreads::is_empty")]
    pub spreads: Spreads,
    /// Disk edits were begun since the last launch: what differs from before may be ours, whether or not they were seen to end.
    #[serde(default)]
    pub arranging: bool,
}

/// What the operator asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestState {
    /// Where this run was adopted: the first choice of a step or a fresh start.
    pub care: Option<AdoptionPoint>,
    /// The user's wish (`disable`, `resume_path`, `--fresh`) was fulfilled: a step of our own is proven.
    pub wish_done: bool,
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
}

/// How an attempt was started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptLaunch {
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
    /// The mark when it was launched.
    pub mark_before: Option<Step>,
}

/// How far an attempt is, by what its workers print and do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptTraining {
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
    /// Newest step that its only checkpoint was seen whole with, and which save of it came first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<(Step, CkptId)>,
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
    /// How much it used of what can run out.
    #[serde(default, skip_serializing_if = "Creep::is_empty")]
    pub creep: Creep,
}

/// What an attempt printed besides its progress.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptOutput {
    /// Sightings of failures, in order.
    pub sightings: Vec<(RuleKind, Sighting)>,
    /// When each of them was heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<SightingMoment>,
    /// The trainer said from which step it resumed.
    pub resumed: Option<Step>,
    /// The trainer said that it starts from nothing.
    pub scratch: bool,
    /// The trainer said that it ended as planned.
    pub ended: bool,
    /// When the trainer said that it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Tick>,
    /// Things that were noticed of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noticed: BTreeMap<NoticeKind, String>,
    /// Faults of its script that it should not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptNews>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The first end that was a failure.
    pub first_failure: Option<(WorkerId, ExitStatus)>,
    /// It failed before we ended anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_by_itself: bool,
    /// The last lines of the worker that failed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// No process of it is left.
    pub gone: bool,
    /// Its guard died.
    pub guard_lost: bool,
    /// We ended it, for this reason.
    pub ended_by_us: Option<EndCause>,
    /// That was because its weights are no numbers any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoilt: bool,
    /// The same, and the run ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hopeless: bool,
    /// Processes that SIGKILL did not end.
    pub unkillable: Vec<ProcRef>,
    /// Its end was judged and charged.
    pub settled: bool,
    /// Cause of its end.
    pub diagnosis: Option<Diagnosis>,
    /// Facts of the machine about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<MachineFacts>,
    /// The configuration was changed since, or a person looked at the run: later attempts may count other steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}
