//! Proves files: the only code that reads a checkpoint's bytes.
//!
//! Small files are distributed to several readers; a large one is read by all of them. Files described by another
//! file wait for it. Files not read because the caller cancelled are left out of the answer.

mod digest;

use super::files::FileSource;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use supervise_checkpoint::{
    ByteSource, FileDescription, FileKind, FileReport, InspectLimits, InspectedFile, RequiredFile, SweepOptions,
    SweepProgress, inspect, inspect_described, judge_file, sweep_parallel, unreadable_file,
};
use supervise_core::checkpoint::{Depth, Finding, Verdict};

/// Readers of a proof that a request waits for.
const READERS: usize = 2;
/// The least memory for a proof: with less, files of every run would be refused.
const LEAST: usize = 4 << 20;
/// A pickle with small values takes this many times its size in memory.
const TIMES: u64 = 9;
const FEW: usize = 2;
/// A larger file is read alone, with all readers.
const LARGE: u64 = 8 << 20;

/// Proves files of one directory.
#[derive(Debug, Clone)]
pub struct FileProver {
    root: Utf8PathBuf,
    readers: usize,
    limits: InspectLimits,
}

#[derive(Debug, Clone)]
pub(super) struct ProofRequest<'n> {
    pub(super) need: &'n RequiredFile,
    pub(super) depth: Depth,
}

impl FileProver {
    /// For files below `root`, with a request waiting.
    #[must_use]
    pub fn new(root: &Utf8Path) -> Self {
        Self {
            root: root.to_owned(),
            readers: READERS,
            limits: InspectLimits::default(),
        }
    }

    /// An unknown name in a pickle does not make its file unsafe by itself: the run asks about it, and knows which files
    /// it wrote.
    #[must_use]
    pub fn that_asks(mut self) -> Self {
        self.limits.asks = true;
        self
    }

    /// Limits memory, for all readers together; 0 changes nothing.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        if let Some(bytes) = usize::try_from(bytes).ok().filter(|b| *b > 0) {
            self.limits.memory = bytes.max(LEAST);
        }
        self
    }

    /// No request waits: uses one reader and, if the kernel supports it, keeps other files cached.
    #[must_use]
    pub fn in_background(mut self) -> Self {
        self.readers = 1;
        self
    }

    /// Proves all files to one depth. `tell` receives the bytes read and the total, and may cancel.
    pub fn prove(
        &self,
        needs: &[RequiredFile],
        depth: Depth,
        options: SweepOptions,
        tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
    ) -> BTreeMap<Utf8PathBuf, FileReport> {
        let wishes: Vec<ProofRequest<'_>> = needs.iter().map(|need| ProofRequest { need, depth }).collect();
        let reports = self.prove_each(&wishes, options, tell);
        reports
            .into_iter()
            .filter_map(|(n, report)| Some((needs.get(n)?.path.clone(), report)))
            .collect()
    }

    /// Like [`Self::prove`], with a depth for each file; reports come with the index of their request.
    pub(super) fn prove_each(
        &self,
        wishes: &[ProofRequest<'_>],
        options: SweepOptions,
        tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
    ) -> Vec<(usize, FileReport)> {
        let (described, plain): (Vec<Numbered<'_>>, Vec<Numbered<'_>>) = wishes
            .iter()
            .enumerate()
            .partition(|(_, w)| w.need.described_by.is_some());
        let work = ProofShared {
            prover: self,
            options,
            done: AtomicU64::new(0),
            of: self.bytes_of(wishes),
            cancelled: AtomicBool::new(false),
            shares: RwLock::new(()),
        };
        let mut out = work.all(&plain, &Descriptions::new(), tell);
        if !described.is_empty() {
            let known = self.descriptions(&described, wishes, &out);
            out.append(&mut work.all(&described, &known, tell));
        }
        digest::compare(&self.root, wishes, &mut out, &work.cancelled);
        out
    }

    fn bytes_of(&self, wishes: &[ProofRequest<'_>]) -> u64 {
        wishes
            .iter()
            .filter(|w| w.depth == Depth::Full)
            .fold(0, |sum, w| sum.saturating_add(self.len(w)))
    }

    fn len(&self, wish: &ProofRequest<'_>) -> u64 {
        fs::symlink_metadata(self.root.join(&wish.need.path)).map_or(0, |m| m.len())
    }

    /// Content of the describing files: from reports that were just made, otherwise read now.
    fn descriptions(
        &self,
        described: &[Numbered<'_>],
        wishes: &[ProofRequest<'_>],
        reports: &[(usize, FileReport)],
    ) -> Descriptions {
        let mut out = Descriptions::new();
        for (n, report) in reports.iter().filter(|(_, r)| r.description.is_some()) {
            let path = wishes.get(*n).map(|w| w.need.path.clone());
            out.extend(path.map(|p| (p, report.description.clone())));
        }
        for by in described.iter().filter_map(|(_, w)| w.need.described_by.as_ref()) {
            if !out.contains_key(by) {
                let source = FileSource::open(&self.root.join(by)).ok();
                let found = source.and_then(|s| inspect(FileKind::of(by.as_str()), &s, &self.limits).description);
                out.insert(by.clone(), found);
            }
        }
        out
    }
}

/// Returns true if files of this kind are read into memory as a whole.
fn is_read_at_once(kind: FileKind) -> bool {
    matches!(kind, FileKind::Pickle | FileKind::DcpMetadata)
}

type Numbered<'w> = (usize, &'w ProofRequest<'w>);

type Descriptions = BTreeMap<Utf8PathBuf, Option<Arc<FileDescription>>>;

/// Returns true if the file was neither written to nor deleted between two checks.
fn same_state<S: PartialEq>(before: std::io::Result<S>, after: std::io::Result<S>) -> bool {
    matches!((before, after), (Ok(before), Ok(after)) if before == after)
}

fn changed_meanwhile() -> Finding {
    let detail = "it was written to or deleted while it was read: what was read is no longer what is there";
    let mut finding = Finding::error("file_changed", Verdict::Incomplete, detail);
    finding.retryable = true;
    finding
}

struct ProofShared<'p> {
    prover: &'p FileProver,
    options: SweepOptions,
    done: AtomicU64,
    of: u64,
    cancelled: AtomicBool,
    /// Read-locked by a reader that stays within its share of the memory; a file that needs more is read exclusively.
    shares: RwLock<()>,
}

impl ProofShared<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Proves small files in parallel, then large ones with all readers each.
    fn all(
        &self,
        wishes: &[Numbered<'_>],
        known: &Descriptions,
        tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
    ) -> Vec<(usize, FileReport)> {
        let is_large = |w: &ProofRequest<'_>| w.depth == Depth::Full && self.prover.len(w) > LARGE;
        let (large, small): (Vec<Numbered<'_>>, Vec<Numbered<'_>>) = wishes.iter().partition(|(_, w)| is_large(w));
        let mut out = self.share(&small, known, tell);
        for (n, wish) in large {
            let report = self.one(wish, known, self.prover.readers, tell);
            out.extend(report.map(|r| (n, r)));
        }
        out
    }

    /// Distributes the files to the readers; only the caller's thread reports progress.
    fn share(
        &self,
        wishes: &[Numbered<'_>],
        known: &Descriptions,
        tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
    ) -> Vec<(usize, FileReport)> {
        let helpers = match wishes.len() {
            0..FEW => 0,
            _ => self.prover.readers.saturating_sub(1),
        };
        let next = AtomicUsize::new(0);
        let take = |tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>| {
            let mut out = Vec::new();
            while let Some((n, wish)) = wishes.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.one(wish, known, 1, tell) {
                    Some(report) => out.push((*n, report)),
                    None => break,
                }
            }
            out
        };
        std::thread::scope(|scope| {
            let mut helping = Vec::new();
            for _ in 0..helpers {
                let help = || take(&mut |_| ControlFlow::Continue(()));
                // If no thread can be created, one reader is enough.
                helping.extend(std::thread::Builder::new().spawn_scoped(scope, help));
            }
            let mut found = take(tell);
            for helper in helping {
                // A reader that panicked proved nothing: its files are left out and stay unproven.
                found.append(&mut helper.join().unwrap_or_default());
            }
            found
        })
    }

    fn tell(&self, more: u64, tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>) -> ControlFlow<()> {
        let done = self.done.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        let of = self.of.max(done);
        if tell(SweepProgress { done, of }).is_break() {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        match self.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn one(
        &self,
        wish: &ProofRequest<'_>,
        known: &Descriptions,
        threads: usize,
        tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
    ) -> Option<FileReport> {
        if self.tell(0, tell).is_break() {
            return None;
        }
        let source = match FileSource::open(&self.prover.root.join(&wish.need.path)) {
            Ok(s) => s,
            Err(e) => return Some(unreadable_file(wish.need.kind, e)),
        };
        source.will_be_probed();
        let inspected = self.inspect(wish.need, &source, known);
        if wish.depth == Depth::Structure || inspected.read_all {
            return Some(judge_file(&inspected, &[]));
        }
        source.will_be_read(self.prover.readers == 1);
        let before = source.state();
        let mut told = 0;
        let mut heard = |p: SweepProgress| {
            let more = p.done.saturating_sub(told);
            told = p.done;
            self.tell(more, tell)
        };
        let mut swept = sweep_parallel(&[(&source, &inspected.plan)], threads, self.options, &mut heard);
        match swept.pop()? {
            Ok(results) => {
                let mut report = judge_file(&inspected, &results);
                if !same_state(before, source.state()) {
                    report.add(changed_meanwhile());
                }
                Some(report)
            }
            Err(e) => {
                let finding = e.finding()?;
                let mut report = judge_file(&inspected, &[]);
                report.add(finding);
                Some(report)
            }
        }
    }

    fn inspect(&self, need: &RequiredFile, source: &FileSource, known: &Descriptions) -> InspectedFile {
        let limits = &self.prover.limits;
        let share = InspectLimits {
            memory: limits.memory / self.prover.readers.max(1),
            ..limits.clone()
        };
        // Not tried with a share of the memory that is certainly too small.
        let fits =
            !is_read_at_once(need.kind) || source.len().unwrap_or(0).saturating_mul(TIMES) <= share.memory as u64;
        if self.prover.readers > 1 && fits {
            let _together = self.shares.read().unwrap_or_else(PoisonError::into_inner);
            let found = Self::look(need, source, known, &share);
            let too_big = |f: &Finding| f.code == "limit_reached" && f.verdict == Verdict::Unreadable;
            if !found.findings.iter().any(too_big) {
                return found;
            }
        }
        let _alone = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        Self::look(need, source, known, limits)
    }

    fn look(need: &RequiredFile, source: &FileSource, known: &Descriptions, limits: &InspectLimits) -> InspectedFile {
        let by = need.described_by.as_deref();
        let description = by.and_then(|by| known.get(by)).and_then(Option::as_deref);
        match (by, description) {
            (Some(by), Some(description)) => {
                let beside = by.parent().unwrap_or(Utf8Path::new(""));
                let name = need.path.strip_prefix(beside).unwrap_or(&need.path);
                inspect_described(need.kind, source, description, name.as_str(), limits)
            }
            _ => inspect(need.kind, source, limits),
        }
    }
}
