//! One checkpoint with its marks.

use super::mark::SavedMark;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{EntryKind, FileFact};

/// An entry of the root: the checkpoint itself, what is below it, and its marks by the name of their file.
#[derive(Debug, Default)]
pub(super) struct LoopEntry {
    pub(super) own: Option<FileFact>,
    pub(super) below: BTreeMap<String, FileFact>,
    pub(super) marks: BTreeMap<String, LoopMark>,
}

/// A mark, and the time of its own file.
#[derive(Debug)]
pub(super) struct LoopMark {
    pub(super) says: SavedMark,
    pub(super) mtime: i64,
}

impl LoopEntry {
    /// Regular files, by path in the checkpoint; that of a single file is empty.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &FileFact)> {
        let own = self.own.iter().map(|fact| ("", fact));
        let below = self.below.iter().map(|(path, fact)| (path.as_str(), fact));
        own.chain(below).filter(|(_, fact)| fact.kind == EntryKind::File)
    }

    /// The mark that fits the files, or else the newest.
    pub(super) fn mark(&self) -> Option<&LoopMark> {
        let (files, bytes) = self.size();
        let fits =
            |mark: &&LoopMark| mark.says.files == files && mark.says.bytes == bytes && !self.is_written_again(mark);
        let fitting = self.marks.values().filter(fits).max_by_key(|mark| mark.says.step);
        fitting.or_else(|| self.marks.values().max_by_key(|mark| mark.says.step))
    }

    /// Returns true if a file was written after it was reported. A mark whose own time is another one is a copy, and so are the files.
    pub(super) fn is_written_again(&self, mark: &LoopMark) -> bool {
        let is_original = mark.says.newest == Some(mark.mtime);
        is_original && self.files().map(|(_, fact)| fact.mtime).max() != mark.says.newest
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
