//! What is said to a lane and what it answers.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use supervise_core::checkpoint::{CkptId, Depth, PinsHash};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::id::{ActId, Ms, ProcRef, RunId, Step, Term};
use supervise_core::record::DiskEdit;
use supervise_core::spec::RunSpec;
use supervise_core::state::State;

/// A numbered question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaneRequest {
    /// Answered under the same number.
    pub id: u64,
    /// What is asked.
    pub ask: Question,
}

/// A line from a lane.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneReply {
    /// The answer to a question.
    Done {
        /// Its number.
        id: u64,
        /// The answer; `Err` in words.
        answer: Result<Box<Answer>, ActError>,
    },
    /// The question is being worked on.
    Working {
        /// Its number.
        id: u64,
        /// Bytes read so far.
        bytes: u64,
    },
    /// A copy of the live set came to its end.
    Kept {
        /// The act that asked for it.
        act: ActId,
        /// How it ended.
        result: Result<(), ActError>,
    },
    /// Something changed under a watched root.
    Touched,
}

/// What can be asked of a lane.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Create or find the run directory, read its journals, fold them.
    Open(Identity),
    /// Only read: nothing is created.
    Peek {
        /// The run directory.
        run_dir: Utf8PathBuf,
    },
    /// Win the next term, waiting up to the TTL for a holder that cannot be seen.
    TakeLease {
        /// The directory the terms stand in.
        dir: Utf8PathBuf,
        /// Our host.
        host: String,
        /// Its boot id.
        boot: String,
        /// Our process.
        proc: ProcRef,
        /// How long a holder elsewhere may be silent.
        ttl: Ms,
    },
    /// Begin the term's journal and write its specification.
    Begin {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// The term.
        term: Term,
        /// The specification.
        spec: Box<RunSpec>,
        /// Where runs are listed for `status` without a name; best effort.
        registry: Option<Utf8PathBuf>,
    },
    /// Go on with a term that another lane began and did not survive.
    Adopt {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// The term.
        term: Term,
        /// The directory the terms stand in.
        lease_dir: Utf8PathBuf,
    },
    /// Append lines to the journal.
    Append {
        /// Whole lines.
        text: String,
        /// Make them durable before answering.
        sync: bool,
    },
    /// Show that the holder lives; answers whether the lease is still ours.
    Bump,
    /// Give the lease back.
    Release,
    /// Make an attempt's directory with these files in it.
    Attempt {
        /// The directory.
        dir: Utf8PathBuf,
        /// Names and contents.
        files: Vec<(String, String)>,
    },
    /// Know this specification for scans.
    Spec(Box<RunSpec>),
    /// Scan the checkpoint root, prove newest first.
    Scan {
        /// Depth of proof.
        depth: Depth,
        /// How many whole steps are enough.
        whole: u32,
        /// A launch may follow: every file is asked for, also where nothing was heard of it.
        #[serde(default)]
        thorough: bool,
    },
    /// Pins of one step as they are now.
    Pins {
        /// The step.
        ckpt: CkptId,
    },
    /// Change the checkpoint root.
    Edit {
        /// In this order.
        edits: Vec<DiskEdit>,
        /// Named in what is left beside a step that went aside.
        by: String,
    },
    /// Delete steps.
    Prune {
        /// Which.
        steps: Vec<CkptId>,
    },
    /// Copy the live set into a generation.
    Keep {
        /// The act: how it ended is told by [`LaneReply::Kept`].
        act: ActId,
        /// The live set as it was proven.
        ckpt: CkptId,
        /// The step it holds.
        step: Step,
        /// What it was then.
        pins: PinsHash,
        /// Bytes a second at most; 0 for no limit.
        rate: u64,
    },
    /// Tell when something changes under the root.
    Watch,
}

/// Who a run directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run.
    pub run: RunId,
    /// The run directory.
    pub run_dir: Utf8PathBuf,
    /// The canonical checkpoint root.
    pub root: Option<Utf8PathBuf>,
}

/// What a lane answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done,
    /// The folded journals.
    Loaded(Box<Loaded>),
    /// A term was won.
    Term(Term),
    /// Somebody else holds the lease.
    Held(String),
    /// The lease is not ours any more.
    Lost(String),
    /// A scan.
    Scan(ScanReport),
    /// Pins, `None` where the step is gone.
    Pins(Option<PinsHash>),
}

/// What was found in a run directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// The folded state.
    pub state: State,
    /// Records read.
    pub records: u64,
    /// Things worth saying: damaged lines, a copied directory.
    pub notes: Vec<String>,
    /// Processes that the guard of the last attempt recorded.
    pub recorded: Vec<ProcRef>,
    /// Random, and in the run directory alone: what bears it comes from this run.
    #[serde(default)]
    pub key: String,
    /// Specification of the last term.
    pub spec: Option<Box<RunSpec>>,
}
