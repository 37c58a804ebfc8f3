//! Paths of a trainer's single checkpoint, and of the copies kept of it.

use super::files::fact_of;
use super::latest::{LatestPointer, latest};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST};
use supervise_core::checkpoint::{CkptId, EntryKind, FileFact, PinsHash};
use supervise_core::spec::RunSpec;
use supervise_trainers::{ExpectedLayout, InPlaceLayout, StepTracker, TrainerAdapter, adapter_of, expect};

/// Where a run's checkpoints are, and what they should contain.
#[derive(Debug, Clone)]
pub struct RunCheckpoints {
    pub root: Utf8PathBuf,
    pub trainer: &'static dyn TrainerAdapter,
    pub expect: ExpectedLayout,
    /// Directory of generations, for a trainer that keeps a single checkpoint.
    pub store: Option<Utf8PathBuf>,
}

impl RunCheckpoints {
    /// `None`: this run's checkpoints are unknown.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Option<Self> {
        Some(Self {
            root: spec.root.clone()?,
            trainer: adapter_of(spec),
            expect: expect(spec),
            store: spec.saves.in_place().map(|place| place.store.clone()),
        })
    }
}

#[derive(Debug, Clone)]
pub(super) struct CheckpointDirs {
    pub(super) root: Utf8PathBuf,
    /// Our directory: on the same file system, outside of the trainer's.
    pub(super) store: Utf8PathBuf,
    pub(super) trainer: &'static dyn TrainerAdapter,
    pub(super) layout: &'static dyn InPlaceLayout,
    expect: ExpectedLayout,
}

impl CheckpointDirs {
    /// `None`: this trainer has a directory per step.
    pub(super) fn of(place: &RunCheckpoints) -> Option<Self> {
        Some(Self {
            root: place.root.clone(),
            store: place.store.clone()?,
            layout: place.trainer.in_place()?,
            trainer: place.trainer,
            expect: place.expect.clone(),
        })
    }

    /// Directory of generations.
    pub(super) fn protected(&self) -> Utf8PathBuf {
        self.store.join("protected")
    }

    pub(super) fn staging(&self, what: &str) -> Utf8PathBuf {
        self.store.join("staging").join(what)
    }

    /// Directory of sets moved out of the trainer's sight.
    pub(super) fn aside(&self, foreign: bool) -> Utf8PathBuf {
        let aside = self.store.join("aside");
        if foreign { aside.join("foreign") } else { aside }
    }

    pub(super) fn who(&self) -> &'static str {
        self.trainer.words().name
    }

    /// A directory, and the name that the live set has in it as a step: the trainer's directory in its parent, or a file in
    /// the trainer's directory.
    pub(super) fn above(&self) -> Option<(&Utf8Path, &str)> {
        match self.layout.file() {
            Some(file) => Some((&self.root, file)),
            None => Some((self.root.parent()?, self.root.file_name()?)),
        }
    }

    pub(super) fn expect_live(&self) -> ExpectedLayout {
        ExpectedLayout {
            only: self.above().map(|(_, name)| name.to_owned()),
            ..self.expect.clone()
        }
    }

    /// The trainer's own pointer to one of its generations; a trainer that overwrites one file has none.
    pub(super) fn pointer(&self) -> LatestPointer {
        match self.layout.file() {
            Some(_) => LatestPointer::Missing,
            None => latest(&self.root),
        }
    }

    pub(super) fn expect(&self) -> ExpectedLayout {
        self.expect.clone()
    }

    pub(super) fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        self.trainer.tracker(expect)
    }

    /// Generations that the trainer keeps itself.
    pub(super) fn generations(&self) -> Utf8PathBuf {
        self.root.join(GENERATIONS)
    }

    pub(super) fn engines(&self) -> Vec<String> {
        let roles = self.expect.roles.iter().flatten();
        roles.map(|r| r.name.clone()).collect()
    }

    /// The set of a release that overwrites one in place.
    pub(super) fn in_place(&self) -> StoredSet {
        self.plain(&self.root)
    }

    /// The set that the trainer would load.
    ///
    /// # Errors
    /// It would load nothing, or that cannot be determined.
    pub(super) fn live(&self) -> io::Result<StoredSet> {
        match self.pointer() {
            LatestPointer::Missing => Ok(self.in_place()),
            LatestPointer::Names(pointer) => Ok(self.own(&self.generations(), &pointer.generation())),
            LatestPointer::Wrong(why) | LatestPointer::Unreadable(why) => {
                Err(io::Error::other(format!("{LATEST}: {why}")))
            }
        }
    }

    /// A set whose parts have the names of a live set.
    pub(super) fn plain(&self, dir: &Utf8Path) -> StoredSet {
        StoredSet {
            dir: dir.to_owned(),
            layout: self.layout,
            own: false,
        }
    }

    pub(super) fn own(&self, generations: &Utf8Path, name: &str) -> StoredSet {
        StoredSet {
            dir: generations.join(name),
            layout: self.layout,
            own: true,
        }
    }

    /// A set's files, by their paths in a live set, and their pins.
    pub(super) fn files_of(&self, set: &StoredSet) -> io::Result<(Vec<FileFact>, Option<PinsHash>)> {
        let facts = set.facts()?;
        let live_file = self.layout.file().filter(|_| set.dir == self.root);
        let name = live_file.or(set.dir.file_name()).unwrap_or_default();
        let expect = if set.own { self.expect() } else { self.expect_live() };
        let mut tracker = self.tracker(&expect);
        for fact in &facts {
            let path = match set.own {
                true => self.layout.as_own(fact.path.as_str()).into(),
                false => fact.path.clone(),
            };
            tracker.note(&FileFact {
                path: match live_file {
                    Some(file) => file.into(),
                    None => Utf8Path::new(name).join(path),
                },
                ..fact.clone()
            });
        }
        Ok((facts, tracker.pins(&CkptId(name.into()))))
    }
}

/// A set on disk: the live one, a copy of it, or a generation written by the trainer, where parts have other names.
#[derive(Debug, Clone)]
pub(super) struct StoredSet {
    pub(super) dir: Utf8PathBuf,
    layout: &'static dyn InPlaceLayout,
    own: bool,
}

impl StoredSet {
    pub(super) fn place(&self, part: &Utf8Path) -> Utf8PathBuf {
        match self.own {
            true => self.dir.join(self.layout.as_own(part.as_str())),
            false => self.dir.join(part),
        }
    }

    /// The directories that exist in it, by their paths in a live set; the one read first comes last. A set that is a file
    /// has its own directory only.
    pub(super) fn dirs(&self) -> io::Result<Vec<Utf8PathBuf>> {
        if let Some(file) = self.layout.file() {
            let is_there = fs::symlink_metadata(self.dir.join(file)).is_ok();
            return Ok(is_there.then(Utf8PathBuf::new).into_iter().collect());
        }
        let mut out: Vec<Utf8PathBuf> = self
            .engines()?
            .iter()
            .map(|e| Utf8Path::new(e).join(self.layout.state()))
            .collect();
        out.sort();
        out.extend(Some(self.layout.info().into()).filter(|dir: &Utf8PathBuf| is_dir(&self.place(dir))));
        Ok(out)
    }

    /// Its parts, each of which is moved as a whole.
    pub(super) fn movable(&self) -> io::Result<Vec<Utf8PathBuf>> {
        let dirs = self.dirs()?;
        match self.layout.file() {
            Some(file) => Ok(dirs.iter().map(|_| file.into()).collect()),
            None => Ok(dirs),
        }
    }

    /// Returns true if an entry of one of its directories belongs to it.
    pub(super) fn has_entry(&self, name: &str) -> bool {
        self.layout.file().is_none_or(|file| file == name)
    }

    pub(super) fn engines(&self) -> io::Result<Vec<String>> {
        let above = match self.own {
            true => self.dir.join(self.layout.payloads()),
            false => self.dir.clone(),
        };
        let entries = match above.read_dir_utf8() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut out = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_owned();
            // Links are not followed: they may lead to another user's files.
            if is_dir(&above)
                && is_dir(&above.join(&name))
                && is_dir(&self.place(&Utf8Path::new(&name).join(self.layout.state())))
            {
                out.push(name);
            }
        }
        out.sort();
        Ok(out)
    }

    fn facts(&self) -> io::Result<Vec<FileFact>> {
        let mut out = Vec::new();
        for dir in self.dirs()? {
            for entry in self.place(&dir).read_dir_utf8()? {
                let entry = entry?;
                if !self.has_entry(entry.file_name()) {
                    continue;
                }
                let meta = fs::symlink_metadata(entry.path())?;
                let fact = fact_of(dir.join(entry.file_name()), &meta);
                if fact.kind != EntryKind::Dir {
                    out.push(fact);
                }
            }
        }
        Ok(out)
    }
}

fn is_dir(path: &Utf8Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}
