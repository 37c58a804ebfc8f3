//! Events: the only input of a decision besides state and policy.

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
use crate::checkpoint::{CheckpointSummary, CkptId};
use crate::event::diff::ScanDiff;
use crate::event::rehearsal::Rehearsal;
use crate::event::scan::RuleKind;
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

/// One thing that happened, with the two times and a random number for jitter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, on the term's own clock.
    pub at: Tick,
    /// When, for people.
    pub wall: WallMs,
    /// Fresh random bits: the core draws none itself. What came of them is recorded, they are not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub entropy: u64,
    /// A description.
    pub kind: EventKind,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The kinds of events. Names are frozen: they stand in journals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A supervisor began its tenure; what it found of an earlier attempt.
    TermStarted {
        /// The term.
        term: Term,
        /// Boot id of the machine.
        boot: String,
        /// Host name.
        host: String,
        /// Version of supervise.
        version: String,
        /// Hash of the effective configuration: another one resets remembered failures.
        config: u64,
        /// Version of the trainer where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trainer_version: Option<String>,
        /// How each role is spread over ranks, where saves do not tell it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        spread: BTreeMap<String, RoleSpread>,
        /// A guard of an earlier term still lives with these workers.
        living: Option<LivingGuard>,
        /// Processes of earlier attempts that no guard holds any more.
        orphans: Vec<ProcRef>,
    },
    /// A guarded or safety act was carried out, or could not be.
    ActDone {
        /// Which.
        act: ActId,
        /// `Err` carries what failed, in words.
        result: Result<ActOutput, ActError>,
    },
    /// A worker ended.
    WorkerExited {
        /// Attempt.
        attempt: AttemptNo,
        /// Worker.
        worker: WorkerId,
        /// How it ended.
        status: ExitStatus,
        /// It was the first of its attempt.
        first: bool,
        /// The last lines of its output, where it was the first to fail.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
    },
    /// No process of the attempt is left, but for those that cannot die.
    TreeGone {
        /// Attempt.
        attempt: AttemptNo,
        /// Processes in uninterruptible sleep that SIGKILL did not end.
        unkillable: Vec<ProcRef>,
    },
    /// The guard of the attempt is gone without having said goodbye.
    GuardLost {
        /// Attempt.
        attempt: AttemptNo,
    },
    /// Something is known of the nodes of an attempt.
    Nodes {
        /// Attempt.
        attempt: AttemptNo,
        /// The news.
        news: NodesNews,
    },
    /// The trainer got on, or its tree worked.
    Progress {
        /// Attempt.
        attempt: AttemptNo,
        /// Its present activity.
        phase: TrainerPhase,
        /// The newest step it printed.
        step: Option<Step>,
        /// Signs of progress within its phases so far: batches of a validation.
        #[serde(default, skip_serializing_if = "is_zero")]
        beats: u64,
        /// How often its step has risen so far, where that is more than these events tell; 0 if nobody counted.
        #[serde(default, skip_serializing_if = "is_zero")]
        risen: u64,
        /// Activity of its processes since the last report; nothing is recorded of it beside a new step or phase, which is work.
        #[serde(default, skip_serializing_if = "Activity::is_none")]
        activity: Activity,
    },
    /// The ranks of an attempt that has not got on for a while: recorded where it decides.
    Looked {
        /// Attempt.
        attempt: AttemptNo,
        /// The ranks.
        look: ActivitySample,
    },
    /// A rule matched a line of output.
    Sighted {
        /// Attempt.
        attempt: AttemptNo,
        /// Its meaning.
        means: RuleKind,
        /// Sighting.
        sighting: Sighting,
    },
    /// How much of what can run out is used.
    Used {
        /// Attempt.
        attempt: AttemptNo,
        /// The newest step that was printed.
        step: Step,
        /// Of what how much.
        usage: Vec<ResourceUsage>,
    },
    /// The numbers of a step were looked at.
    Finite {
        /// Attempt that asked.
        attempt: AttemptNo,
        /// The step.
        ckpt: CkptId,
        /// Files of its model that hold numbers which are not finite; `None`: it could not be read.
        odd: Option<u32>,
        /// The tensors that do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tensors: Option<OddTensors>,
    },
    /// Facts of the machine about a failure.
    Evidence {
        /// Attempt.
        attempt: AttemptNo,
        /// The facts.
        facts: MachineFacts,
    },
    /// Numbers that the trainer printed about steps, a bundle at a time.
    Numbers {
        /// Attempt.
        attempt: AttemptNo,
        /// By step, in the order they were printed.
        steps: Vec<StepNumbers>,
    },
    /// The script of an attempt did what it should not.
    Script {
        /// Attempt.
        attempt: AttemptNo,
        /// The act.
        news: ScriptNews,
    },
    /// Steps on disk, after a scan.
    Checkpoints(ScanReport),
    /// The same as the difference to the last scan in the journal: how it is recorded, never how it happens.
    CheckpointsChanged(ScanDiff),
    /// A relaunch was tried in advance.
    Rehearsed(Rehearsal),
    /// A trainer of which the command tells nothing was seen while it ran.
    TrainerSeen(TrainerSeen),
    /// A wake-up that was asked for.
    Timer(TimerKey),
    /// The disk of the checkpoint root was asked; it leaves no record but what it leads to.
    Space {
        /// Bytes that are free; `None`: the file system does not tell.
        free: Option<u64>,
        /// Files that may be made; `None`: the file system does not count them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<u64>,
        /// A small file could be made and given room; `None`: that was not tried, or the file system does not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        works: Option<bool>,
    },
    /// The machine slept, or the driver was not scheduled: stall clocks shift by it.
    TimeGap {
        /// Missing time.
        missing: Ms,
    },
    /// A request to the I/O worker got no answer in time: a fact, never a verdict.
    #[serde(rename = "lane_stalled")]
    IoStalled {
        /// The question.
        what: String,
    },
    /// The I/O worker answers again.
    #[serde(rename = "lane_recovered")]
    IoRecovered,
    /// The journal cannot be written.
    JournalStalled {
        /// Why, in words.
        why: String,
    },
    /// The journal can be written again.
    JournalRecovered,
    /// Another supervisor took the lease, or its run saves into the same directory.
    LeaseLost {
        /// Who.
        by: String,
    },
    /// The lease could not be renewed for so long that a supervisor on another machine may take it soon.
    LeaseSilent {
        /// For how long, in words.
        what: String,
    },
    /// The run directory, the lease or the journal is not where it was: moved, replaced or deleted.
    Displaced {
        /// Which, and what became of it, in words.
        what: String,
    },
    /// Somebody was told of an event, or could not be.
    Told {
        /// The event.
        event: String,
        /// The way: `command`, `webhook`.
        to: String,
        /// It arrived.
        arrived: bool,
        /// Words that came back.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
    /// Answer of the scheduler about the job that this term runs in.
    Allocation {
        /// Its number.
        job: String,
        /// How often the scheduler started it again.
        restarts: u32,
        /// Its end, for people; `None`: it has none, or nobody says.
        ends: Option<WallMs>,
        /// Time until then.
        left: Option<Ms>,
    },
    /// A person or the system asked for something.
    Operator(OperatorRequest),
    /// A person had leftovers of the run deleted while no supervisor was there.
    Collected {
        /// The first of them, below the run directory or where steps go aside.
        places: Vec<Utf8PathBuf>,
        /// How many.
        count: u64,
        /// Space that they took, in bytes.
        bytes: u64,
    },
}

/// A guard of an earlier term that still holds its workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivingGuard {
    /// Its attempt.
    pub attempt: AttemptNo,
    /// The guard itself.
    pub guard: ProcRef,
    /// Workers that still live.
    pub workers: Vec<ProcRef>,
    /// Exits nobody has heard of yet.
    pub exits: Vec<(WorkerId, ExitStatus)>,
    /// The newest step it saw.
    pub step: Option<Step>,
}

/// Activity of the trainer, as far as its output and files tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainerPhase {
    /// Before the first step.
    Startup,
    /// In a step.
    Step,
    /// In a save.
    Save,
    /// In validation.
    Validate,
    /// The end was announced.
    Exit,
}

impl TrainerPhase {
    /// The clock that runs in it, before or after the attempt's first step.
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

/// Activity of a tree of processes since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    /// CPU time spent, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes of output.
    pub output: u64,
    /// Wall time covered by this report, in milliseconds.
    pub over_ms: u64,
    /// A GPU worked as it does while the attempt gets on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpu: bool,
    /// A process was ready to compute for most of a window, and had no core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starved: bool,
}

impl Activity {
    /// Nothing is told.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the processes did something, or would have: idle ones tick a little, a hundredth of a core is no work.
    #[must_use]
    pub fn is_work(self) -> bool {
        self.output > 0 || self.gpu || self.starved || self.cpu_ms.saturating_mul(100) > self.over_ms
    }
}

/// A line of output that a rule matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The rule's stable name.
    pub rule: String,
    /// Worker whose output it was.
    pub worker: WorkerId,
    /// Line number in that worker's output, from 1.
    pub line: u64,
    /// The line, cut to 4 KiB, control characters removed.
    pub text: String,
    /// A number the rule captures (a step, a total).
    pub number: Option<u64>,
    /// How many times it was seen, where repeats are folded.
    pub count: u64,
}

/// The result of a scan of the checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScanReport {
    /// Every step found, newest first; unproven where the proof stopped earlier.
    pub steps: Vec<CheckpointSummary>,
    /// Content of the tracker file.
    pub tracker: TrackerState,
    /// Set when the root itself could not be read.
    pub unreadable: Option<String>,
    /// Things worth saying that belong to no step (`global_steps_N`, strange files).
    pub remarks: Vec<String>,
    /// The root does not exist yet or is empty.
    pub empty: bool,
    /// The step of a save that goes on, where nothing else tells of it: its files are not listed before it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<Step>,
}

/// The trainer's own pointer to its newest step: a hint, never proof.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackerState {
    /// No such file.
    #[default]
    Missing,
    /// There, and empty (torn between truncate and write).
    Empty,
    /// There, and not a number.
    Garbage(String),
    /// Something that is no regular file stands there, and what it holds is not read: a symbolic link, a directory.
    NotAFile(String),
    /// Names this step.
    Step(Step),
    /// The trainer keeps no such file: it takes the newest step by name.
    Unused,
}

impl TrackerState {
    /// Nothing is there that could name a step.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing | Self::Unused)
    }
}

/// Wake-ups that were asked for. A later one of the same key replaces the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKey {
    /// A pause before a relaunch is over.
    Backoff,
    /// SIGTERM was not enough.
    KillDue,
    /// A save had its time.
    DrainDue,
    /// Look at the checkpoints again.
    ScanDue,
    /// Prove what was only looked at so far, in the background.
    ProveDue,
    /// Judge progress.
    StallCheck,
    /// A state has lasted longer than it may.
    StateDeadline,
    /// The end of the scheduler's job is near: it is asked again.
    AllocationEnd,
}
