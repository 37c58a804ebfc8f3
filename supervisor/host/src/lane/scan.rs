//! Scan and proof of a checkpoint root: file facts into the adapter's fold, files into reports, reports into
//! summaries. What did not change is neither read nor judged again.

use super::files::{FileSource, fact_of, walk};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::{
    FileKind, FileReport, Limits, Progress, SweepOptions, inspect, judge_file, sweep, unreadable_file,
};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Finding, PinsHash, Verdict};
use supervise_core::event::{ScanReport, Tracker};
use supervise_core::id::Step;
use supervise_trainers::{Adapter, Expectation, StepTracker};

/// A tracker file is a number; more is not read.
const TRACKER_LIMIT: usize = 256;

/// What one scan gave.
pub type Scanned = ScanReport;

/// A root under proof: the fold, and the reports that are still true.
pub struct Prover {
    root: Utf8PathBuf,
    steps: Box<dyn StepTracker>,
    facts: BTreeMap<Utf8PathBuf, FileFact>,
    reports: BTreeMap<Utf8PathBuf, Report>,
    bytes: u64,
}

struct Report {
    fact: FileFact,
    report: FileReport,
}

impl std::fmt::Debug for Prover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prover({})", self.root)
    }
}

impl Prover {
    /// A root, nothing read yet.
    #[must_use]
    pub fn new(root: &Utf8Path, adapter: &dyn Adapter, expect: &Expectation) -> Self {
        Self {
            root: root.to_owned(),
            steps: adapter.tracker(expect),
            facts: BTreeMap::new(),
            reports: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Scans the root and proves newest first until `whole` whole steps are found. `working` hears the bytes read
    /// and may end a sweep by answering `false`.
    pub fn scan(&mut self, depth: Depth, whole: u32, working: &mut dyn FnMut(u64) -> bool) -> ScanReport {
        let mut out = ScanReport::default();
        let mut unreadable: BTreeMap<Utf8PathBuf, io::Error> = BTreeMap::new();
        match self.refresh(&mut unreadable) {
            Ok(empty) => out.empty = empty,
            Err(e) => {
                out.unreadable = Some(e.to_string());
                return out;
            }
        }
        out.tracker = match self.tracker() {
            Ok(t) => t,
            Err(e) => {
                out.unreadable = Some(format!("{}: {e}", self.steps.tracker_file()));
                return out;
            }
        };
        let mut found = 0;
        for (id, _) in self.steps.steps() {
            let summary = match unreadable.remove(&id.0) {
                Some(e) => self.unreadable(&id, depth, &e),
                None if found < whole => self.prove(&id, depth, working),
                None => self.steps.judge(&id, depth, &BTreeMap::new()),
            };
            if summary.verdict == Verdict::Whole && summary.proven.is_some() {
                found += 1;
            }
            out.steps.push(summary);
        }
        out.remarks = self.steps.remarks();
        out
    }

    /// Proves one step.
    pub fn prove(&mut self, id: &CkptId, depth: Depth, working: &mut dyn FnMut(u64) -> bool) -> CheckpointSummary {
        let mut reports = BTreeMap::new();
        for (path, kind) in self.steps.needs(id, depth) {
            let report = self.report(&path, kind, depth, working);
            reports.insert(path, report);
        }
        self.steps.judge(id, depth, &reports)
    }

    /// The pins of one step as they are on disk now; `None` where it is gone.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn pins_now(&mut self, id: &CkptId) -> io::Result<Option<PinsHash>> {
        self.refresh_step(&id.0)?;
        Ok(self.steps.pins(id))
    }

    /// The step numbers found by the last scan.
    #[must_use]
    pub fn steps(&self) -> Vec<(CkptId, Step)> {
        self.steps.steps()
    }

    fn unreadable(&mut self, id: &CkptId, depth: Depth, e: &io::Error) -> CheckpointSummary {
        let mut summary = self.steps.judge(id, depth, &BTreeMap::new());
        let mut finding = Finding::error("unreadable", Verdict::Unreadable, format!("cannot be read: {e}"));
        finding.file = Some(id.0.clone());
        finding.retryable = true;
        summary.verdict = Verdict::Unreadable;
        summary.proven = None;
        summary.findings.insert(0, finding);
        summary
    }

    /// Brings the fold up to date with the disk; answers whether the root is empty or missing.
    fn refresh(&mut self, unreadable: &mut BTreeMap<Utf8PathBuf, io::Error>) -> io::Result<bool> {
        let entries = match self.root.read_dir_utf8() {
            Ok(e) => e,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(e),
        };
        let mut seen: BTreeSet<Utf8PathBuf> = BTreeSet::new();
        let mut steps = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = Utf8PathBuf::from(entry.file_name());
            if name.as_str().starts_with('.') {
                continue;
            }
            let meta = match fs::symlink_metadata(entry.path()) {
                Ok(m) => m,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    unreadable.insert(name, e);
                    continue;
                }
            };
            let fact = fact_of(name.clone(), &meta);
            if fact.kind == EntryKind::Dir && name.as_str().starts_with("global_step") {
                steps.push(name.clone());
            }
            seen.insert(name.clone());
            self.note(fact);
        }
        self.drop_gone(Utf8Path::new(""), &seen, false);
        for step in steps {
            if let Err(e) = self.refresh_step(&step) {
                unreadable.insert(step, e);
            }
        }
        Ok(seen.is_empty())
    }

    fn refresh_step(&mut self, step: &Utf8Path) -> io::Result<()> {
        let mut facts = Vec::new();
        match fs::symlink_metadata(self.root.join(step)) {
            Ok(m) => facts.push(fact_of(step.to_owned(), &m)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        walk(&self.root, step, &mut facts)?;
        let seen: BTreeSet<Utf8PathBuf> = facts.iter().map(|f| f.path.clone()).collect();
        for fact in facts {
            self.note(fact);
        }
        self.drop_gone(step, &seen, true);
        Ok(())
    }

    fn note(&mut self, fact: FileFact) {
        if self.facts.get(&fact.path) == Some(&fact) {
            return;
        }
        self.steps.note(&fact);
        self.facts.insert(fact.path.clone(), fact);
    }

    /// What was noted under `under` and was not seen again is gone. `deep`: everything below it, else its top level
    /// and whatever stands below a top-level entry that is gone.
    fn drop_gone(&mut self, under: &Utf8Path, seen: &BTreeSet<Utf8PathBuf>, deep: bool) {
        let gone: Vec<Utf8PathBuf> = self
            .facts
            .keys()
            .filter(|p| match deep {
                true => p.starts_with(under) && !seen.contains(*p),
                false => p.iter().next().is_some_and(|top| !seen.contains(Utf8Path::new(top))),
            })
            .cloned()
            .collect();
        for path in gone {
            if let Some(mut fact) = self.facts.remove(&path) {
                fact.kind = EntryKind::Gone;
                self.steps.note(&fact);
            }
            self.reports.remove(&path);
        }
    }

    fn report(
        &mut self,
        path: &Utf8Path,
        kind: FileKind,
        depth: Depth,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> FileReport {
        let fact = self.facts.get(path).cloned();
        if let (Some(known), Some(fact)) = (self.reports.get(path), &fact)
            && known.fact == *fact
            && known.report.proven >= depth
            && known.report.verdict != Verdict::Unreadable
        {
            return known.report.clone();
        }
        let report = self.read(path, kind, depth, working);
        if let Some(fact) = fact {
            self.reports.insert(
                path.to_owned(),
                Report {
                    fact,
                    report: report.clone(),
                },
            );
        }
        report
    }

    fn read(
        &mut self,
        path: &Utf8Path,
        kind: FileKind,
        depth: Depth,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> FileReport {
        let source = match FileSource::open(&self.root.join(path)) {
            Ok(s) => s,
            Err(e) => return unreadable_file(kind, e),
        };
        read_source(&source, kind, depth, &mut self.bytes, working)
    }

    fn tracker(&self) -> io::Result<Tracker> {
        let name = self.steps.tracker_file();
        if name.is_empty() {
            return Ok(Tracker::Missing);
        }
        match fs::read(self.root.join(name)) {
            Ok(mut bytes) => {
                bytes.truncate(TRACKER_LIMIT);
                Ok(self.steps.read_tracker(Some(&bytes)))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(self.steps.read_tracker(None)),
            // No trainer writes that, and no waiting changes it.
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => Ok(Tracker::Garbage("a directory".to_owned())),
            Err(e) => Err(e),
        }
    }
}

/// The three calls of a proof over one file.
pub(super) fn read_source(
    source: &FileSource,
    kind: FileKind,
    depth: Depth,
    total: &mut u64,
    working: &mut dyn FnMut(u64) -> bool,
) -> FileReport {
    let inspected = inspect(kind, source, &Limits::default());
    if depth == Depth::Structure || inspected.read_all {
        return judge_file(&inspected, &[]);
    }
    let before = *total;
    let mut seen = before;
    let mut tell = |p: Progress| {
        seen = before.saturating_add(p.done);
        if working(seen) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let options = SweepOptions {
        zero: true,
        finite: false,
    };
    let swept = sweep(source, &inspected.plan, options, &mut tell);
    *total = seen;
    match swept {
        Ok(results) => judge_file(&inspected, &results),
        Err(e) => {
            let mut report = judge_file(&inspected, &[]);
            if let Some(finding) = e.finding() {
                report.add(finding);
            }
            report
        }
    }
}
