//! Where the only checkpoint of a trainer stands, and where what is kept of it does.

use super::files::fact_of;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use supervise_core::checkpoint::{CkptId, EntryKind, FileFact, PinsHash};
use supervise_core::spec::{RunSpec, TrainerKind};
use supervise_trainers::{Expectation, StepTracker, adapter};

/// The directory of an engine's state, below the engine's name.
const STATE: &str = "recover_checkpoint";
/// What is kept of the run beside it: read before all else, so put in its place last.
pub(super) const INFO: &str = "recover_info";

/// Where the checkpoints of a run stand, and what they should be.
#[derive(Debug, Clone)]
pub struct Where {
    /// The checkpoint root.
    pub root: Utf8PathBuf,
    /// The trainer.
    pub trainer: TrainerKind,
    /// What its checkpoints should look like.
    pub expect: Expectation,
    /// Where generations are kept, for a trainer that keeps one checkpoint only.
    pub store: Option<Utf8PathBuf>,
}

impl Where {
    /// `None`: nothing is known of the checkpoints of this run.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Option<Self> {
        Some(Self {
            root: spec.root.clone()?,
            trainer: spec.trainer,
            expect: Expectation::of(spec),
            store: spec.live.as_ref().map(|l| l.store.clone()),
        })
    }
}

/// The places of a trainer with one checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Stand {
    /// The trainer's own directory.
    pub(super) root: Utf8PathBuf,
    /// Ours: on the same file system, outside of it.
    pub(super) store: Utf8PathBuf,
    pub(super) trainer: TrainerKind,
    expect: Expectation,
}

impl Stand {
    /// `None`: this trainer keeps each step in a directory of its own.
    pub(super) fn of(place: &Where) -> Option<Self> {
        Some(Self {
            root: place.root.clone(),
            store: place.store.clone()?,
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

    /// What went out of the trainer's sight.
    pub(super) fn aside(&self, foreign: bool) -> Utf8PathBuf {
        let aside = self.store.join("aside");
        if foreign { aside.join("foreign") } else { aside }
    }

    /// The directory above the trainer's own, and its name: the live set is looked at as a step of it.
    pub(super) fn above(&self) -> Option<(&Utf8Path, &str)> {
        Some((self.root.parent()?, self.root.file_name()?))
    }

    /// What a live set is expected to be.
    pub(super) fn expect_live(&self) -> Expectation {
        Expectation {
            only: self.root.file_name().map(str::to_owned),
            ..self.expect.clone()
        }
    }

    /// What a generation is expected to be.
    pub(super) fn expect(&self) -> Expectation {
        self.expect.clone()
    }

    /// A fold over sets of this trainer.
    pub(super) fn tracker(&self, expect: &Expectation) -> Box<dyn StepTracker> {
        adapter(self.trainer).tracker(expect)
    }

    /// The directories of the live set that are there, relative to the root; what is read first comes last.
    pub(super) fn dirs(&self) -> io::Result<Vec<Utf8PathBuf>> {
        let mut out = set_dirs(&self.root)?;
        out.sort_by_key(|dir| (dir == INFO, dir.clone()));
        Ok(out)
    }

    /// The files of the live set, relative to the root, and their pins.
    pub(super) fn live_files(&self) -> io::Result<(Vec<FileFact>, Option<PinsHash>)> {
        let (facts, expect) = (self.facts()?, self.expect_live());
        let name = expect.only.clone().unwrap_or_default();
        let mut tracker = self.tracker(&expect);
        for fact in &facts {
            let below = Utf8Path::new(&name).join(&fact.path);
            tracker.note(&FileFact {
                path: below,
                ..fact.clone()
            });
        }
        Ok((facts, tracker.pins(&CkptId(name.into()))))
    }

    fn facts(&self) -> io::Result<Vec<FileFact>> {
        let mut out = Vec::new();
        for dir in self.dirs()? {
            for entry in self.root.join(&dir).read_dir_utf8()? {
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

/// The directories of a set below `root` that are there. Nothing is reached through a link: what it leads to is somebody else's.
pub(super) fn set_dirs(root: &Utf8Path) -> io::Result<Vec<Utf8PathBuf>> {
    let entries = match root.read_dir_utf8() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_dir = |path: &Utf8Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let dir = if name == INFO {
            Utf8PathBuf::from(INFO)
        } else {
            Utf8Path::new(name).join(STATE)
        };
        if is_dir(&root.join(name)) && is_dir(&root.join(&dir)) {
            out.push(dir);
        }
    }
    Ok(out)
}
