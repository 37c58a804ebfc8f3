//! Result of resharding a step.

use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;

/// A step written for another number of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReshardView {
    pub source: Utf8PathBuf,
    pub step: u64,
    pub target: Utf8PathBuf,
    /// Ranks that saved it.
    pub world_size_before: u64,
    /// Ranks that can load it now.
    pub world_size: u64,
    pub files: u64,
    pub bytes_written: u64,
    /// Source bytes verified by checksum.
    pub bytes_checked: u64,
    pub milliseconds: u64,
    /// What is not exact, and what is left to do.
    pub notes: Vec<String>,
}

impl ReshardView {
    /// The resharding as text.
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
