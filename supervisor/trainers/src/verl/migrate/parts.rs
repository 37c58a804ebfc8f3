//! The possible locations of an archive, and the current content of each.

use super::{ARCHIVE, LinkMode, MigrateRefusal, RoleSnapshot};
use crate::verl::megatron::layout_v1::ArchiveContents;
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{EntryKind, FileFact, Finding, Verdict};

/// The directories of the second layout, in the order in which they are put in place.
pub(super) const PARTS: [&str; 3] = ["optimizer", "extra", "model"];
const TABLE: &str = ".metadata";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartAction {
    Ready,
    /// The archive holds nothing for it.
    NotWanted,
    /// Must be built, replacing what exists.
    Build,
}

impl PartAction {
    pub(super) fn is_built(self) -> bool {
        self == Self::Build
    }
}

pub(super) struct ArchiveParts<'a> {
    seen: &'a RoleSnapshot<'a>,
    /// Files of the archive in its old location, by name.
    pub(super) archive: BTreeMap<&'a str, &'a FileFact>,
}

impl<'a> ArchiveParts<'a> {
    pub(super) fn of(seen: &'a RoleSnapshot<'a>) -> Self {
        Self {
            seen,
            archive: below(seen, ARCHIVE),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.archive.values().map(|f| f.size).sum()
    }

    /// The checksum of a part's table; an empty name means the archive in its old location.
    pub(super) fn table(&self, part: &str) -> Option<u32> {
        let path = Utf8Path::new(part).join(ARCHIVE).join(TABLE);
        self.seen.reports.get(&path)?.crc
    }

    /// Locates the whole archive: its old location or, if that is empty, the first part that holds more than its own
    /// kind. Parts with only their own kind come from an unfinished save in the second layout.
    pub(super) fn source(&self) -> Result<Option<&'static str>, MigrateRefusal> {
        if !self.archive.is_empty() {
            return Ok(Some(ARCHIVE));
        }
        if PARTS.iter().all(|part| below(self.seen, &place(part)).is_empty()) {
            return Ok(None);
        }
        let mixed = ArchiveContents::in_report(self.seen.reports, Utf8Path::new("optimizer/dist_ckpt"))
            .is_some_and(|held| held.optimizer && (held.rng || held.model));
        if mixed {
            return Ok(Some("optimizer/dist_ckpt"));
        }
        let detail =
            "there is neither an archive to convert nor a manifest: a save in the second layout was not finished";
        let finding = Finding::error("manifest_missing", Verdict::Incomplete, detail);
        Err(MigrateRefusal::NotWhole(Verdict::Incomplete, vec![finding]))
    }

    pub(super) fn state(
        &self,
        part: &str,
        source: Option<&str>,
        wanted: bool,
        link: LinkMode,
    ) -> Result<PartAction, MigrateRefusal> {
        let here = below(self.seen, &place(part));
        if !wanted {
            return Ok(PartAction::NotWanted);
        }
        let Some(source) = source else {
            return Ok(PartAction::NotWanted);
        };
        let all = below(self.seen, source);
        if here.is_empty() && source == ARCHIVE {
            return Ok(PartAction::Build);
        }
        let of_source = self
            .seen
            .reports
            .get(&Utf8Path::new(source).join(TABLE))
            .and_then(|r| r.crc);
        if here.contains_key(TABLE) && self.table(part) != of_source {
            let why = format!(
                "{} and {source} are of two saves: a later verl saved this step again; delete {source} if that save is the one that counts",
                place(part)
            );
            return Err(MigrateRefusal::Cannot(why));
        }
        let same_files = here.len() == all.len()
            && here
                .iter()
                .all(|(name, fact)| all.get(name).is_some_and(|f| f.size == fact.size));
        let shared = here
            .values()
            .any(|fact| all.values().any(|f| (f.dev, f.ino) == (fact.dev, fact.ino)));
        let itself = place(part) == source;
        if same_files && (itself || !shared || link == LinkMode::Hard || source != ARCHIVE) {
            return Ok(PartAction::Ready);
        }
        if source == ARCHIVE {
            return Ok(PartAction::Build);
        }
        let detail = format!(
            "{} is not complete, and the archive that it was made from is gone",
            place(part)
        );
        let finding = Finding::error("dist_missing", Verdict::Incomplete, detail).in_file(place(part));
        Err(MigrateRefusal::NotWhole(Verdict::Incomplete, vec![finding]))
    }

    pub(super) fn shares(&self, link: LinkMode, archive: bool) -> bool {
        let inodes: Vec<(u64, u64)> = PARTS
            .iter()
            .flat_map(|part| below(self.seen, &place(part)).into_values())
            .map(|f| (f.dev, f.ino))
            .collect();
        let mut once = inodes.clone();
        once.sort_unstable();
        once.dedup();
        link == LinkMode::Hard && archive && !self.archive.is_empty() || once.len() < inodes.len()
    }
}

fn place(part: &str) -> String {
    format!("{part}/{ARCHIVE}")
}

fn below<'a>(seen: &RoleSnapshot<'a>, dir: &str) -> BTreeMap<&'a str, &'a FileFact> {
    let facts: &'a [FileFact] = seen.facts;
    let name = |f: &'a FileFact| f.path.as_str().strip_prefix(dir)?.strip_prefix('/');
    facts
        .iter()
        .filter(|f| f.kind == EntryKind::File)
        .filter_map(|f| Some((name(f)?, f)))
        .collect()
}
