//! Entries under a checkpoint root, kept up to date with as few system calls as is safe.
//!
//! A *thorough* walk lists every directory and stats every file. A *quick* one skips a directory whose own times have
//! not changed since it was listed (names appear and disappear only with them), and in it stats only files that a
//! proof still waits for. A file that is overwritten in place does not change its directory's times, so whatever
//! leads to a launch is walked thoroughly. A *watched* directory is listed again only if events were lost.

use super::files::{fact_of, is_no_text};
use super::fs_kind::FsClock;
use camino::{ReadDirUtf8, Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use supervise_core::checkpoint::{EntryKind, FileFact};

const ENTRY_LIMIT: usize = 1_000_000;
const DEPTH_LIMIT: usize = 8;
/// A directory that changed this shortly before it was listed is listed again, in nanoseconds.
const SETTLED: i64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkMode {
    Thorough,
    /// Steps that may have changed.
    Quick,
}

pub(super) trait TreeListener {
    /// One entry as it is now; `Gone` if it was known and no longer exists.
    fn fact(&mut self, fact: &FileFact);
    /// Files below a directory that even a quick walk checks.
    fn waited_for(&self, dir: &Utf8Path) -> Vec<Utf8PathBuf>;
}

#[derive(Debug)]
pub(super) struct FileTree {
    root: Utf8PathBuf,
    clock: FsClock,
    top: BTreeMap<String, FileFact>,
    dirs: BTreeMap<Utf8PathBuf, WatchedDir>,
}

#[derive(Debug, Default)]
struct WatchedDir {
    /// Inode, modification and change time when it was listed, if they had settled by then.
    listed: Option<(u64, i64, i64)>,
    watched: bool,
    entries: Entries,
    listings: u64,
}

/// The entries of one directory by name, each with the number of the last listing that contained it.
type Entries = HashMap<String, (FileFact, u64)>;

impl FileTree {
    pub(super) fn new(root: &Utf8Path, clock: FsClock) -> Self {
        Self {
            root: root.to_owned(),
            clock,
            top: BTreeMap::new(),
            dirs: BTreeMap::new(),
        }
    }

    /// Lists the entries directly under the root; a quick walk does not stat known directories. Returns the entries
    /// that cannot be read.
    ///
    /// # Errors
    /// The root cannot be listed.
    pub(super) fn list_root(
        &mut self,
        how: WalkMode,
        hear: &mut dyn TreeListener,
    ) -> io::Result<BTreeMap<String, io::Error>> {
        let mut refused = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for entry in self.root.read_dir_utf8()? {
            let entry = match entry {
                Err(e) if is_no_text(&e) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_owned();
            if name.starts_with('.') {
                continue;
            }
            let is_dir = || entry.file_type().is_ok_and(|t| t.is_dir());
            let known = self.top.get(&name).is_some_and(|f| f.kind == EntryKind::Dir);
            if how == WalkMode::Quick && known && is_dir() {
                seen.insert(name);
                continue;
            }
            match fs::symlink_metadata(self.root.join(&name)) {
                Ok(meta) => {
                    let fact = fact_of(Utf8PathBuf::from(&name), &meta);
                    if self.top.get(&name) != Some(&fact) {
                        hear.fact(&fact);
                        self.top.insert(name.clone(), fact);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    refused.insert(name.clone(), e);
                }
            }
            seen.insert(name);
        }
        let gone: Vec<String> = self.top.keys().filter(|n| !seen.contains(*n)).cloned().collect();
        for name in gone {
            self.drop_top(&name, hear);
        }
        Ok(refused)
    }

    pub(super) fn is_listed(&self, step: &Utf8Path) -> bool {
        self.dirs.contains_key(step)
    }

    /// Returns true if names changed directly in a step since it was walked.
    pub(super) fn is_touched(&self, step: &Utf8Path) -> bool {
        let now = fs::symlink_metadata(self.root.join(step)).map(|m| fact_of(step.to_owned(), &m));
        now.map_or(true, |now| self.top.get(step.as_str()) != Some(&now))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top.is_empty()
    }

    pub(super) fn fact(&self, path: &Utf8Path) -> Option<&FileFact> {
        match path.parent() {
            Some(dir) if !dir.as_str().is_empty() => {
                self.dirs.get(dir)?.entries.get(path.file_name()?).map(|(fact, _)| fact)
            }
            _ => self.top.get(path.as_str()),
        }
    }

    /// Walks a step: its own entry and everything below.
    ///
    /// # Errors
    /// The first directory that cannot be read.
    pub(super) fn look(&mut self, step: &Utf8Path, how: WalkMode, hear: &mut dyn TreeListener) -> io::Result<()> {
        let meta = match fs::symlink_metadata(self.root.join(step)) {
            Ok(m) => m,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.drop_top(step.as_str(), hear);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let fact = fact_of(step.to_owned(), &meta);
        let is_dir = fact.kind == EntryKind::Dir;
        if self.top.get(step.as_str()) != Some(&fact) {
            hear.fact(&fact);
            self.top.insert(step.to_string(), fact);
        }
        let mut count = 0;
        match is_dir {
            true => self.look_dir(step, Some(meta), how, 0, &mut count, hear),
            false => {
                self.drop_below(step, hear);
                Ok(())
            }
        }
    }

    /// Checks one path that was reported: a file that was closed, or a name that appeared or disappeared.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn look_at(&mut self, path: &Utf8Path, hear: &mut dyn TreeListener) -> io::Result<Option<EntryKind>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        // A directory that was never listed will be.
        if !self.dirs.contains_key(parent) {
            return Ok(None);
        }
        let meta = match fs::symlink_metadata(self.root.join(path)) {
            Ok(m) => m,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.drop_entry(parent, name, hear);
                return Ok(Some(EntryKind::Gone));
            }
            Err(e) => return Err(e),
        };
        let fact = fact_of(path.to_owned(), &meta);
        let kind = fact.kind;
        self.enter(parent, name, fact, hear);
        Ok(Some(kind))
    }

    pub(super) fn dirs_of(&self, step: &Utf8Path) -> Vec<Utf8PathBuf> {
        below(&self.dirs, step).map(|(p, _)| p.clone()).collect()
    }

    /// Sets whether every change in a directory is reported from now on. It must be listed once more.
    pub(super) fn set_watched(&mut self, dir: &Utf8Path, watched: bool) {
        let dir = match watched {
            true => Some(self.dirs.entry(dir.to_owned()).or_default()),
            false => self.dirs.get_mut(dir),
        };
        if let Some(dir) = dir {
            dir.watched = watched;
            dir.listed = None;
        }
    }

    fn look_dir(
        &mut self,
        path: &Utf8Path,
        meta: Option<Metadata>,
        how: WalkMode,
        depth: usize,
        count: &mut usize,
        hear: &mut dyn TreeListener,
    ) -> io::Result<()> {
        let meta = match meta.map_or_else(|| fs::symlink_metadata(self.root.join(path)), Ok) {
            Ok(m) => m,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.drop_below(path, hear);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let now = stamp(&meta);
        let known = self.dirs.entry(path.to_owned()).or_default();
        let fresh = known
            .listed
            .is_some_and(|was| was == now || (known.watched && was.0 == now.0));
        if how == WalkMode::Quick && fresh {
            *count += known.entries.len();
            for file in hear.waited_for(path) {
                self.look_at(&file, hear)?;
            }
        } else {
            // Changes between the last walk and the start of watching were not reported.
            let unheard = known.watched && known.listed.is_none();
            let this = if unheard { WalkMode::Thorough } else { how };
            self.list(path, this, count, hear)?;
            let settled = self.clock.now().saturating_sub(now.1.max(now.2)) >= SETTLED;
            if let Some(dir) = self.dirs.get_mut(path) {
                dir.listed = Some(now).filter(|_| settled || dir.watched);
            }
        }
        if depth >= DEPTH_LIMIT {
            return Ok(());
        }
        let mut inner: Vec<Utf8PathBuf> = self
            .dirs
            .get(path)
            .into_iter()
            .flat_map(|d| d.entries.values())
            .filter(|(f, _)| f.kind == EntryKind::Dir)
            .map(|(f, _)| f.path.clone())
            .collect();
        inner.sort_unstable();
        for dir in inner {
            self.look_dir(&dir, None, how, depth + 1, count, hear)?;
        }
        Ok(())
    }

    /// Lists a directory. A quick walk stats only names that are new or waited for.
    fn list(
        &mut self,
        path: &Utf8Path,
        how: WalkMode,
        count: &mut usize,
        hear: &mut dyn TreeListener,
    ) -> io::Result<()> {
        let entries = match self.root.join(path).read_dir_utf8() {
            Ok(e) => e,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.drop_below(path, hear);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        // Taken out of the map meanwhile, to avoid a map lookup for each of very many names.
        let dir = self.dirs.entry(path.to_owned()).or_default();
        dir.listings += 1;
        let (listing, mut known) = (dir.listings, std::mem::take(&mut dir.entries));
        let listed = self.list_into((&mut known, listing), entries, path, how, count, hear);
        self.dirs.entry(path.to_owned()).or_default().entries = known;
        listed
    }

    fn list_into(
        &mut self,
        (known, listing): (&mut Entries, u64),
        entries: ReadDirUtf8,
        path: &Utf8Path,
        how: WalkMode,
        count: &mut usize,
        hear: &mut dyn TreeListener,
    ) -> io::Result<()> {
        let waited = match how {
            WalkMode::Quick => hear.waited_for(path),
            WalkMode::Thorough => Vec::new(),
        };
        let waited: HashSet<&str> = waited.iter().filter_map(|file| file.file_name()).collect();
        for entry in entries {
            let entry = match entry {
                Err(e) if is_no_text(&e) => continue,
                entry => entry?,
            };
            let name = entry.file_name();
            *count += 1;
            if *count > ENTRY_LIMIT {
                return Err(io::Error::other(format!("more than {ENTRY_LIMIT} files under {path}")));
            }
            match known.get_mut(name) {
                Some((_, seen)) if how == WalkMode::Quick && !waited.contains(name) => *seen = listing,
                _ => {
                    // Relative to its open directory, so that the path is not resolved for each entry.
                    let fact = match entry.metadata() {
                        Ok(meta) => fact_of(path.join(name), &meta),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                        Err(e) => return Err(e),
                    };
                    if let Some(dir) = enter(known, name, fact, listing, hear) {
                        self.drop_below(&dir, hear);
                    }
                }
            }
        }
        let stands = |(_, (_, seen)): &(&String, &(FileFact, u64))| *seen == listing;
        let mut gone: Vec<String> = known.iter().filter(|e| !stands(e)).map(|(n, _)| n.clone()).collect();
        gone.sort_unstable();
        for name in gone {
            self.drop_removed(known.remove(&name), hear);
        }
        Ok(())
    }

    fn enter(&mut self, dir: &Utf8Path, name: &str, fact: FileFact, hear: &mut dyn TreeListener) {
        let dir = self.dirs.entry(dir.to_owned()).or_default();
        if let Some(dir) = enter(&mut dir.entries, name, fact, dir.listings, hear) {
            self.drop_below(&dir, hear);
        }
    }

    fn drop_entry(&mut self, dir: &Utf8Path, name: &str, hear: &mut dyn TreeListener) {
        let removed = self.dirs.get_mut(dir).and_then(|d| d.entries.remove(name));
        self.drop_removed(removed, hear);
    }

    fn drop_removed(&mut self, removed: Option<(FileFact, u64)>, hear: &mut dyn TreeListener) {
        if let Some((fact, _)) = removed {
            self.drop_below(&fact.path, hear);
            gone(fact, hear);
        }
    }

    /// Drops what is known of a directory of the root, so that it is reported again.
    pub(super) fn drop_top(&mut self, name: &str, hear: &mut dyn TreeListener) {
        self.drop_below(Utf8Path::new(name), hear);
        if let Some(fact) = self.top.remove(name) {
            gone(fact, hear);
        }
    }

    fn drop_below(&mut self, path: &Utf8Path, hear: &mut dyn TreeListener) {
        for dir in self.dirs_of(path) {
            let entries = self.dirs.remove(&dir).map(|d| d.entries).unwrap_or_default();
            let mut entries: Vec<FileFact> = entries.into_values().map(|(fact, _)| fact).collect();
            entries.sort_unstable_by(|a, b| a.path.as_str().cmp(b.path.as_str()));
            for fact in entries {
                gone(fact, hear);
            }
        }
    }
}

/// Stores an entry. Returns the path of a directory that it replaces.
fn enter(
    entries: &mut Entries,
    name: &str,
    fact: FileFact,
    listing: u64,
    hear: &mut dyn TreeListener,
) -> Option<Utf8PathBuf> {
    let is_dir = fact.kind == EntryKind::Dir;
    let Some((known, seen)) = entries.get_mut(name) else {
        hear.fact(&fact);
        entries.insert(name.to_owned(), (fact, listing));
        return None;
    };
    *seen = listing;
    if *known == fact {
        return None;
    }
    hear.fact(&fact);
    let was = std::mem::replace(known, fact);
    (was.kind == EntryKind::Dir && !is_dir).then_some(was.path)
}

fn gone(mut fact: FileFact, hear: &mut dyn TreeListener) {
    fact.kind = EntryKind::Gone;
    hear.fact(&fact);
}

fn stamp(m: &Metadata) -> (u64, i64, i64) {
    let nanos = |s: i64, n: i64| s.saturating_mul(1_000_000_000).saturating_add(n);
    (
        m.ino(),
        nanos(m.mtime(), m.mtime_nsec()),
        nanos(m.ctime(), m.ctime_nsec()),
    )
}

/// A path and everything below it, in a map by path. Paths are ordered by their components.
pub(super) fn below<'a, T>(
    map: &'a BTreeMap<Utf8PathBuf, T>,
    path: &'a Utf8Path,
) -> impl Iterator<Item = (&'a Utf8PathBuf, &'a T)> {
    map.range(path.to_owned()..)
        .take_while(move |(p, _)| p.starts_with(path))
}
