//! Result of cutting a step anew.

use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;

/// A step that was written for another number of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReshardView {
    /// Directory of the step that was read.
    pub source: Utf8PathBuf,
    /// Its number.
    pub step: u64,
    /// Directory that was made.
    pub target: Utf8PathBuf,
    /// Ranks that saved it.
    pub world_size_before: u64,
    /// Ranks that can read it now.
    pub world_size: u64,
    /// Files that were written.
    pub files: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Bytes of the source that were compared with their checksums.
    pub bytes_checked: u64,
    /// Time from the first byte to the last, in milliseconds.
    pub milliseconds: u64,
    /// Losses of exactness, and work that is left to do.
    pub notes: Vec<String>,
}

impl ReshardView {
    /// The same in words.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{}: step {} of {} for {}; {}, {} in {:.1} s\n",
            shown(self.target.as_str()),
            self.step,
            count(self.world_size_before, "rank"),
            self.world_size,
            count(self.files, "file"),
            bytes(self.bytes_written),
            self.milliseconds as f64 / 1000.0,
        )
    }
}
