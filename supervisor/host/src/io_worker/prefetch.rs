//! Unrequested work of an I/O worker: reads files as they are closed, judges a step that may be complete now, writes
//! proof records. Requests come first.

use super::scan::RootProver;
use super::tree::WalkMode;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use supervise_checkpoint::{FileKind, RequiredFile};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_core::event::ScanReport;

/// Delay after a file was closed before it is read: by then, a later write would show in its timestamps.
const SETTLE: Duration = Duration::from_millis(25);
/// The delay if few files wait, so that the end of a save is known at once. They are read again before a proof record
/// is written.
const SOON: Duration = Duration::from_millis(5);
const FEW: usize = 8;
const BATCH: usize = 64;
/// A step is judged after this long without a change.
const QUIET: Duration = Duration::from_millis(10);
/// Judging takes at most this share of the time: one part in so many.
const SHARE: u32 = 4;
/// Delay of writing a proof record, so that the answer is sent long before.
const RECORD: Duration = Duration::from_millis(100);

/// Polling for changes: the first and the longest pause, and the share of the time that it may take.
const POLL_FIRST: Duration = Duration::from_secs(1);
const POLL_LAST: Duration = Duration::from_secs(60);
const POLL_SHARE: u32 = 100;
/// On a file system that does not report changes, a file is read after this long without a change, in nanoseconds.
const LEFT_ALONE: i64 = 2_000_000_000;

const NEWEST: usize = 2;
/// If changes are reported, a file that is still being written is reported again when it is closed.
pub(super) const TOLD: i64 = 0;

#[derive(Debug, Default)]
pub(super) struct Prefetch {
    /// Files that were closed, oldest first; a path may occur twice.
    closed: VecDeque<(Instant, Utf8PathBuf)>,
    changed: BTreeMap<CkptId, Instant>,
    said: BTreeMap<CkptId, (Verdict, bool)>,
    record: Option<Instant>,
    whole: Vec<CheckpointSummary>,
    poll: Option<Instant>,
    depth: Option<Depth>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathChange {
    NewDir,
    Gone,
    Plain,
}

impl Prefetch {
    pub(super) fn told(&mut self, prover: &mut RootProver, path: &Utf8Path, closed: bool) -> PathChange {
        let Some(top) = path.iter().next() else {
            return PathChange::Plain;
        };
        // The next scan reports a file that cannot be read.
        let Ok(Some(kind)) = prover.tree.look_at(path, &mut prover.cache) else {
            return PathChange::Plain;
        };
        let soon = Instant::now() + QUIET;
        let at = self.changed.entry(CkptId(top.into())).or_insert(soon);
        *at = soon.max(*at);
        match kind {
            EntryKind::Dir => PathChange::NewDir,
            EntryKind::Gone => PathChange::Gone,
            EntryKind::File if closed => {
                prover.cache.doubt(path);
                if explains_itself(path).is_some() {
                    let settle = if self.closed.len() < FEW { SOON } else { SETTLE };
                    self.closed.push_back((Instant::now() + settle, path.to_owned()));
                }
                PathChange::Plain
            }
            EntryKind::File | EntryKind::Symlink | EntryKind::Other => PathChange::Plain,
        }
    }

    pub(super) fn scanned(&mut self, report: &ScanReport, depth: Depth) {
        self.depth = Some(depth);
        self.said = report.steps.iter().map(|c| (c.id.clone(), outcome(c))).collect();
        self.whole.clone_from(&report.steps);
        self.whole.retain(|c| c.verdict == Verdict::Whole && c.proven.is_some());
        self.record = Some(Instant::now() + RECORD);
    }

    pub(super) fn poll_from_now_on(&mut self) {
        self.poll.get_or_insert(Instant::now() + POLL_FIRST);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let closed = self.closed.front().map(|(at, _)| at);
        let changed = self.changed.values().min().filter(|_| self.closed.is_empty());
        [closed, changed, self.record.as_ref(), self.poll.as_ref()]
            .into_iter()
            .flatten()
            .min()
            .copied()
    }

    /// Does a part of what is due. Returns whether a step's verdict changed.
    pub(super) fn work(&mut self, prover: &mut RootProver, asked: &dyn Fn() -> bool) -> bool {
        let now = Instant::now();
        let mut touched = false;
        if self.poll.is_some_and(|at| at <= now) {
            touched |= self.look_for_changes(prover);
        }
        while !asked() && self.look_into_closed(prover) {}
        if !asked() && self.closed.is_empty() {
            touched |= self.judge(prover);
        }
        if !asked() && self.record.is_some_and(|at| at <= now) {
            self.write_down(prover);
        }
        touched
    }

    pub(super) fn write_down(&mut self, prover: &mut RootProver) {
        self.record = None;
        let whole = std::mem::take(&mut self.whole);
        prover.record(&whole);
        // What was read again before it was recorded may differ now.
        for step in whole {
            self.changed.entry(step.id).or_insert_with(Instant::now);
        }
    }

    fn look_into_closed(&mut self, prover: &mut RootProver) -> bool {
        let now = Instant::now();
        let mut batch = Vec::new();
        while batch.len() < BATCH && self.closed.front().is_some_and(|(at, _)| *at <= now) {
            let next = self.closed.pop_front().map(|(_, path)| path);
            batch.extend(next.filter(|path| !prover.cache.is_read(path)));
        }
        prover.look_into(&batch);
        !batch.is_empty()
    }

    fn judge(&mut self, prover: &mut RootProver) -> bool {
        let now = Instant::now();
        let due: Vec<CkptId> = self
            .changed
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| id.clone())
            .collect();
        let mut touched = false;
        for id in due {
            self.changed.remove(&id);
            let began = Instant::now();
            let summary = prover.cache.judge(&id, self.depth.unwrap_or(Depth::Structure), true);
            // A step that was removed again is reported as a change under the root.
            let there = prover.tree.fact(&id.0).is_some();
            touched |= there && self.said.insert(id.clone(), outcome(&summary)) != Some(outcome(&summary));
            // The next judgement of this step waits in proportion to the duration of this one.
            let pause = began.elapsed() * SHARE;
            if pause > QUIET {
                self.changed.insert(id, Instant::now() + pause);
            }
        }
        touched
    }

    fn look_for_changes(&mut self, prover: &mut RootProver) -> bool {
        let (began, heard) = (Instant::now(), prover.cache.heard());
        // The next scan reports what cannot be read now.
        let _ = prover.refresh(WalkMode::Quick);
        self.noticed(prover, LEFT_ALONE);
        let pause = (began.elapsed() * POLL_SHARE).clamp(POLL_FIRST, POLL_LAST);
        self.poll = Some(Instant::now() + pause);
        prover.cache.heard() != heard
    }

    /// Follows changes of the newest steps that a walk found. `rest`: a file touched within so many nanoseconds may
    /// still be written.
    pub(super) fn noticed(&mut self, prover: &RootProver, rest: i64) {
        let (now, clock) = (Instant::now(), prover.clock.now());
        let rests = |f: &FileFact| clock.saturating_sub(f.mtime.max(f.ctime)) >= rest;
        for (id, _) in prover.steps().into_iter().take(NEWEST) {
            if !prover.cache.is_stale(&id) {
                continue;
            }
            for path in prover.cache.unread(&id) {
                if explains_itself(&path).is_some() && prover.tree.fact(&path).is_some_and(rests) {
                    self.closed.push_back((now, path));
                }
            }
            self.changed.entry(id).or_insert(now + QUIET);
        }
    }
}

/// Changes that the supervisor needs to know.
fn outcome(c: &CheckpointSummary) -> (Verdict, bool) {
    (c.verdict, c.proven.is_some())
}

/// How a file is read that can be checked on its own.
fn explains_itself(path: &Utf8Path) -> Option<FileKind> {
    let kind = FileKind::of(path.as_str());
    let json = matches!(
        kind,
        FileKind::Json | FileKind::FsdpConfig | FileKind::ModelConfig | FileKind::Settings | FileKind::Tokenizer
    );
    (json || kind == FileKind::TorchZip).then_some(kind)
}

impl RootProver {
    /// Reads files without a report, by what their names promise.
    fn look_into(&mut self, paths: &[Utf8PathBuf]) {
        let mut steps: BTreeMap<CkptId, Vec<RequiredFile>> = BTreeMap::new();
        for path in paths {
            if let (Some(top), Some(kind)) = (path.iter().next(), explains_itself(path)) {
                let needs = steps.entry(CkptId(top.into())).or_default();
                needs.push(RequiredFile::new(path.clone(), kind));
            }
        }
        for (id, needs) in steps {
            let files = self.files.clone().in_background();
            let needs: Vec<&RequiredFile> = needs.iter().collect();
            self.read(&id, &files, &needs, Depth::Structure, &mut |_| true);
        }
    }
}
