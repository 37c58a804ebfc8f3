//! Statements about a checkpoint: verdicts, findings, summaries.
//!
//! A finding is data with a level, never an error: reading a directory always gives an answer, and the answer names the
//! file. An I/O error means `Unreadable`, never `Damaged`: only bytes that were read can condemn a file.

pub mod finiteness;
pub mod kind;
pub mod reshard;

use crate::id::{AttemptNo, Step, WallMs};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Verdict on a checkpoint or on one of its files, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything is there and passes the checks at the depth used.
    Whole,
    /// The files fit no known layout.
    Unknown,
    /// Something is missing: a save is running or was killed.
    Incomplete,
    /// Bytes that were read are wrong.
    Damaged,
    /// Loading it would call something on the danger list.
    Unsafe,
    /// The bytes could not be read (an I/O error), so nothing is known about them.
    Unreadable,
}

impl Verdict {
    /// The worse of two verdicts.
    #[must_use]
    pub fn worst(self, other: Self) -> Self {
        self.max(other)
    }

    /// The exit code of `supervise verify` for this verdict.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::Incomplete => 20,
            Self::Damaged => 21,
            Self::Unsafe => 22,
            Self::Unknown => 23,
            Self::Unreadable => 24,
        }
    }

    /// The word used in text and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Unknown => "unknown",
            Self::Incomplete => "incomplete",
            Self::Damaged => "damaged",
            Self::Unsafe => "unsafe",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// How deep a proof went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Names, sizes, zip directories, pickled references: reads kilobytes.
    Structure,
    /// Every byte is read once and compared with its CRC.
    Full,
}

impl Depth {
    /// The word used in text, settings and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Full => "full",
        }
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// Worth knowing.
    Note,
    /// Doubtful, but does not condemn.
    Warning,
    /// Condemns with the finding's verdict.
    Error,
}

/// One finding in a checkpoint, with its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable, documented name such as `zip_truncated`.
    pub code: Cow<'static, str>,
    /// How much it matters.
    pub level: FindingLevel,
    /// The verdict on the file if the level is `Error`.
    pub verdict: Verdict,
    /// Description an operator can act on, without the file name.
    pub detail: String,
    /// The file, relative to the checkpoint (or to the path given on the command line).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Utf8PathBuf>,
    /// Byte offset in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Distributed rank that the file belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Role that the file belongs to (`actor`, `critic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether a retry may succeed (a transient I/O error).
    #[serde(default)]
    pub retryable: bool,
}

impl Finding {
    /// A finding that condemns with `verdict`.
    #[must_use]
    pub fn error(code: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self::new(code, FindingLevel::Error, verdict, detail)
    }

    /// A finding that raises doubt but does not condemn.
    #[must_use]
    pub fn warning(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(code, FindingLevel::Warning, Verdict::Whole, detail)
    }

    /// A finding worth knowing.
    #[must_use]
    pub fn note(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(code, FindingLevel::Note, Verdict::Whole, detail)
    }

    fn new(code: &'static str, level: FindingLevel, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            code: Cow::Borrowed(code),
            level,
            verdict,
            detail: detail.into(),
            file: None,
            offset: None,
            rank: None,
            role: None,
            retryable: false,
        }
    }

    /// Sets the file.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<Utf8PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets the byte offset.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The verdict that this finding alone leads to.
    #[must_use]
    pub fn effect(&self) -> Verdict {
        match self.level {
            FindingLevel::Error => self.verdict,
            FindingLevel::Note | FindingLevel::Warning => Verdict::Whole,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.detail)?;
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        write!(f, " [{}]", self.code)
    }
}

/// A kind of training state, as named when it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Model weights.
    Weights,
    /// Optimizer state.
    Optimizer,
    /// Learning-rate schedule.
    LrSchedule,
    /// Random number generators of the trainer's ranks.
    Rng,
    /// The dataloader's position and order.
    DataOrder,
    /// Seeds of the rollout engines and in-flight rollouts.
    Rollout,
    /// A model that judges the trained one. It is saved but not loaded.
    Critic,
    /// Parallel sizes that the trainer needs to be the same at each resume.
    Parallel,
}

impl StateKind {
    /// The words used in text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Weights => "model weights",
            Self::Optimizer => "optimizer state",
            Self::LrSchedule => "learning-rate schedule",
            Self::Rng => "random number generators",
            Self::DataOrder => "data order",
            Self::Rollout => "rollout seeds and in-flight rollouts",
            Self::Critic => "critic (begins anew)",
            Self::Parallel => "parallel sizes",
        }
    }
}

/// Whether this run can resume from a checkpoint, which is not the same as being whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumability {
    /// All state that this trainer saves is restored.
    Exact,
    /// It can be resumed from, but some state is lost.
    Degraded {
        /// The state that is lost.
        lost: Vec<StateKind>,
    },
    /// It does not fit the run. This is never a reason to fall back or to move it.
    Not {
        /// Why, in words an operator can act on.
        why: String,
    },
}

/// A whole step that fits the run except for the number of ranks, and can be resharded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardOffer {
    /// Ranks that saved it.
    pub from: u32,
    /// Ranks of the run.
    pub to: u32,
    /// State that is lost even after a reshard, because the step does not contain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<StateKind>,
}

/// The whole contents of a damaged or unfinished step: a run could resume from them and lose the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialStep {
    /// State that a resume from it loses.
    pub lost: Vec<StateKind>,
    /// Contents that are whole, by role.
    pub holds: BTreeMap<String, Vec<String>>,
    /// How deep these contents were proven.
    pub proven: Option<Depth>,
    /// Files that are not whole and that the trainer would load anyway: they are moved aside before a launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<Utf8PathBuf>,
    /// Pins of the files without those in `aside`.
    pub pins: PinsHash,
}

impl PartialStep {
    /// Returns true if it is proven to at least `depth`.
    #[must_use]
    pub fn is_proven(&self, depth: Depth) -> bool {
        self.proven.is_some_and(|d| d >= depth)
    }
}

/// Code of the finding about a step of which a training loop says that it is complete, and nothing else does.
pub const REPORTED_ONLY: &str = "reported_only";

/// A checkpoint's identity: its directory relative to the checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CkptId(pub Utf8PathBuf);

impl CkptId {
    /// A file of the checkpoint, relative to the root. A checkpoint that is a single file has one, with an empty path.
    #[must_use]
    pub fn path_of(&self, inside: impl AsRef<Utf8Path>) -> Utf8PathBuf {
        match inside.as_ref().as_str() {
            "" => self.0.clone(),
            inside => self.0.join(inside),
        }
    }
}

impl fmt::Display for CkptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_str().fmt(f)
    }
}

/// Hash over (dev, ino, size, mtime, ctime) of every file. If it is equal, nobody changed the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PinsHash(pub u64);

/// Metadata of one directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFact {
    /// Path relative to the checkpoint root.
    pub path: Utf8PathBuf,
    pub kind: EntryKind,
    pub size: u64,
    /// Modification time in nanoseconds since 1970 (a hint, never proof).
    pub mtime: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime: i64,
    pub dev: u64,
    pub ino: u64,
    #[serde(default)]
    pub uid: u32,
}

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Dir,
    /// A symbolic link (never followed by the scanner).
    Symlink,
    /// Anything else (socket, fifo, device).
    Other,
    /// It was deleted during the scan.
    Gone,
}

/// Summary of one step on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSummary {
    /// Its directory relative to the checkpoint root.
    pub id: CkptId,
    /// The step it holds.
    pub step: Step,
    /// The recognized layout (`verl_fsdp_ppo`, `verl_fsdp_sft`, `unknown`).
    pub layout: Cow<'static, str>,
    /// Verdict on the step.
    pub verdict: Verdict,
    /// How deep the proof went; `None`: unproven.
    pub proven: Option<Depth>,
    /// Roles found (`actor`, `critic`; the step itself for SFT).
    pub roles: Vec<String>,
    /// World size that wrote it.
    pub world: Option<u32>,
    /// Contents present in every role (`model`, `optimizer`, `extra`, `hf_model`).
    pub contents: Vec<String>,
    /// Contents present in each role; empty if all roles have the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: BTreeMap<String, Vec<String>>,
    /// Whether this run can resume from it.
    pub resume: Resumability,
    /// Set if it cannot be resumed from only because another number of ranks saved it, and it can be resharded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshard: Option<ReshardOffer>,
    /// Contents that are whole although the step is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartialStep>,
    /// Hash over the files' pins at the time of the proof.
    pub pins: PinsHash,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// Number of files.
    pub files: u32,
    /// Newest modification time of any file (for display only).
    pub newest: WallMs,
    /// The attempt in this journal that wrote it, if known.
    pub saved_by: Option<AttemptNo>,
    /// Key that identifies the save and is the same in a copy of it. Only set if the trainer overwrites its checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<String>,
    /// Whether it is a pruned remnant: the trainer's retention left only `data.pt`. That is no checkpoint and no
    /// damage.
    #[serde(default)]
    pub husk: bool,
    /// Imports in its files beyond those of torch, numpy and plain data that nobody trusts (`module.name`), sorted, the
    /// first few. Loading the step imports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfamiliar: Vec<String>,
    /// Owner of some of its files, if that is neither root, the user of the run, nor a trusted uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_owner: Option<u32>,
    /// What the trainer wrote into the step about its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_note: Option<TrainerNote>,
    /// Top-level modules of those imports that are in the run's working directory or next to its launch script: the
    /// user's own code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_modules: Vec<String>,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
}

/// What a trainer writes into a step about its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrainerNote {
    /// The best step so far, by the metric that the trainer watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Step>,
    /// Whether the trainer had decided to end the training when it saved the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// Save interval in steps, which stays in force after a resume from this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_every: Option<u64>,
    /// The last planned step at the time of writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Step>,
}

impl CheckpointSummary {
    /// Removes deleted roles. If any was deleted, the rest is no checkpoint.
    pub fn lose_roles(&mut self, gone: &[CkptId]) {
        let before = self.roles.len();
        let went = |role: &str| gone.iter().any(|id| id.0 == self.id.0.join(role));
        let left: Vec<String> = self.roles.iter().filter(|role| !went(role)).cloned().collect();
        if left.len() < before {
            self.roles = left;
            self.verdict = Verdict::Incomplete;
            self.proven = None;
            self.part = None;
            self.husk = true;
        }
    }

    /// Returns true if it is whole and proven to at least `depth`.
    #[must_use]
    pub fn is_proven(&self, depth: Depth) -> bool {
        self.verdict == Verdict::Whole && self.proven.is_some_and(|d| d >= depth)
    }

    /// Returns true if a file of it is of a format that is not read: as many files and bytes as the loop reported are here.
    #[must_use]
    pub fn is_reported_only(&self) -> bool {
        self.findings.iter().any(|f| f.code == REPORTED_ONLY)
    }

    /// The finding that decided the verdict, if it is not whole.
    #[must_use]
    pub fn why(&self) -> Option<&Finding> {
        self.findings
            .iter()
            .filter(|f| f.level == FindingLevel::Error)
            .max_by_key(|f| f.verdict)
    }
}

/// Counts verdicts for a one-line overview.
#[must_use]
pub fn tally(seen: &[CheckpointSummary]) -> BTreeMap<&'static str, u32> {
    let mut out = BTreeMap::new();
    for c in seen {
        *out.entry(c.verdict.word()).or_insert(0) += 1;
    }
    out
}
