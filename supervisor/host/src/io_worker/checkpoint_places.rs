//! Places of a trainer's only checkpoint and of the copies kept of it.

use super::files::fact_of;
use super::latest::{LatestPointer, latest};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST};
use supervise_core::checkpoint::{CkptId, EntryKind, FileFact, PinsHash};
use supervise_core::spec::{RunSpec, TrainerKind};
use supervise_trainers::{ExpectedLayout, InPlaceLayout, StepTracker, adapter, expect};

/// Place of the checkpoints of a run, and what they should be.
#[derive(Debug, Clone)]
pub struct RunCheckpoints {
    /// The checkpoint root.
    pub root: Utf8PathBuf,
    /// The trainer.
    pub trainer: TrainerKind,
    /// Expected form of its checkpoints.
    pub expect: ExpectedLayout,
    /// Place of generations, for a trainer that keeps one checkpoint only.
    pub store: Option<Utf8PathBuf>,
}

impl RunCheckpoints {
    /// `None`: nothing is known of the checkpoints of this run.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Option<Self> {
        Some(Self {
            root: spec.root.clone()?,
            trainer: spec.trainer,
            expect: expect(spec),
            store: spec.saves.in_place().map(|place| place.store.clone()),
        })
    }
}

/// The places of a trainer with one checkpoint.
#[derive(Debug, Clone)]
pub(super) struct CheckpointDirs {
    /// The trainer's own directory.
    pub(super) root: Utf8PathBuf,
    /// Ours: on the same file system, outside of it.
    pub(super) store: Utf8PathBuf,
    pub(super) trainer: TrainerKind,
    pub(super) layout: &'static dyn InPlaceLayout,
    expect: ExpectedLayout,
}

impl CheckpointDirs {
    /// `None`: this trainer keeps each step in a directory of its own.
    pub(super) fn of(place: &RunCheckpoints) -> Option<Self> {
        Some(Self {
            root: place.root.clone(),
            store: place.store.clone()?,
            layout: adapter(place.trainer).in_place()?,
            trainer: place.trainer,
            expect: place.expect.clone(),
        })
    }

    /// Generations.
    pub(super) fn protected(&self) -> Utf8PathBuf {
        self.store.join("protected")
    }

    /// Copies that are not finished.
    pub(super) fn staging(&self, what: &str) -> Utf8PathBuf {
        self.store.join("staging").join(what)
    }

    /// Sets that went out of the trainer's sight.
    pub(super) fn aside(&self, foreign: bool) -> Utf8PathBuf {
        let aside = self.store.join("aside");
        if foreign { aside.join("foreign") } else { aside }
    }

    /// The trainer, as it is called in a sentence.
    pub(super) fn who(&self) -> &'static str {
        adapter(self.trainer).words().name
    }

    /// The directory above the trainer's own, and its name: the live set is looked at as a step of it.
    pub(super) fn above(&self) -> Option<(&Utf8Path, &str)> {
        Some((self.root.parent()?, self.root.file_name()?))
    }

    /// Expected form of a live set.
    pub(super) fn expect_live(&self) -> ExpectedLayout {
        ExpectedLayout {
            only: self.root.file_name().map(str::to_owned),
            ..self.expect.clone()
        }
    }

    /// Expected form of a generation.
    pub(super) fn expect(&self) -> ExpectedLayout {
        self.expect.clone()
    }

    /// A fold over sets of this trainer.
    pub(super) fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        adapter(self.trainer).tracker(expect)
    }

    /// Generations that the trainer keeps by itself.
    pub(super) fn generations(&self) -> Utf8PathBuf {
        self.root.join(GENERATIONS)
    }

    /// Engines of the run; none where it is not known.
    pub(super) fn engines(&self) -> Vec<String> {
        let roles = self.expect.roles.iter().flatten();
        roles.map(|r| r.name.clone()).collect()
    }

    /// The set of a build that keeps one in place.
    pub(super) fn in_place(&self) -> StoredSet {
        self.plain(&self.root)
    }

    /// The set that the trainer would load.
    ///
    /// # Errors
    /// It would load nothing, or that cannot be told.
    pub(super) fn live(&self) -> io::Result<StoredSet> {
        match latest(&self.root) {
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

    /// A generation of the trainer's own.
    pub(super) fn own(&self, generations: &Utf8Path, name: &str) -> StoredSet {
        StoredSet {
            dir: generations.join(name),
            layout: self.layout,
            own: true,
        }
    }

    /// The files of a set that the trainer has, by their places in a live set, and their pins.
    pub(super) fn files_of(&self, set: &StoredSet) -> io::Result<(Vec<FileFact>, Option<PinsHash>)> {
        let facts = set.facts()?;
        let name = set.dir.file_name().unwrap_or_default();
        let expect = if set.own { self.expect() } else { self.expect_live() };
        let mut tracker = self.tracker(&expect);
        for fact in &facts {
            let path = match set.own {
                true => self.layout.as_own(fact.path.as_str()).into(),
                false => fact.path.clone(),
            };
            tracker.note(&FileFact {
                path: Utf8Path::new(name).join(path),
                ..fact.clone()
            });
        }
        Ok((facts, tracker.pins(&CkptId(name.into()))))
    }
}

/// A set on disk: the live one, a copy of it, or a generation that the trainer wrote by itself, where parts have other names.
#[derive(Debug, Clone)]
pub(super) struct StoredSet {
    /// Place of it.
    pub(super) dir: Utf8PathBuf,
    layout: &'static dyn InPlaceLayout,
    own: bool,
}

impl StoredSet {
    /// Place of a part, by its place in a live set.
    pub(super) fn place(&self, part: &Utf8Path) -> Utf8PathBuf {
        match self.own {
            true => self.dir.join(self.layout.as_own(part.as_str())),
            false => self.dir.join(part),
        }
    }

    /// Its directories that are there, by their places in a live set; what is read first comes last.
    pub(super) fn dirs(&self) -> io::Result<Vec<Utf8PathBuf>> {
        let mut out: Vec<Utf8PathBuf> = self
            .engines()?
            .iter()
            .map(|e| Utf8Path::new(e).join(self.layout.state()))
            .collect();
        out.sort();
        out.extend(Some(self.layout.info().into()).filter(|dir: &Utf8PathBuf| is_dir(&self.place(dir))));
        Ok(out)
    }

    /// Engines that have a directory in it.
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
            // Nothing is reached through a link: what it leads to is somebody else's.
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
