//! One checkpoint with its marks.

use super::mark::SavedMark;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{EntryKind, FileFact};

/// An entry of the root: the checkpoint itself, what is below it, and its marks by the name of their file.
#[derive(Debug, Default)]
pub(super) struct LoopEntry {
    pub(super) own: Option<FileFact>,
    pub(super) below: BTreeMap<String, FileFact>,
    pub(super) marks: BTreeMap<String, SavedMark>,
}

impl LoopEntry {
    /// Regular files, by path in the checkpoint; that of a single file is empty.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &FileFact)> {
        let own = self.own.iter().map(|fact| ("", fact));
        let below = self.below.iter().map(|(path, fact)| (path.as_str(), fact));
        own.chain(below).filter(|(_, fact)| fact.kind == EntryKind::File)
    }

    /// The mark that fits the files, or else the newest.
    pub(super) fn mark(&self) -> Option<&SavedMark> {
        let (files, bytes) = self.size();
        let fits = |mark: &&SavedMark| mark.files == files && mark.bytes == bytes;
        let fitting = self.marks.values().filter(fits).max_by_key(|mark| mark.step);
        fitting.or_else(|| self.marks.values().max_by_key(|mark| mark.step))
    }

    /// Number of files, and their bytes.
    pub(super) fn size(&self) -> (u64, u64) {
        let add = |(n, bytes): (u64, u64), (_, fact): (&str, &FileFact)| (n + 1, bytes.saturating_add(fact.size));
        self.files().fold((0, 0), add)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.own.is_none() && self.below.is_empty() && self.marks.is_empty()
    }
}
