//! Result of a conversion.

use super::merge::{LinkedFile, links_text};
use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;
use std::fmt::Write as _;

/// A model written in another format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvertView {
    pub source: Utf8PathBuf,
    pub target: Utf8PathBuf,
    /// How layers are named: `stacked`, `layers` or `single`.
    pub keys: &'static str,
    pub files: Vec<String>,
    pub tensors: u64,
    /// Bytes of weight files written, including headers.
    pub bytes_written: u64,
    pub milliseconds: u64,
    pub through_links: Vec<LinkedFile>,
    pub notes: Vec<String>,
}

impl ConvertView {
    /// The conversion as text.
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
