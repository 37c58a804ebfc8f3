//! The steps under a checkpoint root of a declared trainer, built from file facts as they arrive.

use super::Declaration;
use super::entry::{self, DeclaredStepDir};
use super::judge::{self, DeclaredStepInput, SiblingParts};
use super::pattern::{KnownValues, NameNumbers, Placeholder};
use super::schema::StepNames;
use crate::adapter::{ExpectedLayout, StepTracker};
use camino::{Utf8Path, Utf8PathBuf};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::kind::is_kept;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

/// Number of neighbours that show what a step of this run has.
const SIBLINGS: usize = 4;
/// Names in the root that are kept for remarks.
const ODD: usize = 1000;

/// The steps of a declared trainer.
#[derive(Debug)]
pub struct DeclaredStepTracker {
    of: Arc<Declaration>,
    steps: BTreeMap<String, DeclaredStepDir>,
    /// Other names in the root that mean something to the trainer.
    odd: BTreeMap<String, OddName>,
    pointer: TrackerState,
    /// What a run expects; `None`: the files are judged as they are.
    expect: Option<ExpectedLayout>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OddName {
    Foreign,
    Unfinished,
}

impl DeclaredStepTracker {
    pub(super) fn new(of: Arc<Declaration>) -> Self {
        Self {
            of,
            steps: BTreeMap::new(),
            odd: BTreeMap::new(),
            pointer: TrackerState::Unused,
            expect: None,
        }
    }

    pub(super) fn in_run(of: Arc<Declaration>, expect: ExpectedLayout) -> Self {
        Self {
            expect: Some(expect),
            ..Self::new(of)
        }
    }

    /// The step that an entry of the root is by its name; 0 if only its content says it.
    fn step_of(&self, name: &str) -> Option<u64> {
        match &self.of.steps.names {
            StepNames::InPlace(file) => (name == file).then_some(0).or_else(|| kept_step(name)),
            StepNames::Dirs(dirs) => dirs.iter().find_map(|dir| {
                let numbers = dir.find(name, KnownValues::default())?;
                numbers.get(&Placeholder::Step).copied()
            }),
        }
    }

    /// Returns true if the step of this name is a file itself.
    fn is_file(&self, name: &str) -> bool {
        matches!(&self.of.steps.names, StepNames::InPlace(file) if file == name)
    }

    fn odd_name(&self, name: &str) -> Option<OddName> {
        let steps = &self.of.steps;
        let unfinished = steps.unfinished.as_ref();
        if unfinished.is_some_and(|u| u.find(name, KnownValues::default()).is_some()) {
            return Some(OddName::Unfinished);
        }
        let starts = steps
            .foreign_start
            .as_ref()
            .is_some_and(|start| name.starts_with(start));
        let has = steps.foreign_has.as_ref().is_some_and(|has| has.is_match(name));
        (starts || has).then_some(OddName::Foreign)
    }

    fn siblings(&self, of: &str) -> Vec<SiblingParts> {
        let own = self.steps.get(of).map_or(0, |e| e.step);
        let mut others: Vec<(&String, &DeclaredStepDir)> = self.steps.iter().filter(|(name, _)| *name != of).collect();
        others.sort_by_key(|(_, e)| (e.step.abs_diff(own), Reverse(e.step)));
        let parts = others
            .into_iter()
            .map(|(_, entry)| (entry, entry::find(&self.of, entry)));
        let finished = parts.filter(|(_, parts)| parts.iter().all(|p| p.is_there() || !p.is_always()));
        finished
            .take(SIBLINGS)
            .map(|(entry, parts)| SiblingParts {
                files: parts
                    .iter()
                    .filter(|p| p.is_there())
                    .map(|p| (p.key(), p.files.len()))
                    .collect(),
                heads: entry.heads.clone(),
            })
            .collect()
    }

    /// Paths of the step that belong to no part, relative to the root.
    #[must_use]
    pub fn untaken(&self, ckpt: &CkptId) -> Vec<Utf8PathBuf> {
        let Some(entry) = self.steps.get(ckpt.0.as_str()) else {
            return Vec::new();
        };
        let parts = entry::find(&self.of, entry);
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for part in &parts {
            taken.extend(part.files.iter().map(|f| f.path.to_owned()));
            taken.extend(part.needs().into_iter().map(|need| need.path.into_string()));
        }
        let known = KnownValues {
            step: Some(entry.step),
            ..KnownValues::default()
        };
        let is_spare = |path: &str| self.of.spare.iter().any(|spare| spare.find(path, known).is_some());
        let left = entry
            .regular()
            .filter(|(path, _)| !taken.contains(*path) && !is_spare(path));
        left.map(|(path, _)| ckpt.0.join(path)).collect()
    }

    /// Returns true if every part is there that a step always needs.
    pub(super) fn has_needed(&self, ckpt: &CkptId) -> bool {
        let entry = self.steps.get(ckpt.0.as_str());
        let parts = entry.map(|entry| entry::find(&self.of, entry));
        parts.is_some_and(|parts| parts.iter().all(|p| p.is_there() || !p.is_always()))
    }

    /// The parts of a step as text, with the number of their files.
    #[must_use]
    pub fn parts(&self, ckpt: &CkptId) -> Vec<(String, usize)> {
        let Some(entry) = self.steps.get(ckpt.0.as_str()) else {
            return Vec::new();
        };
        let parts = entry::find(&self.of, entry);
        let there = parts.iter().filter(|p| p.is_there());
        there
            .map(|p| {
                (
                    p.words(),
                    p.files.len() + p.sets.iter().map(|s| s.files.len()).sum::<usize>(),
                )
            })
            .collect()
    }
}

impl StepTracker for DeclaredStepTracker {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let Some(step) = self.step_of(name) else {
            if let (None, Some(odd)) = (rest, self.odd_name(name)) {
                match fact.kind {
                    EntryKind::Gone => drop(self.odd.remove(name)),
                    _ if self.odd.len() < ODD => drop(self.odd.insert(name.to_owned(), odd)),
                    _ => {}
                }
            }
            return;
        };
        let is_file = self.is_file(name);
        // A copy of the only file is in a directory of its own.
        let rest = match (&self.of.steps.names, rest) {
            (StepNames::InPlace(file), Some(rest)) if rest == file => Some(""),
            (_, rest) => rest,
        };
        match (rest, fact.kind) {
            (None, EntryKind::Gone) => {
                self.steps.remove(name);
            }
            (Some(rest), EntryKind::Gone) => {
                let Some(entry) = self.steps.get_mut(name) else { return };
                entry.remove(rest);
                if entry.own.is_none() && entry.below.is_empty() {
                    self.steps.remove(name);
                }
            }
            (rest, _) => {
                let entry = self.steps.entry(name.to_owned()).or_default();
                if !is_file {
                    entry.step = step;
                }
                match rest {
                    None => {
                        entry.own = Some(fact.clone());
                        if is_file {
                            entry.below.insert(String::new(), fact.clone());
                        }
                    }
                    Some(rest) => drop(entry.below.insert(rest.to_owned(), fact.clone())),
                }
            }
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        let mut all: Vec<(CkptId, Step)> = self
            .steps
            .iter()
            .map(|(name, entry)| (CkptId(name.into()), Step(entry.step)))
            .collect();
        all.sort_by_key(|(_, step)| Reverse(*step));
        all
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        let Some(entry) = self.steps.get(ckpt.0.as_str()) else {
            return Vec::new();
        };
        let mut seen = BTreeSet::new();
        let parts = entry::find(&self.of, entry);
        let needs = parts.iter().flat_map(entry::FoundPart::needs);
        let needs = needs.filter(|need| seen.insert(need.path.clone()));
        needs
            .map(|need| match &self.of.steps.names {
                StepNames::InPlace(file) if ckpt.0.as_str() == file => RequiredFile::new(ckpt.0.clone(), need.kind),
                StepNames::InPlace(file) => RequiredFile::new(ckpt.0.join(file), need.kind),
                StepNames::Dirs(_) => need.under(&ckpt.0),
            })
            .collect()
    }

    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary {
        let Some(entry) = self.steps.get(ckpt.0.as_str()) else {
            return crate::kit::unknown_step(ckpt);
        };
        let judged = judge::judge(&DeclaredStepInput {
            of: &self.of,
            ckpt,
            entry,
            siblings: self.siblings(ckpt.0.as_str()),
            pointer: &self.pointer,
            expect: self.expect.as_ref().unwrap_or(&ExpectedLayout::default()),
            in_run: self.expect.is_some(),
            depth,
            reports: &self.inside(ckpt, reports),
        });
        if let Some(entry) = self.steps.get_mut(ckpt.0.as_str()) {
            entry.step = judged.summary.step.0;
            if !reports.is_empty() {
                entry.heads = judged.heads;
            }
        }
        judged.summary
    }

    fn marks(&self, _ckpt: &CkptId, _reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        StepCounters::default()
    }

    fn remember(&mut self, _earlier: Vec<EarlierStep>) {}

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        self.steps.get(ckpt.0.as_str()).map(DeclaredStepDir::pins)
    }

    fn remarks(&self) -> Vec<String> {
        let title = &self.of.title;
        let odd = self.odd.iter().map(|(name, odd)| match odd {
            OddName::Foreign => format!(
                "{name}: {title} takes it for a step and cannot read its number: move it out of the checkpoint root"
            ),
            OddName::Unfinished => format!("{name} is left over from a save that did not end"),
        });
        let mut by_step: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for (name, entry) in &self.steps {
            by_step.entry(entry.step).or_default().push(name);
        }
        let twice = by_step.into_iter().filter(|(_, names)| names.len() > 1);
        let twice = twice.map(|(step, names)| format!("{} are both step {step}", names.join(" and ")));
        crate::kit::first(odd.chain(twice).chain(self.pointer_remark()).collect())
    }

    fn is_step_name(&self, name: &str) -> bool {
        self.step_of(name).is_some()
    }

    fn forget(&mut self, ckpt: &CkptId) {
        self.steps.remove(ckpt.0.as_str());
        self.odd.remove(ckpt.0.as_str());
    }

    fn tracker_file(&self) -> &'static str {
        self.of.tracker.as_ref().map_or("", |t| t.file)
    }

    fn read_tracker(&mut self, bytes: Option<&[u8]>) -> TrackerState {
        self.pointer = self.pointer_of(bytes);
        self.pointer.clone()
    }

    fn tracker_text(&self, step: Step) -> String {
        let numbers = NameNumbers::from([(Placeholder::Step, step.0)]);
        let text = self.of.tracker.as_ref().map(|t| t.text.fill(&numbers, ""));
        text.unwrap_or_else(|| step.to_string())
    }

    fn takes_name(&self, name: &str) -> bool {
        self.step_of(name).is_some() || self.odd_name(name) == Some(OddName::Foreign)
    }

    fn rests_on_tracker(&self, _ckpt: &CkptId) -> bool {
        self.of.finish == super::FinishMark::Tracker
    }
}

impl DeclaredStepTracker {
    fn pointer_of(&self, bytes: Option<&[u8]>) -> TrackerState {
        let Some(tracker) = &self.of.tracker else {
            return TrackerState::Unused;
        };
        let Some(bytes) = bytes else {
            return TrackerState::Missing;
        };
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        if text.is_empty() {
            return TrackerState::Empty;
        }
        if tracker.also.iter().any(|also| also == text) {
            return TrackerState::Unused;
        }
        let numbers = tracker.text.find(text, KnownValues::default());
        match numbers.and_then(|n| n.get(&Placeholder::Step).copied()) {
            Some(step) => TrackerState::Step(Step(step)),
            None => TrackerState::Garbage(text.chars().take(64).collect()),
        }
    }

    /// Reports by path inside the step; the only file has an empty path.
    fn inside<'a>(
        &self,
        ckpt: &CkptId,
        reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
    ) -> BTreeMap<&'a str, &'a FileReport> {
        let relative = |path: &'a Utf8Path| {
            let path = path.strip_prefix(&ckpt.0).ok()?.as_str();
            let is_it = matches!(&self.of.steps.names, StepNames::InPlace(file) if file == path);
            Some(if is_it { "" } else { path })
        };
        reports
            .iter()
            .filter_map(|(path, report)| Some((relative(path)?, report)))
            .collect()
    }

    fn pointer_remark(&self) -> Option<String> {
        let tracker = self.of.tracker.as_ref().filter(|_| !self.steps.is_empty())?;
        let (what, then) = match &self.pointer {
            TrackerState::Missing => ("is missing".to_owned(), &tracker.missing),
            TrackerState::Empty => ("is empty".to_owned(), &tracker.garbage),
            TrackerState::Garbage(text) => (format!("holds {text:?}, which is no step"), &tracker.garbage),
            TrackerState::Step(step) => {
                let is_there = self.steps.values().any(|e| e.step == step.0);
                return (!is_there).then(|| format!("{} names step {step}, which is not there", tracker.file));
            }
            TrackerState::NotAFile(_) | TrackerState::Unused => return None,
        };
        Some(format!("{} {what}: {}", tracker.file, then.words()))
    }
}

/// The step of a copy of the only checkpoint, by its name.
fn kept_step(name: &str) -> Option<u64> {
    let ckpt = CkptId(name.into());
    let number = name.split_once('.').filter(|_| is_kept(&ckpt))?.0;
    number.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}
