//! The steps under a checkpoint root, folded from file facts as they come.
//!
//! A fact costs a look-up in a sorted map; what is said about a step costs that step's files. The fold depends only on the last fact of each
//! path, never on the order in which they came. `Gone` for a directory takes everything below it along.

use super::names::{self, Content, RootName};
use super::survey::{self, Survey};
use super::{judge, needs};
use crate::adapter::{Expectation, StepTracker};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::ops::Bound;
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::Tracker;
use supervise_core::id::Step;

/// Neighbours of a step that are asked what a step of this run looks like.
const NEIGHBOURS: usize = 4;
/// Remarks are for people: more than this are counted, not listed.
const REMARKS: usize = 20;

/// What is known of all steps under one root.
#[derive(Debug)]
pub(crate) struct VerlSteps {
    expect: Expectation,
    steps: BTreeMap<Step, Entry>,
    odd: BTreeMap<String, RootName>,
}

/// One step directory.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Entry {
    /// The fact of the directory itself, where it was noted.
    dir: Option<FileFact>,
    /// What is in it, by path relative to it.
    files: BTreeMap<String, FileFact>,
}

impl Entry {
    /// What the step's own name is: a directory, or something that is not followed.
    pub(crate) fn kind(&self) -> EntryKind {
        self.dir.as_ref().map_or(EntryKind::Dir, |d| d.kind)
    }

    pub(crate) fn survey(&self) -> Survey<'_> {
        Survey::of(self.files.iter().map(|(path, fact)| (path.as_str(), fact)))
    }

    pub(crate) fn pins(&self) -> PinsHash {
        survey::pins(self.files.iter().map(|(path, fact)| (path.as_str(), fact)))
    }

    fn is_empty(&self) -> bool {
        self.dir.is_none() && self.files.is_empty()
    }

    fn remove(&mut self, path: &str) {
        self.files.remove(path);
        let (from, to) = (format!("{path}/"), format!("{path}0"));
        let below: Vec<String> = self
            .files
            .range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
            .map(|(p, _)| p.clone())
            .collect();
        for path in below {
            self.files.remove(&path);
        }
    }

    /// Files directly in the step whose names begin so.
    fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.files
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(prefix))
    }

    fn finished_with_critic(&self) -> bool {
        self.files.contains_key("data.pt") && self.starting_with("critic/model_world_size_").next().is_some()
    }

    fn data_parts(&self, world: u32) -> Option<u32> {
        self.files.contains_key(&Content::Model.file(world, 0)).then(|| {
            let parts = self.starting_with("data_").filter_map(names::data_part).count();
            u32::try_from(parts).unwrap_or(u32::MAX)
        })
    }
}

/// What the other steps of this root say about what a step must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours<'a> {
    steps: &'a BTreeMap<Step, Entry>,
    of: Step,
}

impl Neighbours<'_> {
    fn newest(&self) -> impl Iterator<Item = &Entry> {
        let of = self.of;
        self.steps
            .iter()
            .rev()
            .filter(move |(step, _)| **step != of)
            .map(|(_, e)| e)
            .take(NEIGHBOURS)
    }

    /// Another step that was finished holds a critic.
    pub(crate) fn have_critic(&self) -> bool {
        self.newest().any(Entry::finished_with_critic)
    }

    /// The most parts of dataloader state in another step of this world size.
    pub(crate) fn data_parts(&self, world: u32) -> u32 {
        self.newest().filter_map(|e| e.data_parts(world)).max().unwrap_or(0)
    }
}

impl VerlSteps {
    /// No steps yet.
    pub(crate) fn new(expect: Expectation) -> Self {
        Self {
            expect,
            steps: BTreeMap::new(),
            odd: BTreeMap::new(),
        }
    }

    fn entry(&self, ckpt: &CkptId) -> Option<(Step, &Entry)> {
        let RootName::Step(step) = names::root_name(ckpt.0.as_str()) else {
            return None;
        };
        self.steps.get(&step).map(|entry| (step, entry))
    }

    fn note_odd(&mut self, name: &str, kind: RootName, fact: &FileFact, whole_path: bool) {
        if fact.kind != EntryKind::Gone {
            self.odd.insert(name.to_owned(), kind);
        } else if whole_path {
            self.odd.remove(name);
        }
    }
}

impl StepTracker for VerlSteps {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let step = match names::root_name(name) {
            RootName::Other => return,
            RootName::Step(step) => step,
            odd => return self.note_odd(name, odd, fact, rest.is_none()),
        };
        match (rest, fact.kind) {
            (None, EntryKind::Gone) => {
                self.steps.remove(&step);
            }
            (Some(rest), EntryKind::Gone) => {
                let Some(entry) = self.steps.get_mut(&step) else { return };
                entry.remove(rest);
                if entry.is_empty() {
                    self.steps.remove(&step);
                }
            }
            (None, _) => self.steps.entry(step).or_default().dir = Some(fact.clone()),
            (Some(rest), _) => {
                self.steps
                    .entry(step)
                    .or_default()
                    .files
                    .insert(rest.to_owned(), fact.clone());
            }
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        self.steps
            .keys()
            .rev()
            .map(|step| (CkptId(names::step_dir(*step).into()), *step))
            .collect()
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<(Utf8PathBuf, FileKind)> {
        let Some((step, entry)) = self.entry(ckpt) else {
            return Vec::new();
        };
        let dir = names::step_dir(step);
        let wanted = needs::needs(&entry.survey());
        wanted
            .into_iter()
            .map(|(path, kind)| (Utf8Path::new(&dir).join(path), kind))
            .collect()
    }

    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary {
        let Some((step, entry)) = self.entry(ckpt) else {
            return judge::unknown_step(ckpt);
        };
        let neighbours = Neighbours {
            steps: &self.steps,
            of: step,
        };
        judge::judge(&judge::Case {
            step,
            entry,
            neighbours,
            expect: &self.expect,
            depth,
            reports,
        })
    }

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        self.entry(ckpt).map(|(_, entry)| entry.pins())
    }

    fn remarks(&self) -> Vec<String> {
        let mut out: Vec<String> = self
            .odd
            .iter()
            .take(REMARKS)
            .filter_map(|(name, kind)| remark(name, *kind))
            .collect();
        if self.odd.len() > REMARKS {
            out.push(format!("{} more names of this kind", self.odd.len() - REMARKS));
        }
        out
    }

    fn forget(&mut self, ckpt: &CkptId) {
        if let RootName::Step(step) = names::root_name(ckpt.0.as_str()) {
            self.steps.remove(&step);
        }
        self.odd.remove(ckpt.0.as_str());
    }

    fn tracker_file(&self) -> &'static str {
        names::TRACKER
    }

    fn read_tracker(&self, bytes: Option<&[u8]>) -> Tracker {
        super::tracker::read(bytes)
    }
}

fn remark(name: &str, kind: RootName) -> Option<String> {
    Some(match kind {
        RootName::Plural => format!("{name} is ignored: verl writes and reads global_step_N, without an s"),
        RootName::Padded => format!("{name} is ignored: verl looks for the number without leading zeros"),
        RootName::TooLarge => format!("{name} is ignored: no step has a number this large"),
        RootName::Suffixed => format!("{name} is ignored: a step directory is called global_step_N and nothing more"),
        RootName::TrackerLeftover => format!("{name} is left over from a tracker write that was killed: harmless"),
        RootName::Step(_) | RootName::Other => return None,
    })
}
