//! Scan and proof of a checkpoint root: file facts go into the adapter's tracker, files into reports, reports into
//! summaries. Unchanged files are neither read nor judged again.

use super::fs_kind::{FsClock, FsKind};
use super::identity::RUN_DIR_NAME;
use super::nested_steps::nested_steps;
use super::proof::{FileProver, ProofRequest};
use super::proof_cache::ProofCache;
use super::proof_record::{ProofRecords, RecordedStep};
use super::step_owner::StepOwners;
use super::tree::{FileTree, WalkMode};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::{EarlierStep, FilePin, FileReport, RequiredFile, SweepOptions, SweepProgress};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, Finding, PinsHash, Verdict};
use supervise_core::event::ScanReport;
use supervise_core::id::Step;
use supervise_core::state::OwnStep;
use supervise_trainers::{ExpectedLayout, StepTracker, TrainerAdapter};

/// Steps that a quick scan always walks; older ones only if their own directory changed.
const NEWEST: usize = 4;
/// Steps that a quick scan checks at all; in older ones, a removed part is noticed by the next thorough scan.
const OLDER: usize = 256;
/// Faults that a proof checks besides checksums.
pub(super) const OPTIONS: SweepOptions = SweepOptions {
    zero: true,
    finite: false,
};

/// Result of one scan.
pub type Scanned = ScanReport;

/// A root to prove: the tracker, and the valid reports.
pub struct RootProver {
    pub(super) root: Utf8PathBuf,
    pub(super) tree: FileTree,
    pub(super) cache: ProofCache,
    pub(super) clock: FsClock,
    pub(super) verified: Option<ProofRecords>,
    pub(super) files: FileProver,
    pub(super) looked: bool,
    /// Change reports were lost: the next scan is thorough.
    pub(super) lost: bool,
    pub(super) remarks: Vec<String>,
    pub(super) earlier: BTreeMap<CkptId, EarlierStep>,
    bytes: u64,
    /// Steps in the journal: their proof records are trusted.
    pub(super) own: BTreeMap<String, OwnStep>,
}

impl std::fmt::Debug for RootProver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prover({})", self.root)
    }
}

impl RootProver {
    /// A prover of a root, with nothing read yet.
    #[must_use]
    pub fn new(root: &Utf8Path, adapter: &dyn TrainerAdapter, expect: &ExpectedLayout) -> Self {
        let clock = FsKind::near(root).clock();
        Self {
            root: root.to_owned(),
            tree: FileTree::new(root, clock),
            cache: ProofCache::new(adapter.tracker(expect), StepOwners::of(root, expect)),
            clock,
            verified: None,
            files: FileProver::new(root).that_asks().with_memory(expect.memory),
            looked: false,
            lost: false,
            remarks: Vec::new(),
            earlier: BTreeMap::new(),
            bytes: 0,
            own: BTreeMap::new(),
        }
    }

    /// Uses the proof records in the run directory.
    #[must_use]
    pub fn with_records(mut self, run_dir: &Utf8Path) -> Self {
        self.verified = Some(ProofRecords::new(run_dir, false));
        self
    }

    /// Uses the proof records, and keeps them up to date by [`RootProver::record`].
    pub(super) fn keeping_records(mut self, run_dir: &Utf8Path) -> Self {
        let ours = self.root.join(RUN_DIR_NAME);
        self.cache.owners.learn(if ours.is_dir() { &ours } else { run_dir });
        self.verified = Some(ProofRecords::new(run_dir, true));
        self
    }

    /// Sets the steps that the journal records.
    #[must_use]
    pub fn knowing(mut self, own: &BTreeMap<String, OwnStep>) -> Self {
        self.own.clone_from(own);
        self
    }

    pub(super) fn tracked(&self) -> &dyn StepTracker {
        &*self.cache.steps
    }

    /// Bytes of files read by full proofs so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Scans the root and proves steps, newest first, until `whole` whole steps are found. `working` receives the
    /// bytes read and may cancel by returning false.
    pub fn scan(&mut self, depth: Depth, whole: u32, working: &mut dyn FnMut(u64) -> bool) -> ScanReport {
        self.look(depth, whole, WalkMode::Thorough, working)
    }

    pub(super) fn look(
        &mut self,
        depth: Depth,
        whole: u32,
        how: WalkMode,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> ScanReport {
        let mut out = ScanReport::default();
        let mut unreadable = match self.refresh(how) {
            Ok(refused) => refused,
            Err(e) => {
                out.unreadable = Some(e.to_string());
                return out;
            }
        };
        out.empty = self.tree.is_empty();
        out.tracker = match self.tracker() {
            Ok(t) => t,
            Err(e) => {
                out.unreadable = Some(format!("{}: {e}", self.cache.steps.tracker_file()));
                return out;
            }
        };
        let mut found = 0;
        for (id, _) in self.cache.steps.steps() {
            let summary = match unreadable.remove(&id.0) {
                Some(e) => self.unreadable(&id, depth, &e),
                None if found < whole => self.prove_as(&id, depth, how, working),
                None => self.cache.judge(&id, depth, how == WalkMode::Quick),
            };
            if summary.verdict == Verdict::Whole && summary.proven.is_some() {
                found += 1;
            }
            out.steps.push(summary);
        }
        if how == WalkMode::Thorough {
            self.compare(depth, &mut out.steps);
        }
        out.steps.extend(self.others(depth));
        if !self.cache.refused.is_empty() {
            out.steps.sort_by_key(|c| std::cmp::Reverse(c.step));
        }
        out.remarks = self.cache.steps.remarks();
        out.remarks.extend(self.remarks.iter().cloned());
        if out.steps.is_empty() {
            let is_step = |name: &str| self.cache.steps.is_step_name(name);
            out.remarks.extend(nested_steps(&self.root, &is_step));
        }
        out
    }

    /// Judges proven steps again: the newest was judged before the older ones' counters were known.
    fn compare(&mut self, depth: Depth, steps: &mut [CheckpointSummary]) {
        for summary in steps.iter_mut().filter(|c| c.proven.is_some()) {
            *summary = self.cache.judge(&summary.id, depth, false);
        }
    }

    /// Proves one step.
    pub fn prove(&mut self, id: &CkptId, depth: Depth, working: &mut dyn FnMut(u64) -> bool) -> CheckpointSummary {
        self.refuse_others();
        let other = self.others(depth).into_iter().find(|c| c.id == *id);
        other.unwrap_or_else(|| self.prove_as(id, depth, WalkMode::Thorough, working))
    }

    fn prove_as(
        &mut self,
        id: &CkptId,
        depth: Depth,
        how: WalkMode,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> CheckpointSummary {
        match how {
            WalkMode::Thorough => self.cache.doubt_racy(id),
            // The verdict has checked every report already, and is cached if nothing changed.
            WalkMode::Quick => {
                let summary = self.cache.judge(id, depth, true);
                if summary.is_proven(depth) {
                    return summary;
                }
            }
        }
        if !self.cache.step(&id.0).is_answered(depth) {
            self.answer(id, depth, how, working);
        }
        self.cache.judge(id, depth, how == WalkMode::Quick)
    }

    /// Finds the reports that a proof needs: in the cache, in the proof record, or by reading files.
    fn answer(&mut self, id: &CkptId, depth: Depth, how: WalkMode, working: &mut dyn FnMut(u64) -> bool) {
        let needs = self.cache.needs(id, depth);
        let mut left = self.unanswered(id, &needs, depth);
        if !left.is_empty() {
            self.load_record(id);
            let asked = left.len();
            let mut recalled = Vec::with_capacity(asked);
            let is_known = self.is_known(id, depth);
            left.retain(|need| match is_known.then(|| self.recall(id, need, depth)).flatten() {
                Some(report) => {
                    recalled.push((need.path.clone(), report));
                    false
                }
                None => true,
            });
            self.cache.step(&id.0).hold(recalled);
            if left.is_empty() && asked == needs.len() {
                self.all_recalled(id);
            }
        }
        if !left.is_empty() {
            let files = match how {
                WalkMode::Thorough => self.files.clone(),
                WalkMode::Quick => self.files.clone().in_background(),
            };
            let read = self.read(id, &files, &left, depth, working);
            left = match read == left.len() {
                true => Vec::new(),
                false => self.unanswered(id, &needs, depth),
            };
        }
        if left.is_empty() {
            self.cache.step(&id.0).answered(depth);
        }
    }

    /// The step is as its proof record says: nothing new is to be written, and the record need not be kept in memory.
    fn all_recalled(&mut self, id: &CkptId) {
        let known = self.cache.step(&id.0);
        if known
            .remembered
            .as_ref()
            .is_some_and(super::proof_record::RecordedStep::is_of_this_boot)
        {
            known.recorded = Some(known.generation());
        }
        known.remembered = None;
    }

    /// Returns true if the journal says that this step was proven to this depth with its current files. A proof
    /// record alone is not enough: any user who can write it can make it fit.
    pub(super) fn is_known(&self, id: &CkptId, depth: Depth) -> bool {
        let own = self.own.get(id.0.as_str());
        let is_deep = |own: &&OwnStep| own.read || depth == Depth::Structure;
        own.filter(is_deep)
            .is_some_and(|own| self.cache.steps.pins(id) == Some(own.pins))
    }

    fn pin(&self, path: &Utf8Path) -> Option<FilePin> {
        self.tree.fact(path).map(FilePin::of)
    }

    fn unanswered<'n>(&mut self, id: &CkptId, needs: &'n [RequiredFile], depth: Depth) -> Vec<&'n RequiredFile> {
        let mut by: BTreeMap<&Utf8Path, Option<FilePin>> = BTreeMap::new();
        for path in needs.iter().filter_map(|n| n.described_by.as_deref()) {
            if !by.contains_key(path) {
                by.insert(path, self.pin(path));
            }
        }
        let known = self.cache.step(&id.0);
        let pin = |n: &RequiredFile| by.get(n.described_by.as_deref()?).copied().flatten();
        needs
            .iter()
            .filter(|n| known.is_open(n, depth) && !known.answers(n, depth, pin(n)))
            .collect()
    }

    pub(super) fn load_record(&mut self, id: &CkptId) {
        let Some(verified) = &self.verified else { return };
        if self.cache.step(&id.0).remembered.is_some() {
            return;
        }
        let own = self.cache.owners.own();
        let remembered = verified.load(id, own).unwrap_or_else(|why| {
            tracing::warn!("{why}");
            self.remarks.retain(|r| *r != why);
            self.remarks.push(why);
            RecordedStep::default()
        });
        self.cache.step(&id.0).remembered = Some(remembered);
    }

    fn recall(&mut self, id: &CkptId, need: &RequiredFile, depth: Depth) -> Option<FileReport> {
        let pin = self.pin(&need.path)?;
        let by = need.described_by.as_deref().map(|by| (by, self.pin(by)));
        let known = self.cache.step(&id.0);
        let report = known.remembered.as_ref().and_then(|r| {
            if let Some((by, now)) = by {
                let inside = by.strip_prefix(&id.0).ok()?;
                r.holds(inside, &now?, Depth::Structure)?;
            }
            let report = r.holds(need.path.strip_prefix(&id.0).ok()?, &pin, depth)?;
            (report.kind == need.kind).then_some(report)
        });
        Some(known.take_in(&need.path, report?, depth, by.and_then(|(_, pin)| pin), false))
    }

    /// Reads files and stores their reports; returns how many needs that answers. If another file may have replaced a
    /// proven one, its bytes are read whatever depth was requested.
    pub(super) fn read(
        &mut self,
        id: &CkptId,
        files: &FileProver,
        needs: &[&RequiredFile],
        depth: Depth,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> usize {
        self.load_record(id);
        let remembered = self.cache.step(&id.0).remembered.take();
        let inside = |path: &Utf8Path| path.strip_prefix(&id.0).unwrap_or(path).to_owned();
        let wishes: Vec<ProofRequest<'_>> = needs
            .iter()
            .map(|need| {
                let asked = remembered.as_ref().zip(self.pin(&need.path));
                let depth = asked.map_or(depth, |(r, pin)| r.depth(&inside(&need.path), &pin, depth));
                ProofRequest { need, depth }
            })
            .collect();
        let (before, began) = (self.bytes, self.clock.now());
        let mut read = before;
        let mut tell = |p: SweepProgress| {
            read = before.saturating_add(p.done);
            match working(read) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let reports = files.prove_each(&wishes, OPTIONS, &mut tell);
        self.bytes = read;
        let (mut learnt, mut answers) = (Vec::with_capacity(reports.len()), 0);
        for (n, mut report) in reports {
            let Some(ProofRequest { need, depth }) = wishes.get(n) else {
                continue;
            };
            let Some(fact) = self.tree.fact(&need.path) else {
                continue;
            };
            let racy = self.clock.is_racy(fact, began);
            if let Some(r) = &remembered {
                r.compare(&inside(&need.path), &FilePin::of(fact), &mut report);
            }
            let by = need.described_by.as_deref().and_then(|by| self.pin(by));
            let is_described = by.is_some() || need.described_by.is_none();
            answers += usize::from(is_described && report.kind == need.kind && report.verdict != Verdict::Unreadable);
            let known = self.cache.step(&id.0);
            learnt.push((need.path.clone(), known.take_in(&need.path, report, *depth, by, racy)));
        }
        self.cache.step(&id.0).hold(learnt);
        let mixed = remembered.as_ref().and_then(|r| self.mixed(id, r));
        let known = self.cache.step(&id.0);
        known.remembered = remembered;
        known.mixed = mixed;
        answers
    }

    /// A trainer that saves a step again rewrites all of its files. If some are as proven and others are not,
    /// something else wrote them, or the save was killed: either way they do not form one state.
    fn mixed(&mut self, id: &CkptId, remembered: &RecordedStep) -> Option<Finding> {
        let untouched = remembered.untouched(|inside| self.pin(&id.path_of(inside)))?.to_owned();
        let anew = |r: &FileReport| r.findings.iter().any(|f| f.code == "rewritten");
        let (path, _) = self.cache.step(&id.0).reports().iter().find(|(_, r)| anew(r))?;
        let detail = format!(
            "it was written anew since this step was proven, and {untouched} was not: they are of different saves"
        );
        Some(Finding::error("rewritten_in_part", Verdict::Damaged, detail).in_file(path.clone()))
    }

    /// The current pins of one step; `None` if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn pins_now(&mut self, id: &CkptId) -> io::Result<Option<PinsHash>> {
        self.tree.look(&id.0, WalkMode::Thorough, &mut self.cache)?;
        Ok(self.cache.steps.pins(id))
    }

    /// The step numbers found by the last scan.
    #[must_use]
    pub fn steps(&self) -> Vec<(CkptId, Step)> {
        self.cache.steps.steps()
    }

    pub(super) fn dirs_of(&self, id: &CkptId) -> Vec<Utf8PathBuf> {
        let mut out = self.tree.dirs_of(&id.0);
        let is_dir = self.tree.fact(&id.0).is_some_and(|f| f.kind == EntryKind::Dir);
        if out.is_empty() && is_dir {
            out.push(id.0.clone());
        }
        out
    }

    fn unreadable(&mut self, id: &CkptId, depth: Depth, e: &io::Error) -> CheckpointSummary {
        let mut summary = self.cache.judge(id, depth, false);
        let mut finding = Finding::error("unreadable", Verdict::Unreadable, format!("cannot be read: {e}"));
        finding.file = Some(id.0.clone());
        finding.retryable = true;
        summary.verdict = Verdict::Unreadable;
        summary.proven = None;
        summary.part = None;
        summary.findings.insert(0, finding);
        summary
    }

    /// Brings the tracker up to date with the disk. Returns the steps that cannot be read.
    ///
    /// # Errors
    /// The root cannot be listed.
    pub(super) fn refresh(&mut self, how: WalkMode) -> io::Result<BTreeMap<Utf8PathBuf, io::Error>> {
        let how = match std::mem::take(&mut self.lost) || !self.looked {
            true => WalkMode::Thorough,
            false => how,
        };
        if how == WalkMode::Thorough {
            self.reconsider_others();
        }
        let refused = match self.tree.list_root(how, &mut self.cache) {
            Ok(refused) => refused,
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e),
        };
        let mut out: BTreeMap<Utf8PathBuf, io::Error> = refused.into_iter().map(|(n, e)| (n.into(), e)).collect();
        self.refuse_listed_others();
        for (n, (id, _)) in self.cache.steps.steps().into_iter().enumerate() {
            let older = how == WalkMode::Quick && n >= NEWEST && self.tree.is_listed(&id.0);
            // What a trainer's own retention deletes changes the step directory's times.
            let skipped = older && (n >= OLDER || !self.tree.is_touched(&id.0));
            if !skipped
                && !out.contains_key(&id.0)
                && let Err(e) = self.tree.look(&id.0, how, &mut self.cache)
            {
                out.insert(id.0, e);
            }
        }
        self.refuse_others();
        out.retain(|name, _| !self.cache.is_refused(name));
        if how == WalkMode::Thorough && out.is_empty() {
            self.tidy();
        }
        if !std::mem::replace(&mut self.looked, true) {
            self.remember_earlier();
        }
        Ok(out)
    }

    fn remember_earlier(&mut self) {
        let ids: Vec<CkptId> = self.steps().into_iter().map(|(id, _)| id).collect();
        if let Some(verified) = &self.verified {
            self.earlier = verified.earlier(&ids);
            self.cache.remember(self.earlier.values().cloned().collect());
        }
    }
}
