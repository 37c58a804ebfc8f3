//! Questions to an I/O worker and its answers.

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

/// A numbered question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IoRequest {
    /// Answered under the same number.
    pub id: u64,
    /// The question.
    pub ask: IoQuestion,
}

/// A line from an I/O worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoReply {
    /// The answer to a question.
    Done {
        /// Its number.
        id: u64,
        /// The answer; `Err` in words.
        answer: Result<Box<IoAnswer>, ActError>,
    },
    /// The question is being worked on.
    Working {
        /// Its number.
        id: u64,
        /// Bytes read so far.
        bytes: u64,
        /// Of so many; 0 where that is not known.
        #[serde(default)]
        of: u64,
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

/// Questions to an I/O worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoQuestion {
    /// Create or find the run directory, read its journals, fold them.
    Open(RunIdentity),
    /// List what a run left: steps that went aside, directories of its attempts.
    Leftovers {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// Place where its steps go aside.
        store: Utf8PathBuf,
    },
    /// Delete leftovers; under a lease.
    Delete {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// Place where its steps go aside.
        store: Utf8PathBuf,
        /// Places as [`Answer::Leftovers`] told them.
        places: Vec<Utf8PathBuf>,
    },
    /// Only read: nothing is created.
    Peek {
        /// The run directory.
        run_dir: Utf8PathBuf,
    },
    /// Look at a path, for whoever prepares a run.
    Look(PathQuery),
    /// Whole lines of the journals from a place on, as they stand there; a piece at a time.
    Lines {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// From there.
        from: JournalPlace,
    },
    /// Win the next term, waiting for a holder that cannot be seen.
    TakeLease {
        /// The directory the terms stand in.
        dir: Utf8PathBuf,
        /// The challenger, and its terms.
        claim: Box<LeaseClaim>,
        /// The run that is begun or gone on with; without one nothing but the lease is touched.
        identity: Option<Box<RunIdentity>>,
    },
    /// Begin the term's journal and write its specification.
    Begin {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// The term.
        term: Term,
        /// The specification.
        spec: Box<RunSpec>,
        /// The directory the terms stand in.
        lease_dir: Utf8PathBuf,
        /// Registry of runs for `status` without a name; best effort.
        registry: Option<Utf8PathBuf>,
    },
    /// Go on with a term that another I/O worker began and did not survive.
    Adopt {
        /// The run directory.
        run_dir: Utf8PathBuf,
        /// The term.
        term: Term,
        /// The directory the terms stand in.
        lease_dir: Utf8PathBuf,
        /// The inodes that [`Answer::Begun`] named.
        ground: Vec<u64>,
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
    /// Know these steps of the run for scans: what their records say is taken as read if their files are still so.
    OwnSteps(BTreeMap<String, OwnStep>),
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
    /// Read the weights of a step for numbers that are not finite.
    Finite {
        /// The step.
        ckpt: CkptId,
        /// No training is slowed down by it.
        #[serde(default)]
        thorough: bool,
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
        /// The act: how it ended is told by [`IoReply::Kept`].
        act: ActId,
        /// The live set as it was proven.
        ckpt: CkptId,
        /// The step it holds.
        step: Step,
        /// Its form then.
        pins: PinsHash,
        /// Bytes a second at most; 0 for no limit.
        rate: u64,
    },
    /// Tell when something changes under the root.
    Watch,
}

/// The owner of a run directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// The run.
    pub run: RunId,
    /// The run directory.
    pub run_dir: Utf8PathBuf,
    /// The canonical checkpoint root.
    pub root: Option<Utf8PathBuf>,
}

/// Answers of an I/O worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoAnswer {
    /// Done.
    Done,
    /// Done, and a step was cut anew.
    Resharded(ReshardedStep),
    /// The folded journals.
    Loaded(Box<LoadedRun>),
    /// Leftovers of a run.
    Leftovers(Vec<Leftover>),
    /// Sighting.
    Seen(Result<PathAnswer, PathError>),
    /// A piece of the journals.
    Lines {
        /// Place where it begins.
        at: JournalPlace,
        /// Whole lines. They are not told in JSON, which would take as long as to read what they say.
        #[serde(skip)]
        text: Vec<u8>,
        /// Their bytes, which follow the answer as they stand in the file.
        length: usize,
        /// Place where the next piece begins; `None` at the end.
        next: Option<JournalPlace>,
        /// Bytes after this piece.
        left: u64,
    },
    /// A term was won.
    Term(Term),
    /// A term was won, and its run directory with it.
    Taken(Box<TermStart>),
    /// The term was begun; these are the inodes of what it stands on.
    Begun(Vec<u64>),
    /// Somebody else holds the lease.
    Held(String),
    /// The lease is not ours any more.
    Lost(String),
    /// The lease is ours, and a request was left in the run directory.
    Asked(String),
    /// The run directory, the lease or the journal is not where it was, in words.
    Displaced(String),
    /// A scan.
    Scan(ScanReport),
    /// Pins, `None` where the step is gone.
    Pins(Option<PinsHash>),
    /// Files of a step's model that hold numbers which are not finite, and its tensors that do; `None` where it could not be read.
    Finite(Option<(u32, OddTensors)>),
}

/// Term that was won with the lease of a run directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TermStart {
    /// The term.
    pub term: Term,
    /// When the look began by which it was won, by the clock of the boot.
    pub looked: Tick,
    /// Random, and in the run directory alone: what bears it comes from this run.
    pub key: String,
    /// Things worth saying: a copied or moved directory, permissions that were mended.
    pub notes: Vec<String>,
    /// The identity that the run had under its root's earlier name.
    pub before: Option<RunId>,
    /// The journals, where they are not any more what was loaded before.
    pub anew: Option<Box<LoadedRun>>,
}

/// A place in a run's journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct JournalPlace {
    /// The term's file; 0: before the first.
    pub term: u32,
    /// The byte.
    pub offset: u64,
}

/// A line of a journal in a newer format than this release knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewerLine {
    /// Its format version.
    pub version: u64,
    /// The term whose journal it is in.
    pub term: u32,
    /// Its line there, from 1.
    pub line: u64,
}

/// Place where the story of an attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStart {
    /// The attempt.
    pub attempt: AttemptNo,
    /// The first record about it.
    pub at: JournalPlace,
}

/// Findings in a run directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadedRun {
    /// The folded state.
    pub state: RunState,
    /// The ledger beside it.
    #[serde(default)]
    pub ledger: TimeLedger,
    /// Records read.
    pub records: u64,
    /// Things worth saying: gaps, damaged lines, a copied directory.
    pub notes: Vec<String>,
    /// Those of them that tell of terms of which nothing is known.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// The first line that this release cannot read because a newer one wrote it.
    #[serde(default)]
    pub newer: Option<NewerLine>,
    /// Processes that the guard of the last attempt recorded; none if others may have written that.
    pub recorded: Vec<ProcRef>,
    /// Why nobody may act by what stands there: another user wrote it, or could have.
    #[serde(default)]
    pub distrust: Option<PathDistrust>,
    /// Random, and in the run directory alone: what bears it comes from this run.
    #[serde(default)]
    pub key: String,
    /// The directory bears another root's name: what was folded is another run's, unless that root was mounted here.
    #[serde(default)]
    pub copied: bool,
    /// The holder of its lease, and how long ago it was heard of, by the clock of the file system.
    #[serde(default)]
    pub holder: Option<(Holder, Ms)>,
    /// Specification of the last term.
    pub spec: Option<Box<RunSpec>>,
    /// Place where the last attempts begin in the journals.
    #[serde(default)]
    pub attempts: Vec<AttemptStart>,
}

/// Something that a run left and does not need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Kind of it.
    pub kind: LeftoverKind,
    /// Place of it, below the store (`aside/…`) or the run directory (`attempts/…`).
    pub place: Utf8PathBuf,
    /// Space that it takes on the disk, in bytes.
    pub bytes: u64,
    /// Seconds since the epoch at which it came there.
    pub since: i64,
    /// Reason it went aside, as it was written down then.
    pub why: Option<String>,
}

/// Kinds of leftovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// A torn or damaged step, or a part of one.
    Torn,
    /// A step that was whole when it went aside.
    Whole,
    /// A step of another run.
    Foreign,
    /// Output and evidence of one attempt.
    Attempt(AttemptNo),
}
