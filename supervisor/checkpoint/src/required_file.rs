//! Files that a proof inspects.

use crate::kind::FileKind;
use camino::Utf8PathBuf;

/// A file that must be inspected before its step can be called proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredFile {
    /// Relative to a directory that the caller knows.
    pub path: Utf8PathBuf,
    pub kind: FileKind,
    /// The file that describes this one: `.metadata` for a `.distcp`, an index for a part of the weights.
    pub described_by: Option<Utf8PathBuf>,
}

impl RequiredFile {
    /// Creates an entry for a file that no other one describes.
    #[must_use]
    pub fn new(path: impl Into<Utf8PathBuf>, kind: FileKind) -> Self {
        Self {
            path: path.into(),
            kind,
            described_by: None,
        }
    }

    /// Sets the file that describes this one.
    #[must_use]
    pub fn described_by(mut self, other: impl Into<Utf8PathBuf>) -> Self {
        self.described_by = Some(other.into());
        self
    }

    /// Returns the same entry, relative to the parent of `dir`.
    #[must_use]
    pub fn under(self, dir: &camino::Utf8Path) -> Self {
        Self {
            path: dir.join(self.path),
            kind: self.kind,
            described_by: self.described_by.map(|p| dir.join(p)),
        }
    }
}
