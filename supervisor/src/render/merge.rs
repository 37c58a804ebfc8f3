//! Result of a merge.

use super::{bytes, count};
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;
use std::fmt::Write as _;

/// A file read through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkedFile {
    /// Its name in the model.
    pub file: String,
    pub from: Utf8PathBuf,
}

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

/// A merged model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergeView {
    pub source: Utf8PathBuf,
    /// The step, if the directory name has it.
    pub step: Option<u64>,
    /// The role, if the step has roles.
    pub role: Option<String>,
    pub target: Utf8PathBuf,
    pub files: Vec<String>,
    pub tensors: u64,
    /// Files that share the checkpoint's bytes: reflinks or hard links.
    pub linked: u64,
    pub bytes_written: u64,
    /// Source bytes verified by checksum.
    pub bytes_checked: u64,
    pub milliseconds: u64,
    pub through_links: Vec<LinkedFile>,
    pub notes: Vec<String>,
}

impl MergeView {
    /// The merge as text.
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
