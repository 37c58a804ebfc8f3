//! What is known of each step, for as long as its files do not change: the tracker fed with file facts, and the valid
//! reports.

use super::proof_record::RecordedStep;
use super::step_owner::{OthersStep, StepOwners};
use super::tree::{TreeListener, below};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use supervise_checkpoint::{EarlierStep, FilePin, FileReport, RequiredFile};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Finding, Verdict};
use supervise_core::event::TrackerState;
use supervise_trainers::StepTracker;

/// The tracker, and what is known of each step, by directory name.
pub(super) struct ProofCache {
    pub(super) steps: Box<dyn StepTracker>,
    pub(super) owners: StepOwners,
    pub(super) refused: BTreeMap<Utf8PathBuf, OthersStep>,
    has_others: bool,
    known: BTreeMap<Utf8PathBuf, CachedStep>,
    /// Incremented by whatever may change the verdict on other steps.
    epoch: u64,
    heard: u64,
    pointer: Option<TrackerState>,
}

#[derive(Debug, Default)]
pub(super) struct CachedStep {
    kind: Option<EntryKind>,
    others: BTreeMap<Utf8PathBuf, u32>,
    /// By path relative to the root; each is valid for the file as last noted.
    reports: BTreeMap<Utf8PathBuf, FileReport>,
    /// Reports read so soon after a write that a later write may not show.
    racy: HashSet<Utf8PathBuf>,
    /// Files read in full whose proof does not reach that depth, because they contain no checksum.
    shallow: HashSet<Utf8PathBuf>,
    /// The describing file's pin when a described file was read.
    described: HashMap<Utf8PathBuf, FilePin>,
    /// Files without a report that says whole, by directory.
    unfinished: BTreeMap<Utf8PathBuf, HashSet<Utf8PathBuf>>,
    /// The depth to which every need had a report, ...
    answered: Option<Depth>,
    /// ... and what changed since.
    since: HashSet<Utf8PathBuf>,
    noted: u64,
    generation: u64,
    needs: Option<(u64, Depth, Arc<Vec<RequiredFile>>)>,
    judged: Option<Judged>,
    pub(super) remembered: Option<RecordedStep>,
    /// Some of its files were rewritten since it was proven, and others were not.
    pub(super) mixed: Option<Finding>,
    pub(super) recorded: Option<u64>,
}

#[derive(Debug)]
struct Judged {
    generation: u64,
    epoch: u64,
    summary: CheckpointSummary,
    depth: Depth,
}

impl TreeListener for ProofCache {
    fn fact(&mut self, fact: &FileFact) {
        self.heard += 1;
        let mut parts = fact.path.iter();
        let Some(top) = parts.next().map(Utf8Path::new) else {
            return;
        };
        let is_top = parts.next().is_none();
        if self.is_refused(top) {
            if is_top && fact.kind == EntryKind::Gone {
                self.refused.remove(top);
            }
            return;
        }
        self.steps.note(fact);
        if is_top && fact.kind == EntryKind::Gone {
            self.epoch += 1;
            self.known.remove(top);
            return;
        }
        let other = self.other(fact);
        self.has_others |= other.is_some();
        self.epoch += u64::from(is_top);
        let known = self.step(top);
        known.belongs(&fact.path, other);
        if is_top {
            known.is_a(fact.kind);
            // A step may be a file; a directory shows in its files.
            if fact.kind != EntryKind::File {
                return;
            }
        }
        known.void(&fact.path);
        known.noted += 1;
        known.is_finished(&fact.path, fact.kind != EntryKind::File);
    }

    fn waited_for(&self, dir: &Utf8Path) -> Vec<Utf8PathBuf> {
        let Some(known) = dir.iter().next().and_then(|top| self.known.get(Utf8Path::new(top))) else {
            return Vec::new();
        };
        known.unfinished.get(dir).into_iter().flatten().cloned().collect()
    }
}

impl ProofCache {
    pub(super) fn new(steps: Box<dyn StepTracker>, owners: StepOwners) -> Self {
        Self {
            steps,
            owners,
            refused: BTreeMap::new(),
            has_others: false,
            known: BTreeMap::new(),
            epoch: 0,
            heard: 0,
            pointer: None,
        }
    }

    fn other(&self, fact: &FileFact) -> Option<u32> {
        let is_other = fact.kind != EntryKind::Gone && !self.owners.accepts(fact.uid);
        is_other.then_some(fact.uid)
    }

    /// Excludes a step: facts about it have no effect until it is gone.
    pub(super) fn refuse(&mut self, id: &CkptId, other: OthersStep) {
        self.steps.forget(id);
        self.forget_step(id);
        self.refused.insert(id.0.clone(), other);
    }

    pub(super) fn is_refused(&self, top: &Utf8Path) -> bool {
        !self.refused.is_empty() && self.refused.contains_key(top)
    }

    pub(super) fn has_others(&self) -> bool {
        self.has_others
    }

    pub(super) fn forget_step(&mut self, id: &CkptId) {
        self.epoch += 1;
        self.known.remove(&id.0);
    }

    pub(super) fn other_owner(&self, id: &CkptId) -> Option<(&Utf8Path, u32)> {
        let (path, uid) = self.known.get(&id.0)?.others.first_key_value()?;
        Some((path, *uid))
    }

    /// Grows with every fact noted.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    pub(super) fn step(&mut self, id: &Utf8Path) -> &mut CachedStep {
        if !self.known.contains_key(id) {
            self.known.insert(id.to_owned(), CachedStep::default());
        }
        self.known.entry(id.to_owned()).or_default()
    }

    /// A file was reported as changed although its facts are the same: it is read again.
    pub(super) fn doubt(&mut self, path: &Utf8Path) {
        let top = path.iter().next().map(Utf8Path::new);
        if let Some(known) = top.and_then(|t| self.known.get_mut(t)) {
            known.void(path);
        }
    }

    /// A file that was read in the same clock tick as a write is read again.
    pub(super) fn doubt_racy(&mut self, id: &CkptId) {
        let known = self.step(&id.0);
        for path in std::mem::take(&mut known.racy) {
            known.void(&path);
        }
    }

    pub(super) fn unread(&self, id: &CkptId) -> Vec<Utf8PathBuf> {
        let Some(known) = self.known.get(&id.0) else {
            return Vec::new();
        };
        let unfinished = known.unfinished.values().flatten();
        unfinished
            .filter(|p| !known.reports.contains_key(*p))
            .cloned()
            .collect()
    }

    pub(super) fn is_read(&self, path: &Utf8Path) -> bool {
        let known = path.iter().next().and_then(|top| self.known.get(Utf8Path::new(top)));
        known.is_some_and(|k| k.reports.contains_key(path))
    }

    pub(super) fn remember(&mut self, earlier: Vec<EarlierStep>) {
        self.steps.remember(earlier);
        self.epoch += 1;
    }

    /// Takes in the trainer's pointer. If it changed, steps that depend on it are judged again, even by a quick scan.
    pub(super) fn read_tracker(&mut self, bytes: Option<&[u8]>) -> TrackerState {
        let tracker = self.steps.read_tracker(bytes);
        if self.pointer.replace(tracker.clone()) != Some(tracker.clone()) {
            let resting = |id: &Utf8PathBuf| self.steps.rests_on_tracker(&CkptId(id.clone()));
            for (_, known) in self.known.iter_mut().filter(|(id, _)| resting(id)) {
                known.judged = None;
            }
        }
        tracker
    }

    pub(super) fn needs(&mut self, id: &CkptId, depth: Depth) -> Arc<Vec<RequiredFile>> {
        let known = self.step(&id.0);
        let noted = known.noted;
        if let Some((of, at, needs)) = &known.needs
            && (*of, *at) == (noted, depth)
        {
            return Arc::clone(needs);
        }
        let needs = Arc::new(self.steps.needs(id, depth));
        self.step(&id.0).needs = Some((noted, depth, Arc::clone(&needs)));
        needs
    }

    /// Verdict on the step by all that is known. `quick`: a change of other steps is no reason to judge again.
    pub(super) fn judge(&mut self, id: &CkptId, depth: Depth, quick: bool) -> CheckpointSummary {
        let epoch = self.epoch;
        let none = BTreeMap::new();
        let known = self.known.get(&id.0);
        let judged = known.and_then(|k| Some((k, k.judged.as_ref()?)));
        if let Some((k, j)) = judged
            && (j.generation, j.depth) == (k.generation, depth)
            && (quick || j.epoch == epoch)
        {
            return j.summary.clone();
        }
        let shape = |c: &CheckpointSummary| (c.verdict, c.roles.clone(), c.world, c.contents.clone());
        let before = judged.map(|(_, j)| shape(&j.summary));
        let mut summary = self.steps.judge(id, depth, known.map_or(&none, |k| &k.reports));
        if let Some(mixed) = known.and_then(|k| k.mixed.clone()) {
            summary.verdict = summary.verdict.worst(mixed.effect());
            summary.proven = None;
            summary.part = None;
            summary.findings.insert(0, mixed);
        }
        if before != Some(shape(&summary)) {
            self.epoch += 1;
        }
        let epoch = self.epoch;
        let known = self.step(&id.0);
        known.judged = Some(Judged {
            generation: known.generation,
            epoch,
            summary: summary.clone(),
            depth,
        });
        summary
    }

    /// Counters of a step that only increase.
    pub(super) fn marks(&self, id: &CkptId) -> supervise_checkpoint::StepCounters {
        let none = BTreeMap::new();
        self.steps
            .marks(id, self.known.get(&id.0).map_or(&none, |k| &k.reports))
    }

    pub(super) fn is_stale(&self, id: &CkptId) -> bool {
        let known = self.known.get(&id.0);
        known.is_some_and(|k| k.judged.as_ref().is_none_or(|j| j.generation != k.generation))
    }
}

impl CachedStep {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn reports(&self) -> &BTreeMap<Utf8PathBuf, FileReport> {
        &self.reports
    }

    pub(super) fn is_racy(&self, path: &Utf8Path) -> bool {
        self.racy.contains(path)
    }

    pub(super) fn has_racy(&self) -> bool {
        !self.racy.is_empty()
    }

    /// Notes the owner of an entry, if it is another user.
    fn belongs(&mut self, path: &Utf8Path, other: Option<u32>) {
        match other {
            Some(uid) => drop(self.others.insert(path.to_owned(), uid)),
            None if self.others.is_empty() => {}
            None => drop(self.others.remove(path)),
        }
    }

    fn void(&mut self, path: &Utf8Path) {
        self.changed(path);
        self.described.remove(path);
        self.racy.remove(path);
        self.shallow.remove(path);
        if !self.reports.is_empty() && self.reports.remove(path).is_some() {
            self.is_finished(path, false);
        }
    }

    fn is_finished(&mut self, path: &Utf8Path, finished: bool) {
        let dir = path.parent().unwrap_or(Utf8Path::new(""));
        match (finished, self.unfinished.get_mut(dir)) {
            (true, Some(files)) => {
                files.remove(path);
            }
            (true, None) => {}
            (false, Some(files)) => {
                files.insert(path.to_owned());
            }
            (false, None) => {
                self.unfinished.insert(dir.to_owned(), HashSet::from([path.to_owned()]));
            }
        }
    }

    /// Returns true if all needs have a report at this depth, and nothing changed since.
    pub(super) fn is_answered(&self, depth: Depth) -> bool {
        self.answered >= Some(depth) && self.since.is_empty()
    }

    pub(super) fn answered(&mut self, depth: Depth) {
        self.answered = Some(depth);
        self.since.clear();
    }

    /// Returns true if a need must be checked: it had no report, or something that matters to it changed.
    pub(super) fn is_open(&self, need: &RequiredFile, depth: Depth) -> bool {
        let by = need.described_by.as_ref().is_some_and(|by| self.since.contains(by));
        self.answered < Some(depth) || by || self.since.contains(&need.path)
    }

    /// Notes the kind of the step's entry. A directory's changed times add nothing to what its files show.
    fn is_a(&mut self, kind: EntryKind) {
        if self.kind.replace(kind) != Some(kind) {
            self.generation += 1;
        }
    }

    fn changed(&mut self, path: &Utf8Path) {
        self.generation += 1;
        if self.answered.is_some() {
            self.since.insert(path.to_owned());
        }
    }

    /// Returns true if a report covers what a proof needs. `by`: the describing file's current pin.
    pub(super) fn answers(&self, need: &RequiredFile, depth: Depth, by: Option<FilePin>) -> bool {
        let Some(report) = self.reports.get(&need.path) else {
            return false;
        };
        let described = match &need.described_by {
            Some(_) => by.is_some() && self.described.get(&need.path).copied() == by,
            None => !self.described.contains_key(&need.path),
        };
        let deep = report.proven >= depth || self.shallow.contains(&need.path);
        described && deep && report.kind == need.kind && report.verdict != Verdict::Unreadable
    }

    pub(super) fn hold(&mut self, learnt: Vec<(Utf8PathBuf, FileReport)>) {
        match self.reports.is_empty() {
            // For a large step, built at once: inserting one by one makes many comparisons.
            true => self.reports = learnt.into_iter().collect(),
            false => self.reports.extend(learnt),
        }
    }

    /// Takes in a report made to a depth and returns what to store of it. `racy`: a later write may not show.
    pub(super) fn take_in(
        &mut self,
        path: &Utf8Path,
        mut report: FileReport,
        asked: Depth,
        by: Option<FilePin>,
        racy: bool,
    ) -> FileReport {
        // A description of other files is large, and only needed while those are read.
        report.description = None;
        self.changed(path);
        self.is_finished(path, report.verdict == Verdict::Whole);
        match racy {
            true => self.racy.insert(path.to_owned()),
            false => self.racy.remove(path),
        };
        match report.proven < asked {
            true => self.shallow.insert(path.to_owned()),
            false => self.shallow.remove(path),
        };
        match by {
            Some(pin) => self.described.insert(path.to_owned(), pin),
            None => self.described.remove(path),
        };
        report
    }

    /// Reports below the step, each with its path in the step.
    pub(super) fn inside<'a>(
        &'a self,
        id: &'a CkptId,
    ) -> impl Iterator<Item = (&'a Utf8Path, &'a Utf8Path, &'a FileReport)> {
        below(&self.reports, &id.0).filter_map(|(p, r)| Some((p.as_path(), p.strip_prefix(&id.0).ok()?, r)))
    }
}
