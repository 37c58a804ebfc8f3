//! The marked checkpoints under a root, built from file facts as they arrive.

use super::entry::{LoopEntry, LoopMark};
use super::judge::{self, LoopStepInput};
use super::mark::SavedMark;
use crate::adapter::{ExpectedLayout, StepTracker};
use camino::Utf8PathBuf;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

#[derive(Debug)]
pub(super) struct LoopStepTracker {
    expect: ExpectedLayout,
    entries: BTreeMap<String, LoopEntry>,
}

impl LoopStepTracker {
    pub(super) fn new(expect: ExpectedLayout) -> Self {
        Self {
            expect,
            entries: BTreeMap::new(),
        }
    }

    fn step(&self, ckpt: &CkptId) -> Option<(&LoopEntry, &LoopMark)> {
        let entry = self.entries.get(ckpt.0.as_str())?;
        entry.own.as_ref()?;
        Some((entry, entry.mark()?))
    }
}

impl StepTracker for LoopStepTracker {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let is_gone = fact.kind == EntryKind::Gone;
        let (name, mark) = match (rest, SavedMark::parse(name)) {
            (None, Some((marked, mark))) => (marked, Some(mark)),
            _ => (name, None),
        };
        let entry = self.entries.entry(name.to_owned()).or_default();
        match (mark, rest) {
            (Some(says), _) if fact.kind == EntryKind::File => {
                let mtime = fact.mtime;
                entry.marks.insert(path.to_owned(), LoopMark { says, mtime });
            }
            (Some(_), _) => drop(entry.marks.remove(path)),
            (None, None) if is_gone => (entry.own, entry.below) = (None, BTreeMap::new()),
            (None, None) => entry.own = Some(fact.clone()),
            (None, Some(rest)) if is_gone => drop(entry.below.remove(rest)),
            (None, Some(rest)) => drop(entry.below.insert(rest.to_owned(), fact.clone())),
        }
        if entry.is_gone() {
            self.entries.remove(name);
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        let marked = self.entries.iter().filter(|(_, entry)| entry.own.is_some());
        let steps = marked.filter_map(|(name, entry)| Some((CkptId(name.into()), entry.mark()?.says.step)));
        let mut all: Vec<(CkptId, Step)> = steps.collect();
        all.sort_by_key(|(_, step)| Reverse(*step));
        all
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        let needs = self
            .step(ckpt)
            .map(|(entry, _)| judge::needs(ckpt, entry, &self.expect));
        let whole = |need: RequiredFile| match need.path.as_str() {
            "" => RequiredFile::new(ckpt.0.clone(), need.kind),
            _ => need.under(&ckpt.0),
        };
        needs.into_iter().flatten().map(whole).collect()
    }

    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary {
        let Some((entry, mark)) = self.step(ckpt) else {
            return crate::kit::unknown_step(ckpt);
        };
        let inside = reports
            .iter()
            .filter_map(|(path, report)| Some((path.strip_prefix(&ckpt.0).ok()?.as_str(), report)));
        judge::judge(&LoopStepInput {
            ckpt,
            entry,
            mark,
            expect: &self.expect,
            depth,
            reports: &inside.collect(),
        })
    }

    fn marks(&self, _ckpt: &CkptId, _reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        StepCounters::default()
    }

    fn remember(&mut self, _earlier: Vec<EarlierStep>) {}

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        self.step(ckpt).map(|(entry, _)| crate::kit::pins(entry.files()))
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn forget(&mut self, ckpt: &CkptId) {
        if let Some(entry) = self.entries.get_mut(ckpt.0.as_str()) {
            (entry.own, entry.below) = (None, BTreeMap::new());
        }
    }

    fn tracker_file(&self) -> &'static str {
        ""
    }

    fn read_tracker(&mut self, _bytes: Option<&[u8]>) -> TrackerState {
        TrackerState::Unused
    }
}
