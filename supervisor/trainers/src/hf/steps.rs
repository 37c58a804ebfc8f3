//! The steps under an output directory, built from file facts as they arrive.

use super::entry::{HfStepDir, Siblings};
use super::groups::StatePart;
use super::judge::{self, step_of};
use super::marks;
use super::names::{self, HfRootName};
use super::padded;
use super::parts::HfStepParts;
use crate::adapter::{ExpectedLayout, StepTracker};
use camino::{Utf8Path, Utf8PathBuf};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

/// Number of neighbours that show what a step of this run has.
const SIBLINGS: usize = 4;

#[derive(Debug)]
pub(crate) struct HfSteps {
    expect: ExpectedLayout,
    steps: BTreeMap<Step, HfStepDir>,
    /// Directories that `get_last_checkpoint` reads as steps although no run wrote them.
    padded: BTreeMap<String, Step>,
    odd: BTreeMap<String, HfRootName>,
}

impl HfSteps {
    pub(crate) fn new(expect: ExpectedLayout) -> Self {
        Self {
            expect,
            steps: BTreeMap::new(),
            padded: BTreeMap::new(),
            odd: BTreeMap::new(),
        }
    }

    fn entry(&self, ckpt: &CkptId) -> Option<(Step, &HfStepDir)> {
        let step = step_of(ckpt)?;
        self.steps.get(&step).map(|entry| (step, entry))
    }

    fn siblings(&self, of: Step) -> Siblings {
        let others = self.steps.iter().rev().filter(|(step, _)| **step != of);
        let finished = others
            .filter(|(_, e)| e.below.contains_key(names::STATE))
            .take(SIBLINGS);
        let mut known = finished.fold(Siblings::default(), |known, (_, e)| {
            let parts = HfStepParts::of(&e.files());
            Siblings {
                optimizer: known.optimizer || parts.has(StatePart::Optimizer),
                schedule: known.schedule || parts.has(StatePart::Schedule),
                scaler: known.scaler || parts.has(StatePart::Scaler),
                ..known
            }
        });
        let mut before = self.steps.range(..of).rev().map(|(_, e)| e);
        if let Some(before) = before.find(|e| e.below.contains_key(names::STATE)) {
            known.rollout = before.below.contains_key(names::ROLLOUT);
            known.entropy = before.below.contains_key(names::ENTROPY);
        }
        known
    }
}

impl StepTracker for HfSteps {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let step = match names::root_name(name) {
            HfRootName::Other => return,
            HfRootName::Step(step) => step,
            HfRootName::Padded(step) => {
                match (fact.kind, rest) {
                    (EntryKind::Gone, None) => {
                        self.padded.remove(name);
                    }
                    (EntryKind::Dir | EntryKind::Symlink, _) | (EntryKind::File, Some(_)) => {
                        self.padded.insert(name.to_owned(), step);
                    }
                    _ => {}
                }
                return;
            }
            odd => {
                match (fact.kind, rest) {
                    (EntryKind::Gone, None) => self.odd.remove(name),
                    (EntryKind::Gone, Some(_)) => None,
                    _ => self.odd.insert(name.to_owned(), odd),
                };
                return;
            }
        };
        match (rest, fact.kind) {
            (None, EntryKind::Gone) => {
                self.steps.remove(&step);
            }
            (Some(rest), EntryKind::Gone) => {
                let Some(entry) = self.steps.get_mut(&step) else { return };
                entry.remove(rest);
                if entry.dir.is_none() && entry.below.is_empty() {
                    self.steps.remove(&step);
                }
            }
            (None, _) => self.steps.entry(step).or_default().dir = Some(fact.clone()),
            (Some(rest), _) => {
                let entry = self.steps.entry(step).or_default();
                entry.below.insert(rest.to_owned(), fact.clone());
            }
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        let own = self.steps.keys().map(|step| (names::step_dir(*step), *step));
        let padded = self.padded.iter().map(|(name, step)| (name.clone(), *step));
        let mut all: Vec<_> = own
            .chain(padded)
            .map(|(name, step)| (CkptId(name.into()), step))
            .collect();
        // The sort is stable: of equal numbers, the name that a run wrote comes first.
        all.sort_by_key(|(_, step)| Reverse(*step));
        all
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        let Some((step, entry)) = self.entry(ckpt) else {
            return Vec::new();
        };
        let dir = names::step_dir(step);
        let mut seen = BTreeSet::new();
        HfStepParts::of(&entry.files())
            .groups
            .into_values()
            .flat_map(|group| group.needs)
            .filter(|need| seen.insert(need.path.clone()))
            .map(|need| need.under(Utf8Path::new(&dir)))
            .collect()
    }

    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary {
        let Some((step, entry)) = self.entry(ckpt) else {
            let padded = self.padded.get(ckpt.0.as_str());
            return padded.map_or_else(|| crate::kit::unknown_step(ckpt), |step| padded::padded(ckpt, *step));
        };
        judge::judge(&judge::HfStepInput {
            step,
            entry,
            siblings: self.siblings(step),
            expect: &self.expect,
            depth,
            reports,
        })
    }

    fn marks(&self, ckpt: &CkptId, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        step_of(ckpt).map_or_else(StepCounters::default, |step| marks::marks(step, reports))
    }

    fn remember(&mut self, _earlier: Vec<EarlierStep>) {}

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        self.entry(ckpt).map(|(_, entry)| entry.pins())
    }

    fn remarks(&self) -> Vec<String> {
        let told = self.odd.iter().map(|(name, kind)| remark(name, *kind));
        crate::kit::first(told.collect())
    }

    fn forget(&mut self, ckpt: &CkptId) {
        if let Some(step) = step_of(ckpt) {
            self.steps.remove(&step);
        }
        self.padded.remove(ckpt.0.as_str());
        self.odd.remove(ckpt.0.as_str());
    }

    fn tracker_file(&self) -> &'static str {
        ""
    }

    fn read_tracker(&mut self, _bytes: Option<&[u8]>) -> TrackerState {
        TrackerState::Unused
    }
}

fn remark(name: &str, kind: HfRootName) -> String {
    match kind {
        HfRootName::TooLarge => format!("{name} is ignored: no step has a number this large"),
        _ => format!(
            "{name} is ignored, but save_total_limit counts and deletes it: move it out of the output directory"
        ),
    }
}
