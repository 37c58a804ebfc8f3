//! Proofs on disk: the bytes of each file of a step, and how the file system described them.
//!
//! A [`FilePin`] is what a file system reports about a file. Equal pins mean that the file was not touched since ([`trust`]), so nothing
//! is read again. After a reboot, they do not prove what is on disk, so the bytes are read again and compared ([`compare`]). Bytes
//! decide: a copy that was restored with other times is whole if its CRC-32 is the proven one. If the bytes differ, the times show what
//! happened: see [`compare`].

mod format;

pub use format::{RecordError, decode, decode_marks, encode};

use crate::judge::FileReport;
use crate::step_counters::StepCounters;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, FileFact, Finding, Verdict};
use supervise_core::id::{Step, WallMs};

/// What a file system reports about a file: equal pins mean an untouched file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FilePin {
    pub dev: u64,
    pub ino: u64,
    /// In bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime: i64,
}

/// Nanoseconds that a file must be left alone before its pin reveals every later write: some file systems count time in steps of two
/// seconds.
const SETTLED: i64 = 2_000_000_000;

impl FilePin {
    /// Creates the pin of a file.
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

    /// Whether the file was last touched long enough before `read` that a later write would show. A write in the same tick of the file
    /// system's clock does not change the pin.
    #[must_use]
    pub fn settled(&self, read: WallMs) -> bool {
        let last = self.mtime.max(self.ctime);
        read.0.saturating_mul(1_000_000).saturating_sub(last) >= SETTLED
    }
}

/// A file that was proven.
///
/// The creator takes the pin before reading and checks that it is unchanged afterwards and [settled](FilePin::settled). Otherwise the
/// file was written meanwhile, and the bytes read may be a mix. What a file says about others (`description`) is not kept: a table such
/// as `.metadata` is inspected again when its parts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenFile {
    /// The file system's view when it was read.
    pub pin: FilePin,
    /// The findings; its `crc` is the CRC-32 of all its bytes.
    pub report: FileReport,
}

/// Proof of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofRecord {
    pub ckpt: CkptId,
    pub step: Step,
    /// The machine's boot ID when it was read.
    pub boot: String,
    pub wall: WallMs,
    pub marks: StepCounters,
    /// Its files, by path in the step's directory, so that a moved step keeps its record.
    pub files: BTreeMap<Utf8PathBuf, ProvenFile>,
}

/// Whether a proof of a file still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofValidity {
    /// The file was not touched: nothing needs reading.
    Same,
    /// The file changed, or the proof is not deep enough: read it again, then [`compare`].
    Reread,
}

/// Checks whether a proof holds for the file in its current state.
///
/// A proof of every byte does not outlive its boot: the bytes came from memory, and a crashed machine may never have written them to
/// disk. A file that could not be read was not proven at all.
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

/// Compares a file that was whole with the CRC-32 of a new reading.
///
/// Equal bytes give no finding, whatever the times are: a restored copy is whole. If they differ, the modification time shows why. If
/// time and size are unchanged, no program wrote (each write sets the time), so the storage corrupted it. If the time is older, or
/// unchanged with another size, another file replaced it with its own times, as a restore of the wrong backup does; training must not
/// resume from it. If the time is newer, the file was rewritten, as a trainer does that passes the step again; this is not damage, and
/// the new bytes have their own proof. A file that was not whole when it was last read is not compared: any replacement can only be
/// better.
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
        "another or older file is in its place: CRC-32 {crc:08x} of {} bytes, {before:08x} of {} bytes was proven",
        now.size, known.pin.size
    );
    Some(Finding::error("not_what_was_proven", Verdict::Damaged, detail))
}
