//! Parts of `RunState` and `Attempt`. They are serialized flat, among the other fields.

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

/// Context of the current term: trainer, machine, lease, journal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TermContext {
    /// Configuration hash of the current term.
    pub config: u64,
    /// Trainer version, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_version: Option<String>,
    /// Trainer version before this term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_before: Option<String>,
    /// Boot id of the machine at the start of the term.
    pub boot: String,
    /// Scheduler job in which the current term runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<SchedulerJob>,
    /// Set if another supervisor took the lease in this term.
    #[serde(default)]
    pub lease_lost: Option<String>,
    /// Whether the run directory was moved, replaced or deleted in this term.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub displaced: bool,
    /// Since when, in this term, processes left over from the previous attempt have blocked each launch on a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Tick>,
    /// Whether the journal cannot be written at the moment.
    pub journal_stalled: bool,
    /// Set while the I/O worker does not answer.
    #[serde(rename = "lane_stalled")]
    pub io_stalled: Option<String>,
}

/// Training progress over all attempts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunProgress {
    /// Highest step ever proven in this run.
    pub mark: Option<Step>,
    /// Whether that step counts because the training loop reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reported: bool,
    /// Highest step printed by an earlier attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Step>,
    /// Last planned step, as printed by the trainer.
    pub total: Option<Step>,
    /// Last step of a finished run.
    #[serde(default)]
    pub finished: Option<Step>,
    /// Whether the trainer ended that run by itself before its last planned step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_early: bool,
    /// Metrics printed by earlier attempts, newest last, at most one entry per step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepNumbers>,
    /// Trend of entropy and reward.
    #[serde(default, skip_serializing_if = "CollapseTracker::is_empty")]
    pub course: CollapseTracker,
    /// Checks of saved weights, by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<WeightsLook>,
}

/// Counters behind the retry limits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RetryBudget {
    /// Attempts charged since the high-water mark last rose.
    pub charged: u32,
    /// How often the run resumed from below its high-water mark.
    pub step_backs: u32,
    /// Deaths of supervise's own processes since the high-water mark last rose.
    pub own_deaths: u32,
    /// Attempts ended from outside, and not charged, since the high-water mark last rose.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub spared: u32,
    /// Terms that launched since the high-water mark last rose.
    pub barren_terms: u32,
    /// Failures since the configuration last changed.
    pub failures: Vec<PastFailure>,
}

/// Steps on disk: the last scan, their owners, and edits in progress.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskState {
    /// Last scan of the disk.
    pub scan: Option<ScanReport>,
    /// Highest own step of which every byte was read and found correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Step>,
    /// Size of the scan differences recorded since the last complete scan record; `None`: the next record is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_told: Option<u64>,
    /// Steps found after the last attempt had exited. A new one before the next launch comes from another writer.
    pub settled: Option<Vec<CkptId>>,
    /// Steps that this run wrote or accepted, by directory, with the file metadata at that time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, OwnStep>,
    /// Steps that existed at the last launch and that this run did not write, with their pins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, PinsHash>,
    /// Whether an attempt ran in this term, so that its writes are observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// Whether the live set was restored from a copy since the last scan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_back: bool,
    /// Steps of other users that were to be moved aside. One that still exists could not be moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immovable: Vec<CkptId>,
    /// Whether the machine rebooted or the disk was full since the high-water mark last rose; if so, every byte is read.
    pub doubt: bool,
    /// How often in a row the disk was full, for an attempt or for a disk edit, since the high-water mark last rose.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub full: u32,
    /// Whether the last disk edit or launch failed for lack of free space.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_room: bool,
    /// Steps that were saved because we asked for it. They are deleted before the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<Step>,
    /// Steps that failed to load.
    pub distrusted: Vec<CkptId>,
    /// Whether the disk was scanned since the current choice began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looked: bool,
    /// High-water mark at which deleting older steps failed; not retried until the next one.
    #[serde(default)]
    pub prune_failed: Option<Step>,
    /// Copies of the live set in a row that a save made useless.
    #[serde(default)]
    pub voided: u32,
    /// Live set that could not be copied; not retried until the next save.
    #[serde(default)]
    pub keep_failed: Option<NotKept>,
    /// How often the live set was arranged since the last launch; it is checked once more before the next.
    #[serde(default)]
    pub arranged: u32,
    /// Reshard in progress; until it is known to have ended, no other step is inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutting: Option<ReshardSpec>,
    /// The most recently resharded steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<ReshardedStep>,
    /// How each save is distributed over the ranks.
    #[serde(default, skip_serializing_if = "Spreads::is_empty")]
    pub spreads: Spreads,
    /// Whether disk edits were started since the last launch. Changes on disk may then be ours, even if the edits were not seen to end.
    #[serde(default)]
    pub arranging: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_asked(n: &u64) -> bool {
    *n == 0
}

/// Requests by an operator or the system, and ours to the trainer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestState {
    /// Where the run was adopted.
    pub care: Option<AdoptionPoint>,
    /// Whether the request (`disable`, `resume_path`, `--fresh`) was fulfilled: a step of this run is proven.
    pub wish_done: bool,
    /// Requested stop.
    pub stop: Option<StopWish>,
    /// Number of the newest request for a save.
    #[serde(default, skip_serializing_if = "is_none_asked")]
    pub saves: u64,
    /// Set while an operator holds the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<RunHold>,
    /// Set if an operator cleared a final failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go: Option<LetGo>,
    /// Set if an operator rolled the run back; the next launch resumes from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<RollBack>,
}

/// How an attempt was started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptLaunch {
    /// Steps between saves, if the step it resumes from records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_every: Option<u64>,
    /// When the workers were running.
    pub launched: Option<Tick>,
    /// The same as wall-clock time.
    pub launched_wall: Option<WallMs>,
    /// Guard process.
    pub guard: Option<ProcRef>,
    /// Worker processes.
    pub workers: Vec<ProcRef>,
    /// Command line of worker 0.
    pub argv: Vec<String>,
    /// High-water mark at launch.
    pub mark_before: Option<Step>,
}

/// Progress of an attempt, from the output and activity of its workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptTraining {
    /// Newest printed step.
    pub step: Option<Step>,
    /// Current phase of the trainer.
    pub phase: TrainerPhase,
    /// When it last made progress.
    pub last_progress: Tick,
    /// When its process tree was last active (CPU or output).
    pub last_active: Tick,
    /// Longest time between two steps.
    pub longest_step: Ms,
    /// Pace of the attempt.
    #[serde(default)]
    pub pace: AttemptProgress,
    /// Newest step with which its only checkpoint was seen whole, and the first save of that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<(Step, CkptId)>,
    /// Step of its first training record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Step>,
    /// Printed metrics, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<StepNumbers>,
    /// Training records in a row, up to now, with a non-finite loss.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub lost: u32,
    /// Most recent steps whose weights were checked, with the number of files that hold non-finite values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked_at: Vec<(CkptId, Option<u32>)>,
    /// Usage of resources that can run out.
    #[serde(default, skip_serializing_if = "Creep::is_empty")]
    pub creep: Creep,
}

/// Output of an attempt besides its progress.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptOutput {
    /// Sightings of failures, in order.
    pub sightings: Vec<(RuleKind, Sighting)>,
    /// When each sighting was received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<SightingMoment>,
    /// Step from which the trainer says it resumed.
    pub resumed: Option<Step>,
    /// Whether the trainer said that it starts from scratch.
    pub scratch: bool,
    /// Whether the trainer said that it ended as planned.
    pub ended: bool,
    /// When the trainer reported its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Tick>,
    /// Notices about the attempt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noticed: BTreeMap<NoticeKind, String>,
    /// Unexpected actions of its launch script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptNews>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// First worker exit that was a failure.
    pub first_failure: Option<(WorkerId, ExitStatus)>,
    /// Whether it failed before the supervisor stopped anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_by_itself: bool,
    /// Last output lines of the worker that failed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Whether all its processes have exited.
    pub gone: bool,
    /// Whether its guard died.
    pub guard_lost: bool,
    /// Why the supervisor stopped it.
    pub ended_by_us: Option<EndCause>,
    /// Whether it was stopped because of non-finite weights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoilt: bool,
    /// The same, and the run ends with this attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hopeless: bool,
    /// Processes that SIGKILL did not kill.
    pub unkillable: Vec<ProcRef>,
    /// Whether its end was diagnosed and charged.
    pub settled: bool,
    /// Why it ended.
    pub diagnosis: Option<Diagnosis>,
    /// Machine facts collected about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<MachineFacts>,
    /// Whether the run ended with it, so that the next launch is a start of the run and no restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_run: bool,
    /// Whether the configuration changed since, or an operator acted on the run: later attempts may count steps differently.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}
