//! One step directory, by its listing.

use super::groups::StepListing;
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{EntryKind, FileFact, PinsHash};

#[derive(Debug, Default)]
pub(crate) struct HfStepDir {
    pub(super) dir: Option<FileFact>,
    pub(super) below: BTreeMap<String, FileFact>,
}

impl HfStepDir {
    /// Kind of the step's own entry: a directory, or something that is not followed.
    pub(crate) fn kind(&self) -> EntryKind {
        self.dir.as_ref().map_or(EntryKind::Dir, |d| d.kind)
    }

    pub(crate) fn regular(&self) -> impl Iterator<Item = (&str, &FileFact)> {
        let files = self.below.iter().filter(|(_, f)| f.kind == EntryKind::File);
        files.map(|(path, fact)| (path.as_str(), fact))
    }

    pub(crate) fn files(&self) -> StepListing<'_> {
        StepListing {
            by_path: self.regular().map(|(path, fact)| (path, fact.size)).collect(),
        }
    }

    pub(crate) fn odd(&self) -> impl Iterator<Item = &str> {
        let odd = self
            .below
            .iter()
            .filter(|(_, f)| matches!(f.kind, EntryKind::Symlink | EntryKind::Other));
        odd.map(|(path, _)| path.as_str())
    }

    pub(crate) fn dirs(&self) -> impl Iterator<Item = &str> {
        let dirs = self.below.iter().filter(|(_, f)| f.kind == EntryKind::Dir);
        dirs.map(|(path, _)| path.as_str())
    }

    pub(crate) fn pins(&self) -> PinsHash {
        crate::kit::pins(self.below.iter().map(|(path, fact)| (path.as_str(), fact)))
    }

    pub(crate) fn pins_without(&self, gone: &[Utf8PathBuf]) -> PinsHash {
        let left = self
            .below
            .iter()
            .filter(|(path, _)| !gone.iter().any(|g| g == path.as_str()));
        crate::kit::pins(left.map(|(path, fact)| (path.as_str(), fact)))
    }

    pub(super) fn remove(&mut self, path: &str) {
        let inside = format!("{path}/");
        self.below.retain(|p, _| p != path && !p.starts_with(&inside));
    }
}

/// What neighbouring finished steps have, which this one should have too.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Siblings {
    pub(crate) optimizer: bool,
    pub(crate) schedule: bool,
    pub(crate) scaler: bool,
    /// From the finished step directly before: after a configuration change, only the next step is taken for
    /// incomplete.
    pub(crate) rollout: bool,
    pub(crate) entropy: bool,
}
