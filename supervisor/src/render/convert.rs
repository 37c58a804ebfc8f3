//! Result of a conversion.

use super::merge::{LinkedFile, links_text};
use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;
use std::fmt::Write as _;

/// A model that was written in another form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvertView {
    /// Directory that it was read from.
    pub source: Utf8PathBuf,
    /// Directory that was made.
    pub target: Utf8PathBuf,
    /// How layers are named: `stacked`, `layers` or `single`.
    pub keys: &'static str,
    /// Its files.
    pub files: Vec<String>,
    /// Tensors that were written.
    pub tensors: u64,
    /// Bytes of weights that were written, with what stands around them.
    pub bytes_written: u64,
    /// Time from the first byte to the last, in milliseconds.
    pub milliseconds: u64,
    /// Files that came through links.
    pub through_links: Vec<LinkedFile>,
    /// Things a reader should know.
    pub notes: Vec<String>,
}

impl ConvertView {
    /// The same in words.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "{}: {} ({}), {} written in {:.1} s\n",
            shown(self.target.as_str()),
            count(self.tensors, "tensor"),
            self.keys,
            bytes(self.bytes_written),
            self.milliseconds as f64 / 1000.0,
        );
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  from {}", shown(self.source.as_str()));
        out.push_str(&links_text(&self.through_links));
        out
    }
}
