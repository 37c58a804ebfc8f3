//! Requests to an I/O worker and its replies.

use super::path_query::{PathAnswer, PathError, PathQuery};
use crate::ownership::PathDistrust;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::checkpoint::finiteness::OddTensors;
use supervise_core::checkpoint::reshard::ReshardedStep;
use supervise_core::checkpoint::{CkptId, Depth, PinsHash};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::id::{ActId, AttemptNo, Ms, ProcRef, RunId, Step, Term, Tick};
use supervise_core::journal::record::DiskEdit;
use supervise_core::lease::{Holder, LeaseClaim};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::{OwnStep, RunState};

/// A numbered request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IoRequest {
    pub id: u64,
    pub ask: IoQuestion,
}

/// A line from an I/O worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoReply {
    Done {
        id: u64,
        /// `Err`: a message for the operator.
        answer: Result<Box<IoAnswer>, ActError>,
    },
    /// The request is being worked on.
    Working {
        id: u64,
        bytes: u64,
        #[serde(default)]
        of: u64,
    },
    /// A copy of the live set has ended.
    Kept {
        /// The act that requested it.
        act: ActId,
        result: Result<(), ActError>,
    },
    /// Something changed under a watched root.
    Touched,
}

/// What a request asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoQuestion {
    /// Create or find the run directory, and replay its journals.
    Open(RunIdentity),
    /// List a run's leftovers: steps that were moved aside, and directories of its attempts.
    Leftovers {
        run_dir: Utf8PathBuf,
        store: Utf8PathBuf,
    },
    /// Delete leftovers; requires the lease.
    Delete {
        run_dir: Utf8PathBuf,
        store: Utf8PathBuf,
        /// Paths from [`IoAnswer::Leftovers`].
        places: Vec<Utf8PathBuf>,
    },
    /// Like `Open`, but only read: nothing is created.
    Peek {
        /// The run directory.
        run_dir: Utf8PathBuf,
    },
    /// Query a path, while a run is prepared.
    Look(PathQuery),
    /// Read whole journal lines, byte for byte, from a position on; one chunk per request.
    Lines {
        run_dir: Utf8PathBuf,
        /// Start of the chunk.
        from: JournalPlace,
    },
    /// Win the next term, waiting for a holder whose process cannot be seen.
    TakeLease {
        dir: Utf8PathBuf,
        /// The challenger, and its durations.
        claim: Box<LeaseClaim>,
        /// The run to start or resume; without it only the lease is touched.
        identity: Option<Box<RunIdentity>>,
    },
    /// Start the term's journal and write its specification.
    Begin {
        run_dir: Utf8PathBuf,
        term: Term,
        spec: Box<RunSpec>,
        lease_dir: Utf8PathBuf,
        /// Registry entry, for `status` without a name; best effort.
        registry: Option<Utf8PathBuf>,
    },
    /// Continue a term that another I/O worker started before it died.
    Adopt {
        run_dir: Utf8PathBuf,
        term: Term,
        lease_dir: Utf8PathBuf,
        /// The inodes from [`IoAnswer::Begun`].
        ground: Vec<u64>,
    },
    /// Append lines to the journal.
    Append {
        text: String,
        /// Make them durable before answering.
        sync: bool,
    },
    /// Renew the lease; the answer says whether it is still ours.
    Bump,
    Release,
    /// Create an attempt's directory with these files in it.
    Attempt {
        dir: Utf8PathBuf,
        files: Vec<(String, String)>,
    },
    /// Write a request for a save into an attempt's directory; `None`: the empty file before the first one.
    SaveRequest {
        dir: Utf8PathBuf,
        request: Option<u64>,
    },
    /// Look for the trainer's answer to a request for a save.
    SaveAnswer {
        dir: Utf8PathBuf,
        request: u64,
    },
    /// Use this specification for scans.
    Spec(Box<RunSpec>),
    /// The steps recorded in the journal: their proof records are trusted if their files are unchanged.
    OwnSteps(BTreeMap<String, OwnStep>),
    /// Scan the checkpoint root and prove steps, newest first.
    Scan {
        depth: Depth,
        whole: u32,
        /// A launch may follow: check every file, even if no change to it was reported.
        #[serde(default)]
        thorough: bool,
    },
    /// Read the current pins of one step.
    Pins {
        /// The step.
        ckpt: CkptId,
    },
    /// Search the weights of a step for non-finite values.
    Finite {
        ckpt: CkptId,
        /// No training is running, so there is no need to read slowly.
        #[serde(default)]
        thorough: bool,
    },
    /// Change the checkpoint root.
    Edit {
        edits: Vec<DiskEdit>,
        /// Named in the note beside a step that is moved aside.
        by: String,
    },
    /// Delete steps.
    Prune {
        steps: Vec<CkptId>,
    },
    /// Copy the live set into a generation.
    Keep {
        /// The act; the result comes as [`IoReply::Kept`].
        act: ActId,
        /// The live set as it was proven.
        ckpt: CkptId,
        step: Step,
        pins: PinsHash,
        /// At most this many bytes per second; 0: no limit.
        rate: u64,
    },
    /// Report changes under the root.
    Watch,
}

/// The owner of a run directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub run: RunId,
    pub run_dir: Utf8PathBuf,
    pub root: Option<Utf8PathBuf>,
}

/// Answers of an I/O worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoAnswer {
    Done,
    Resharded(ReshardedStep),
    Loaded(Box<LoadedRun>),
    Leftovers(Vec<Leftover>),
    Seen(Result<PathAnswer, PathError>),
    /// A chunk of the journals.
    Lines {
        /// Where it begins.
        at: JournalPlace,
        /// Whole lines. Sent as raw bytes after the JSON answer, because parsing them as JSON would take as long as
        /// parsing the records.
        #[serde(skip)]
        text: Vec<u8>,
        /// Length of the bytes that follow the answer.
        length: usize,
        /// Where the next chunk begins; `None` at the end.
        next: Option<JournalPlace>,
        left: u64,
    },
    Term(Term),
    /// A term and its run directory were won.
    Taken(Box<TermStart>),
    /// The term was started; the inodes of the paths it uses.
    Begun(Vec<u64>),
    Held(String),
    /// The lease is no longer ours.
    Lost(String),
    /// The lease is ours, and there was a request in the run directory.
    Asked(String),
    /// The run directory, the lease or the journal was moved or replaced; a message for the operator.
    Displaced(String),
    Scan(ScanReport),
    /// The step that the trainer said it saves.
    SaveAnswer(Option<Step>),
    /// `None` if the step no longer exists.
    Pins(Option<PinsHash>),
    /// Number of model files with non-finite values, and their tensors; `None`: the step could not be read.
    Finite(Option<(u32, OddTensors)>),
}

/// A term that was won with the lease of a run directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TermStart {
    pub term: Term,
    /// Start of the check by which it was won, by the boot clock.
    pub looked: Tick,
    /// Random and stored only in the run directory: whatever carries it belongs to this run.
    pub key: String,
    /// Notes for the operator: a copied or moved directory, corrected permissions.
    pub notes: Vec<String>,
    /// The run's identity under its root's previous path.
    pub before: Option<RunId>,
    /// The journals, if they changed since they were loaded.
    pub anew: Option<Box<LoadedRun>>,
}

/// A position in a run's journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct JournalPlace {
    /// The term's file; 0: before the first.
    pub term: u32,
    pub offset: u64,
}

/// A journal line in a newer format than this release can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewerLine {
    pub version: u64,
    /// The term whose journal contains it.
    pub term: u32,
    pub line: u64,
}

/// Where the records of an attempt begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStart {
    pub attempt: AttemptNo,
    pub at: JournalPlace,
}

/// Contents of a run directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadedRun {
    /// The state from replaying the journals.
    pub state: RunState,
    #[serde(default)]
    pub ledger: TimeLedger,
    pub records: u64,
    /// Notes for the operator: gaps, damaged lines, a copied directory.
    pub notes: Vec<String>,
    /// The notes about terms without records.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// The first line in a newer format than this release can read.
    #[serde(default)]
    pub newer: Option<NewerLine>,
    /// Processes that the guard of the last attempt recorded; empty if others may have written the file.
    pub recorded: Vec<ProcRef>,
    /// Why the contents must not be acted on: another user wrote them, or could have.
    #[serde(default)]
    pub distrust: Option<PathDistrust>,
    /// Random and stored only in the run directory: whatever carries it belongs to this run.
    #[serde(default)]
    pub key: String,
    /// The directory names another root: its journals are another run's, unless that root is mounted here.
    #[serde(default)]
    pub copied: bool,
    /// The lease's holder and the time since its last heartbeat, by the file system's clock.
    #[serde(default)]
    pub holder: Option<(Holder, Ms)>,
    pub spec: Option<Box<RunSpec>>,
    /// Where the last attempts begin in the journals.
    #[serde(default)]
    pub attempts: Vec<AttemptStart>,
}

/// Something that a run left and does not need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    pub kind: LeftoverKind,
    /// Path below the store (`aside/…`) or the run directory (`attempts/…`).
    pub place: Utf8PathBuf,
    pub bytes: u64,
    /// When it was moved or created, in seconds since the epoch.
    pub since: i64,
    pub why: Option<String>,
}

/// Kinds of leftovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// A torn or damaged step, or a part of one.
    Torn,
    /// A step that was whole when it was moved aside.
    Whole,
    Foreign,
    /// Output and evidence of one attempt.
    Attempt(AttemptNo),
}
