//! Files that a proof looks into.

use crate::kind::FileKind;
use camino::Utf8PathBuf;

/// A file that has to be looked into before its step can be called proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredFile {
    /// Its path; relative to what, the asker knows.
    pub path: Utf8PathBuf,
    /// How it is read.
    pub kind: FileKind,
    /// The file that says what must stand in this one: `.metadata` for a `.distcp`, an index for a part of the weights.
    pub described_by: Option<Utf8PathBuf>,
}

impl RequiredFile {
    /// A file that explains itself.
    #[must_use]
    pub fn new(path: impl Into<Utf8PathBuf>, kind: FileKind) -> Self {
        Self {
            path: path.into(),
            kind,
            described_by: None,
        }
    }

    /// A file whose content another one describes.
    #[must_use]
    pub fn described_by(mut self, other: impl Into<Utf8PathBuf>) -> Self {
        self.described_by = Some(other.into());
        self
    }

    /// The same need below a directory.
    #[must_use]
    pub fn under(self, dir: &camino::Utf8Path) -> Self {
        Self {
            path: dir.join(self.path),
            kind: self.kind,
            described_by: self.described_by.map(|p| dir.join(p)),
        }
    }
}
