//! The live set and its generations, built from file facts: each is a directory under the root.

use super::judge::{self, ArealSetInput};
use super::names;
use super::set::{SetFiles, SetReports};
use crate::adapter::{ExpectedLayout, StepTracker};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::latest_file::generation_step;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

#[derive(Debug)]
pub(super) struct ArealSteps {
    expect: ExpectedLayout,
    sets: BTreeMap<String, ArealSet>,
    earlier: Vec<EarlierStep>,
}

#[derive(Debug, Default)]
struct ArealSet {
    files: SetFiles,
    /// Counters when last proven.
    marks: Option<StepCounters>,
}

/// Returns true if AReaL itself wrote the set as a generation: its parts then have other names.
fn is_own(name: &str) -> bool {
    generation_step(name).is_some()
}

impl ArealSteps {
    pub(super) fn new(expect: ExpectedLayout) -> Self {
        Self {
            expect,
            sets: BTreeMap::new(),
            earlier: Vec::new(),
        }
    }

    fn is_set(&self, name: &str) -> bool {
        match &self.expect.only {
            Some(only) => name == only,
            None => names::step(name).is_some(),
        }
    }

    /// Proven generations: what is on disk now takes precedence over what was remembered.
    fn others(&self, than: &str) -> Vec<EarlierStep> {
        let mut known: BTreeMap<Step, StepCounters> = self.earlier.iter().map(|e| (e.step, e.marks.clone())).collect();
        let own = names::step(than);
        for (name, set) in self.sets.iter().filter(|(name, _)| *name != than) {
            if let (Some(step), Some(marks)) = (names::step(name), &set.marks) {
                // Having read less does not discard what is recorded of the same save.
                let recorded = known.remove(&step).filter(|r| {
                    marks
                        .counters
                        .iter()
                        .all(|(n, v)| r.counters.get(n).is_none_or(|w| w == v))
                });
                let mut all = recorded.unwrap_or_default();
                all.counters.extend(marks.counters.clone());
                known.insert(step, all);
            }
        }
        // A generation is not compared with its own record.
        let other = |step: &Step| own != Some(*step);
        known
            .into_iter()
            .filter(|(s, _)| other(s))
            .map(|(step, marks)| EarlierStep { step, marks })
            .collect()
    }
}

impl StepTracker for ArealSteps {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        if !self.is_set(name) {
            return;
        }
        match rest {
            None if fact.kind == EntryKind::Gone => {
                self.sets.remove(name);
            }
            None => {
                self.sets.entry(name.to_owned()).or_default();
            }
            Some(rest) => {
                let files = &mut self.sets.entry(name.to_owned()).or_default().files;
                match is_own(name) {
                    true => names::as_live(rest)
                        .into_iter()
                        .for_each(|path| files.note(&path, fact)),
                    false => files.note(rest, fact),
                }
            }
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        let step = |name: &String| (CkptId(name.into()), names::step(name).unwrap_or_default());
        let mut out: Vec<(CkptId, Step)> = self.sets.keys().map(step).collect();
        out.sort_by_key(|(id, step)| (std::cmp::Reverse(*step), id.clone()));
        out
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        let Some(set) = self.sets.get(ckpt.0.as_str()) else {
            return Vec::new();
        };
        let dir = Utf8Path::new(ckpt.0.as_str());
        let mut needs = set.files.needs();
        for need in needs.iter_mut().filter(|_| is_own(ckpt.0.as_str())) {
            let place = |path: &Utf8PathBuf| Utf8PathBuf::from(names::as_own(path.as_str()));
            (need.path, need.described_by) = (place(&need.path), need.described_by.as_ref().map(place));
        }
        needs.into_iter().map(|need| need.under(dir)).collect()
    }

    fn judge(
        &mut self,
        ckpt: &CkptId,
        _depth: Depth,
        reports: &BTreeMap<Utf8PathBuf, FileReport>,
    ) -> CheckpointSummary {
        let name = ckpt.0.as_str();
        let earlier = self.others(name);
        let Some(set) = self.sets.get_mut(name) else {
            return crate::kit::unknown_step(ckpt);
        };
        let summary = judge::judge(&ArealSetInput {
            id: ckpt,
            named: names::step(name),
            files: &set.files,
            reports: SetReports::new(name, reports),
            expect: &self.expect,
            earlier: &earlier,
        });
        let proven = summary.proven.is_some();
        set.marks = proven.then(|| SetReports::new(name, reports).marks(&set.files));
        summary
    }

    fn marks(&self, ckpt: &CkptId, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        let name = ckpt.0.as_str();
        let set = self.sets.get(name);
        set.map(|s| SetReports::new(name, reports).marks(&s.files))
            .unwrap_or_default()
    }

    fn remember(&mut self, earlier: Vec<EarlierStep>) {
        self.earlier = earlier;
    }

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        let set = self.sets.get(ckpt.0.as_str())?;
        (!set.files.is_empty()).then(|| set.files.pins())
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn forget(&mut self, ckpt: &CkptId) {
        self.sets.remove(ckpt.0.as_str());
    }

    fn tracker_file(&self) -> &'static str {
        ""
    }

    fn read_tracker(&mut self, _bytes: Option<&[u8]>) -> TrackerState {
        TrackerState::Missing
    }
}
