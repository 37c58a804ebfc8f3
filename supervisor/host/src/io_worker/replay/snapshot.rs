//! The replayed state on disk, beside the journals: used only as long as they are unchanged.
//!
//! It names the last line that it includes. If that line is in its place, byte for byte, and the files of earlier
//! terms have their lengths, only what follows is replayed; otherwise the snapshot is ignored, and the next
//! supervisor writes a new one.

use super::super::files::{FileSource, open_file};
use super::super::write::{PRIVATE, write_whole};
use super::{LINE_LIMIT, ReplayedState, TermFile, before};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::io::Read;
use supervise_checkpoint::ByteSource;
use supervise_core::journal::{seal, sum, unseal};

const NAME: &str = "snapshot.json";
/// Increase this whenever the same records replay to a different state.
const VERSION: u32 = 5;
const LIMIT: u64 = 64 << 20;
/// It is rewritten after this many bytes of journal, or a multiple of its own size.
const EVERY: u64 = 256 << 10;
const TIMES: u64 = 4;

#[derive(Serialize, Deserialize)]
struct SnapshotFile<F> {
    version: u32,
    /// The release that wrote it: another one ignores it.
    by: String,
    folded: F,
}

fn path(run_dir: &Utf8Path) -> Utf8PathBuf {
    run_dir.join(NAME)
}

impl ReplayedState {
    pub(super) fn restored(run_dir: &Utf8Path, files: &[TermFile]) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = open_file(&path(run_dir)).ok()?;
        file.take(LIMIT).read_to_end(&mut bytes).ok()?;
        let object = unseal(bytes.strip_suffix(b"\n")?).ok()?;
        let read: SnapshotFile<Self> = serde_json::from_slice(&object).ok()?;
        let ours = read.version == VERSION && read.by == env!("CARGO_PKG_VERSION");
        let mut folded = Some(read.folded).filter(|f| ours && f.fits(files))?;
        folded.saved_size = bytes.len() as u64;
        Some(folded)
    }

    /// Returns true if the part of the journals that was replayed is unchanged.
    pub(super) fn fits(&self, files: &[TermFile]) -> bool {
        if self.at.term == 0 {
            return true;
        }
        let Some(file) = files.iter().find(|f| f.term == self.at.term && f.is_file) else {
            return false;
        };
        if before(files, self.at.term) != self.earlier {
            return false;
        }
        if self.at.offset == 0 {
            return true;
        }
        self.stands_in(&file.path).unwrap_or(false)
    }

    /// Returns true if the last replayed line is in its place.
    fn stands_in(&self, path: &Utf8Path) -> Option<bool> {
        let file = FileSource::open(path).ok()?;
        let len = self.at.offset.checked_sub(self.last.at)?.checked_sub(1)?;
        if len > LINE_LIMIT || file.len().ok()? < self.at.offset {
            return None;
        }
        let mut line = vec![0; usize::try_from(len).ok()? + 1];
        let mut read = 0;
        while read < line.len() {
            match file.read_at(self.last.at + read as u64, line.get_mut(read..)?).ok()? {
                0 => return None,
                n => read += n,
            }
        }
        Some(line.pop()? == b'\n' && sum(&line) == self.last.sum)
    }

    /// Writes the snapshot if enough was replayed since the last one; `now`: if anything was. A failure does no harm.
    pub(in super::super) fn save(&mut self, run_dir: &Utf8Path, now: bool) {
        let due = if now {
            1
        } else {
            EVERY.max(self.saved_size.saturating_mul(TIMES))
        };
        // A skipped line has no checksum to recognize it by.
        if self.unsaved < due || self.at.offset == 0 || self.last.sum == 0 {
            return;
        }
        self.unsaved = 0;
        let snapshot = SnapshotFile {
            version: VERSION,
            by: env!("CARGO_PKG_VERSION").to_owned(),
            folded: &*self,
        };
        let Ok(object) = serde_json::to_vec(&snapshot) else {
            return;
        };
        let bytes = seal(object);
        self.saved_size = bytes.len() as u64;
        if let Err(e) = write_whole(&path(run_dir), &bytes, PRIVATE) {
            tracing::debug!("no snapshot was written: {e}");
        }
    }
}
