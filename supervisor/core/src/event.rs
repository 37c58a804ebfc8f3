//! Events: together with state and policy, the only input of a decision.

mod act;
pub mod diff;
pub mod gpu;
pub mod progress;
pub mod rehearsal;
mod request;
pub mod scan;

pub use crate::observe::exit::{ExitStatus, signal_name};
pub use act::{ActError, ActErrorKind, ActOutput, StandbyResult};
pub use request::OperatorRequest;

use crate::checkpoint::finiteness::OddTensors;
use crate::checkpoint::{CheckpointSummary, CkptId, Resumability, Verdict};
use crate::event::diff::ScanDiff;
use crate::event::rehearsal::Rehearsal;
use crate::event::scan::{RuleId, RuleKind};
use crate::id::{ActId, AttemptNo, Ms, ProcRef, Step, Term, Tick, WallMs, WorkerId};
use crate::observe::activity::ActivitySample;
use crate::observe::creep::ResourceUsage;
use crate::observe::durations::DurationKind;
use crate::observe::machine::MachineFacts;
use crate::observe::numbers::StepNumbers;
use crate::spec::RoleSpread;
use crate::spec::gang::NodesNews;
use crate::spec::script::ScriptNews;
use crate::spec::seen::TrainerSeen;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One event, with its two times and random bits for jitter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time on the term's own clock.
    pub at: Tick,
    /// Wall-clock time, for display.
    pub wall: WallMs,
    /// Random bits for jitter, because the core draws none. The result is recorded, the bits are not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub entropy: u64,
    /// What happened.
    pub kind: EventKind,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The kinds of events. The names are frozen because journals contain them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A supervisor started a term. Says what it found of an earlier attempt.
    TermStarted {
        /// Number of the term.
        term: Term,
        /// Boot id of the machine.
        boot: String,
        /// Host name.
        host: String,
        /// Version of supervise.
        version: String,
        /// Hash of the effective configuration. If it changes, remembered failures are forgotten.
        config: u64,
        /// Version of the trainer, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trainer_version: Option<String>,
        /// How each role is spread over ranks, if its saves do not show it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        spread: BTreeMap<String, RoleSpread>,
        /// A guard of an earlier term that still holds these workers.
        living: Option<LivingGuard>,
        /// Processes of earlier attempts that no guard holds.
        orphans: Vec<ProcRef>,
    },
    /// A guarded or safety act succeeded or failed.
    ActDone {
        /// The act that was performed.
        act: ActId,
        /// The result; `Err` says what failed.
        result: Result<ActOutput, ActError>,
    },
    /// A worker exited.
    WorkerExited {
        /// The attempt it belongs to.
        attempt: AttemptNo,
        /// The worker that exited.
        worker: WorkerId,
        /// Exit status.
        status: ExitStatus,
        /// Whether it was the first worker of its attempt to exit.
        first: bool,
        /// The last lines of its output, if it was the first to fail.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
    },
    /// All processes of the attempt have exited, except unkillable ones.
    TreeGone {
        /// The attempt whose processes exited.
        attempt: AttemptNo,
        /// Processes in uninterruptible sleep that survived SIGKILL.
        unkillable: Vec<ProcRef>,
    },
    /// The guard of the attempt exited without saying goodbye.
    GuardLost {
        /// The attempt that the guard held.
        attempt: AttemptNo,
    },
    /// Something became known about the nodes of an attempt.
    Nodes {
        /// The attempt that runs on the nodes.
        attempt: AttemptNo,
        /// What became known.
        news: NodesNews,
    },
    /// The trainer made progress, or its processes did work.
    Progress {
        /// The attempt that made progress.
        attempt: AttemptNo,
        /// What the trainer is doing.
        phase: TrainerPhase,
        /// The newest step it printed.
        step: Option<Step>,
        /// Signs of progress within its phases so far, such as batches of a validation.
        #[serde(default, skip_serializing_if = "is_zero")]
        beats: u64,
        /// How often its step has risen so far, if that is more than these events show; 0: not counted.
        #[serde(default, skip_serializing_if = "is_zero")]
        risen: u64,
        /// Activity of its processes since the last report. It is not recorded together with a new step or phase, which
        /// imply work.
        #[serde(default, skip_serializing_if = "Activity::is_none")]
        activity: Activity,
    },
    /// A sample of the ranks of an attempt that has made no progress for a while. Recorded only if it affects a
    /// decision.
    Looked {
        /// The attempt that was sampled.
        attempt: AttemptNo,
        /// The sample.
        look: ActivitySample,
    },
    /// A rule matched a line of output.
    Sighted {
        /// The attempt that printed the line.
        attempt: AttemptNo,
        /// What the rule means.
        means: RuleKind,
        /// The matched line.
        sighting: Sighting,
    },
    /// Usage of the resources that can run out.
    Used {
        /// The attempt that uses them.
        attempt: AttemptNo,
        /// The newest step printed so far.
        step: Step,
        /// Usage by resource.
        usage: Vec<ResourceUsage>,
    },
    /// The weights of a step were checked for non-finite values.
    Finite {
        /// The attempt that asked for the check.
        attempt: AttemptNo,
        /// Directory of the checked step.
        ckpt: CkptId,
        /// Number of model files that contain non-finite values; `None`: the step could not be read.
        odd: Option<u32>,
        /// The tensors that contain them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tensors: Option<OddTensors>,
    },
    /// The trainer said that it saves, because it was asked to. Only the files prove the save.
    SaveAnswered {
        /// The attempt that was asked.
        attempt: AttemptNo,
        /// Number of the request.
        id: u64,
        /// The step that it saves.
        step: Step,
    },
    /// Facts about the machine, gathered after a failure.
    Evidence {
        /// The attempt that failed.
        attempt: AttemptNo,
        /// What was found.
        facts: MachineFacts,
    },
    /// Metrics that the trainer printed about steps, in batches.
    Numbers {
        /// The attempt that printed them.
        attempt: AttemptNo,
        /// Metrics by step, in the order they were printed.
        steps: Vec<StepNumbers>,
    },
    /// News of the launch script of an attempt.
    Script {
        /// The attempt that runs the script.
        attempt: AttemptNo,
        /// What the script did.
        news: ScriptNews,
    },
    /// Steps on disk, after a scan.
    Checkpoints(ScanReport),
    /// The same, as the difference to the last scan in the journal. This form is only used for recording.
    CheckpointsChanged(ScanDiff),
    /// A relaunch was rehearsed.
    Rehearsed(Rehearsal),
    /// A trainer that the command does not name was recognized while it ran.
    TrainerSeen(TrainerSeen),
    /// A timer expired.
    Timer(TimerKey),
    /// Free space on the disk of the checkpoint root. Recorded only if it changes something.
    Space {
        /// Free bytes; `None`: the file system does not report them.
        free: Option<u64>,
        /// Free inodes; `None`: the file system does not count them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<u64>,
        /// Whether a small file could be created and allocated; `None`: not tried, or the file system does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        works: Option<bool>,
    },
    /// The machine slept, or the supervisor was not scheduled. Stall clocks are shifted by this time.
    TimeGap {
        /// The time that was missed.
        missing: Ms,
    },
    /// The I/O worker did not answer a request in time. This is a fact, not a verdict.
    #[serde(rename = "lane_stalled")]
    IoStalled {
        /// The request that got no answer.
        what: String,
    },
    /// The I/O worker answers again.
    #[serde(rename = "lane_recovered")]
    IoRecovered,
    /// The journal cannot be written.
    JournalStalled {
        /// The cause, as text.
        why: String,
    },
    /// The journal can be written again.
    JournalRecovered,
    /// Another supervisor took the lease, or another run saves into the same directory.
    LeaseLost {
        /// Who took it.
        by: String,
    },
    /// The lease could not be renewed for so long that a supervisor on another machine may soon take it.
    LeaseSilent {
        /// How long it was not renewed, as text.
        what: String,
    },
    /// The run directory, the lease or the journal was moved, replaced or deleted.
    Displaced {
        /// Which one, and what happened to it, as text.
        what: String,
    },
    /// A notification was sent, or failed.
    Told {
        /// The event that was reported.
        event: String,
        /// How it was sent: `command` or `webhook`.
        to: String,
        /// Whether it arrived.
        arrived: bool,
        /// The reply, or the error.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
    /// The scheduler's answer about the job that this term runs in.
    Allocation {
        /// Job number.
        job: String,
        /// How often the scheduler restarted the job.
        restarts: u32,
        /// When the job ends, on the wall clock; `None`: no limit, or not known.
        ends: Option<WallMs>,
        /// Time left until then.
        left: Option<Ms>,
    },
    /// A request from an operator or from the system.
    Operator(OperatorRequest),
    /// An operator deleted leftovers of the run while no supervisor was running.
    Collected {
        /// The first of their paths, relative to the run directory or to the directory of steps that were moved aside.
        places: Vec<Utf8PathBuf>,
        /// How many were deleted.
        count: u64,
        /// Bytes that they took.
        bytes: u64,
    },
}

/// A guard of an earlier term that still holds its workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivingGuard {
    /// The attempt it holds.
    pub attempt: AttemptNo,
    /// The guard process.
    pub guard: ProcRef,
    /// Workers that are still running.
    pub workers: Vec<ProcRef>,
    /// Worker exits that have not been reported yet.
    pub exits: Vec<(WorkerId, ExitStatus)>,
    /// The newest step it saw.
    pub step: Option<Step>,
}

/// What the trainer is doing, judging by its output and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainerPhase {
    /// Before the first step.
    Startup,
    /// Training a step.
    Step,
    /// Saving.
    Save,
    /// Validating.
    Validate,
    /// The trainer announced its end.
    Exit,
}

impl TrainerPhase {
    /// The clock that measures this phase; `stepped`: the attempt has printed a step.
    #[must_use]
    pub fn clock(self, stepped: bool) -> DurationKind {
        match self {
            Self::Startup => DurationKind::Startup,
            Self::Step if stepped => DurationKind::Step,
            Self::Step => DurationKind::FirstStep,
            Self::Save => DurationKind::Save,
            Self::Validate => DurationKind::Validate,
            Self::Exit => DurationKind::Exit,
        }
    }
}

/// Activity of a process tree since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    /// CPU time spent, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes of output.
    pub output: u64,
    /// Wall time covered by this report, in milliseconds.
    pub over_ms: u64,
    /// Whether a GPU was as busy as in healthy windows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpu: bool,
    /// Whether a process was runnable for most of a window but got no core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starved: bool,
}

impl Activity {
    /// Returns true if nothing was reported.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the processes worked or were starved. Idle processes use a little CPU, so up to 1 % of a core
    /// does not count.
    #[must_use]
    pub fn is_work(self) -> bool {
        self.output > 0 || self.gpu || self.starved || self.cpu_ms.saturating_mul(100) > self.over_ms
    }
}

/// A line of output that a rule matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// Stable name of the rule.
    pub rule: RuleId,
    /// The worker that printed the line.
    pub worker: WorkerId,
    /// Line number in that worker's output, from 1.
    pub line: u64,
    /// The line without control characters, cut to 4 KiB.
    pub text: String,
    /// A number that the rule captures, such as a step or a total.
    pub number: Option<u64>,
    /// How often it matched, if repeats are merged.
    pub count: u64,
}

/// Result of a scan of the checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScanReport {
    /// All steps found, newest first. Those below the last proven step are unproven.
    pub steps: Vec<CheckpointSummary>,
    /// Content of the tracker file.
    pub tracker: TrackerState,
    /// Why the root could not be read, if it could not.
    pub unreadable: Option<String>,
    /// Remarks that belong to no step (`global_steps_N`, unexpected files).
    pub remarks: Vec<String>,
    /// Whether the root is missing or empty.
    pub empty: bool,
    /// Step of a running save, if nothing else shows it: its files are not listed before it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<Step>,
}

impl ScanReport {
    /// The steps that a run may be resumed from as far as this scan shows, newest first.
    #[must_use]
    pub fn resumable(&self) -> Vec<Step> {
        let may_be = |c: &&CheckpointSummary| {
            !c.husk && c.verdict == Verdict::Whole && !matches!(c.resume, Resumability::Not { .. })
        };
        let mut steps: Vec<Step> = self.steps.iter().filter(may_be).map(|c| c.step).collect();
        steps.dedup();
        steps
    }
}

/// The trainer's own pointer to its newest step. It is a hint, never proof.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackerState {
    /// The file does not exist.
    #[default]
    Missing,
    /// The file is empty (torn between truncate and write).
    Empty,
    /// The file does not contain a number.
    Garbage(String),
    /// Not a regular file but, say, a symbolic link or a directory. It is not read.
    NotAFile(String),
    /// The file names this step.
    Step(Step),
    /// The trainer has no such file and takes the newest step by name.
    Unused,
}

impl TrackerState {
    /// Returns true if there is no tracker that could name a step.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing | Self::Unused)
    }
}

/// Timers. Setting one replaces an earlier one with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKey {
    /// The backoff before a relaunch is over.
    Backoff,
    /// The grace period after SIGTERM is over.
    KillDue,
    /// The time limit of a drain is over.
    DrainDue,
    /// Scan the checkpoints again.
    ScanDue,
    /// Prove in the background what was only checked for structure.
    ProveDue,
    /// Check for a stall.
    StallCheck,
    /// A state has reached its time limit.
    StateDeadline,
    /// The scheduler's job ends soon: query the scheduler again.
    AllocationEnd,
    /// Look for the answer to a request for a save, or make one.
    SaveRequest,
}
