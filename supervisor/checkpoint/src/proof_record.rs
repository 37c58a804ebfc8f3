//! Proofs on disk: which bytes stood in each file of a step, and how the file system showed them.
//!
//! A [`Pin`] is what a file system says of a file. Equal pins mean that nobody touched it since ([`trust`]), so nothing
//! is read again; after a reboot that is no proof of what the disk holds, so the bytes are read again and compared
//! ([`compare`]). Bytes decide: a copy that was restored with other times is whole where its CRC-32 is the one that was
//! proven. Where the bytes differ, the times say what happened: see [`compare`].

mod format;

pub use format::{RecordError, decode, decode_marks, encode};

use crate::judge::FileReport;
use crate::step_counters::StepCounters;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, FileFact, Finding, Verdict};
use supervise_core::id::{Step, WallMs};

/// Statements of a file system about a file: equal pins, untouched file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FilePin {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime: i64,
}

/// Nanoseconds that a file must have been left alone before its pin tells of every later write: some file systems count
/// time in steps of two seconds.
const SETTLED: i64 = 2_000_000_000;

impl FilePin {
    /// The pin of a file.
    #[must_use]
    pub fn of(fact: &FileFact) -> Self {
        Self {
            dev: fact.dev,
            ino: fact.ino,
            size: fact.size,
            mtime: fact.mtime,
            ctime: fact.ctime,
        }
    }

    /// Returns true if the file was last touched long enough before `read` that a write since would show: a write in the same
    /// tick of the file system's clock leaves the pin as it is.
    #[must_use]
    pub fn settled(&self, read: WallMs) -> bool {
        let last = self.mtime.max(self.ctime);
        read.0.saturating_mul(1_000_000).saturating_sub(last) >= SETTLED
    }
}

/// A file that was proven.
///
/// Whoever makes one takes the pin before reading and sees that it is the same afterwards and [settled](Pin::settled):
/// else somebody wrote meanwhile, and what was read is nobody's file. What a file says about others (`description`) is not
/// kept: a table such as `.metadata` is inspected again where its parts are to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenFile {
    /// How it stood in the file system when it was read.
    pub pin: FilePin,
    /// The findings; its `crc` is the CRC-32 of all its bytes.
    pub report: FileReport,
}

/// Proof of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofRecord {
    /// The step's directory.
    pub ckpt: CkptId,
    /// Its number.
    pub step: Step,
    /// The boot of the machine in which it was read.
    pub boot: String,
    /// When.
    pub wall: WallMs,
    /// Counters that rise from step to step.
    pub marks: StepCounters,
    /// Its files, by their path in the step's directory: a step that is moved keeps its record.
    pub files: BTreeMap<Utf8PathBuf, ProvenFile>,
}

/// True if a proof of a file still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofValidity {
    /// Nobody touched it: nothing needs reading.
    Same,
    /// Something moved, or the proof does not reach: read it again, then [`compare`].
    Reread,
}

/// Returns true if a proof holds for the file as it stands now.
///
/// A proof of every byte does not outlive the boot it was made in: what was read came from memory, and a machine that
/// went down may never have written it. That a file could not be read is no proof at all.
#[must_use]
pub fn trust(known: &ProvenFile, now: &FilePin, depth: Depth, same_boot: bool) -> ProofValidity {
    let reaches = known.report.proven >= depth && known.report.verdict != Verdict::Unreadable;
    let outlives = same_boot || depth == Depth::Structure;
    if reaches && outlives && known.pin == *now {
        ProofValidity::Same
    } else {
        ProofValidity::Reread
    }
}

/// Words about a file that was whole and has been read again, from the CRC-32 of all its bytes.
///
/// Equal bytes say nothing, whatever the times are: a restored copy is whole. Where they differ, the modification time
/// tells the cases apart. Unchanged with the size: no program wrote (each write sets the time), so the storage lost bits.
/// Older, or unchanged with another size: a file from elsewhere was put in its place with its own times, as a restore of
/// the wrong backup does, and it is not what training would go on from. Newer: somebody wrote it anew, as a trainer does
/// that passes the step again; that is no damage, and the new bytes have been proven by themselves. A file that was not
/// whole when it was last read is not compared: what replaced it can only be better.
#[must_use]
pub fn compare(known: &ProvenFile, now: &FilePin, crc: u32) -> Option<Finding> {
    let before = known.report.crc.filter(|_| known.report.verdict == Verdict::Whole)?;
    let size = known.pin.size == now.size;
    if before == crc && size {
        return None;
    }
    if now.mtime > known.pin.mtime {
        let detail = "it was written anew since it was last proven; it has been proven anew";
        return Some(Finding::note("rewritten", detail));
    }
    if size && now.mtime == known.pin.mtime {
        let detail =
            format!("its bytes changed while its size and time did not: CRC-32 {crc:08x}, {before:08x} was proven");
        return Some(Finding::error("rot", Verdict::Damaged, detail));
    }
    let detail = format!(
        "another or older file stands in its place: CRC-32 {crc:08x} of {} bytes, {before:08x} of {} bytes was proven",
        now.size, known.pin.size
    );
    Some(Finding::error("not_what_was_proven", Verdict::Damaged, detail))
}
