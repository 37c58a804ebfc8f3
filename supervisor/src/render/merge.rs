//! Result of a merge.

use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;
use std::fmt::Write as _;

/// A file that came through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkedFile {
    /// Its name in the model.
    pub file: String,
    /// Where the link leads.
    pub from: Utf8PathBuf,
}

/// Lists files that came through links.
pub(super) fn links_text(links: &[LinkedFile]) -> String {
    links.iter().fold(String::new(), |mut out, link| {
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "  through a link: {} -> {}",
            shown(&link.file),
            shown(link.from.as_str())
        );
        out
    })
}

/// A model that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergeView {
    /// Directory that it was read from.
    pub source: Utf8PathBuf,
    /// Step, where the directory tells.
    pub step: Option<u64>,
    /// Role, where the step has roles.
    pub role: Option<String>,
    /// Directory that was made.
    pub target: Utf8PathBuf,
    /// Its files.
    pub files: Vec<String>,
    /// Tensors of the model.
    pub tensors: u64,
    /// Files that have the checkpoint's own bytes: clones, or second names.
    pub linked: u64,
    /// Bytes of weights that were written.
    pub bytes_written: u64,
    /// Bytes of the source that were compared with their checksums.
    pub bytes_checked: u64,
    /// Time from the first byte to the last, in milliseconds.
    pub milliseconds: u64,
    /// Files that came through links.
    pub through_links: Vec<LinkedFile>,
    /// Things a reader should know.
    pub notes: Vec<String>,
}

impl MergeView {
    /// The same in words.
    #[must_use]
    pub fn text(&self) -> String {
        let checked = match (self.bytes_checked, self.linked) {
            (0, 0) => "what it was read from has no checksums".to_owned(),
            (0, _) => "every byte of them read; no run has recorded what they should be".to_owned(),
            (n, _) => format!("{} read and found as they were saved", bytes(n)),
        };
        let linked = match self.linked {
            0 => String::new(),
            n => format!("{} of the checkpoint linked, ", count(n, "file")),
        };
        let mut out = format!(
            "{}: {}, {linked}{} written in {:.1} s; {checked}\n",
            shown(self.target.as_str()),
            count(self.tensors, "tensor"),
            bytes(self.bytes_written),
            self.milliseconds as f64 / 1000.0,
        );
        let step = self.step.map(|s| format!("step {s} of ")).unwrap_or_default();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  from {step}{}", shown(self.source.as_str()));
        out.push_str(&links_text(&self.through_links));
        out
    }
}
