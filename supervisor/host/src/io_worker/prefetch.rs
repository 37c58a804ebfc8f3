//! Work of an I/O worker before it is asked: looks into files as they are closed, judges a step that may have become
//! complete, writes down what was proven. Any question comes first.

use super::scan::RootProver;
use super::tree::WalkMode;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use supervise_checkpoint::{FileKind, RequiredFile};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_core::event::ScanReport;

/// A file that was closed is looked into after this: by then a later write would show in its times.
const SETTLE: Duration = Duration::from_millis(25);
/// If few files wait they are looked into after this, so that the end of a save is known at once; what that is worth
/// is made sure of before it is written down.
const SOON: Duration = Duration::from_millis(5);
const FEW: usize = 8;
/// Files looked into before questions are listened for again.
const BATCH: usize = 64;
/// A step is judged when nothing changed in it for so long.
const QUIET: Duration = Duration::from_millis(10);
/// Judging takes this share of the time at most: one part in so many.
const SHARE: u32 = 4;
/// A proof is written down when the answer is long told.
const RECORD: Duration = Duration::from_millis(100);

/// Looking for changes: how often at first, how seldom at most, and the share of the time it may take.
const POLL_FIRST: Duration = Duration::from_secs(1);
const POLL_LAST: Duration = Duration::from_secs(60);
const POLL_SHARE: u32 = 100;
/// A file on a file system that tells nothing is looked into when it was left alone for this long.
const LEFT_ALONE: i64 = 2_000_000_000;

/// Steps that are followed up.
const NEWEST: usize = 2;
/// If changes are told, a file that is still written is told again when it is closed.
pub(super) const TOLD: i64 = 0;

/// Work that nobody asked for.
#[derive(Debug, Default)]
pub(super) struct Prefetch {
    /// Files that were closed, oldest first; a path may stand in it twice.
    closed: VecDeque<(Instant, Utf8PathBuf)>,
    changed: BTreeMap<CkptId, Instant>,
    /// The last answer about each step.
    said: BTreeMap<CkptId, (Verdict, bool)>,
    record: Option<Instant>,
    whole: Vec<CheckpointSummary>,
    poll: Option<Instant>,
    depth: Option<Depth>,
}

/// Result of being told of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathChange {
    /// A directory that is not known yet.
    NewDir,
    /// A path is gone.
    Gone,
    /// Anything else.
    Plain,
}

impl Prefetch {
    /// A path below a step was heard of.
    pub(super) fn told(&mut self, prover: &mut RootProver, path: &Utf8Path, closed: bool) -> PathChange {
        let Some(top) = path.iter().next() else {
            return PathChange::Plain;
        };
        // A file that cannot be looked at is told by the next scan.
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

    /// A scan was answered.
    pub(super) fn scanned(&mut self, report: &ScanReport, depth: Depth) {
        self.depth = Some(depth);
        self.said = report.steps.iter().map(|c| (c.id.clone(), outcome(c))).collect();
        self.whole.clone_from(&report.steps);
        self.whole.retain(|c| c.verdict == Verdict::Whole && c.proven.is_some());
        self.record = Some(Instant::now() + RECORD);
    }

    /// The file system tells nothing: changes are looked for.
    pub(super) fn poll_from_now_on(&mut self) {
        self.poll.get_or_insert(Instant::now() + POLL_FIRST);
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let closed = self.closed.front().map(|(at, _)| at);
        let changed = self.changed.values().min().filter(|_| self.closed.is_empty());
        [closed, changed, self.record.as_ref(), self.poll.as_ref()]
            .into_iter()
            .flatten()
            .min()
            .copied()
    }

    /// Does what is due, a little at a time. Answers whether a step changed its verdict.
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

    /// Writes what was proven and not written yet.
    pub(super) fn write_down(&mut self, prover: &mut RootProver) {
        self.record = None;
        let whole = std::mem::take(&mut self.whole);
        prover.record(&whole);
        // What was read again before it was written down may say something else now.
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
            // A step that is gone again is told as a change under the root.
            let there = prover.tree.fact(&id.0).is_some();
            touched |= there && self.said.insert(id.clone(), outcome(&summary)) != Some(outcome(&summary));
            // The next judgement of this step waits in proportion to what this one took.
            let pause = began.elapsed() * SHARE;
            if pause > QUIET {
                self.changed.insert(id, Instant::now() + pause);
            }
        }
        touched
    }

    fn look_for_changes(&mut self, prover: &mut RootProver) -> bool {
        let (began, heard) = (Instant::now(), prover.cache.heard());
        // What cannot be looked at now is told by the next scan.
        let _ = prover.refresh(WalkMode::Quick);
        self.noticed(prover, LEFT_ALONE);
        let pause = (began.elapsed() * POLL_SHARE).clamp(POLL_FIRST, POLL_LAST);
        self.poll = Some(Instant::now() + pause);
        prover.cache.heard() != heard
    }

    /// The tree was looked at without a word about it: what changed in the newest steps is followed up. `rest`: a file
    /// that was touched within so many nanoseconds may still be written.
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

/// Changes that the driver wants to hear of.
fn outcome(c: &CheckpointSummary) -> (Verdict, bool) {
    (c.verdict, c.proven.is_some())
}

/// How a file is read that needs no other one beside it.
fn explains_itself(path: &Utf8Path) -> Option<FileKind> {
    let kind = FileKind::of(path.as_str());
    let json = matches!(
        kind,
        FileKind::Json | FileKind::FsdpConfig | FileKind::ModelConfig | FileKind::Settings | FileKind::Tokenizer
    );
    (json || kind == FileKind::TorchZip).then_some(kind)
}

impl RootProver {
    /// Looks into files of which nothing is known yet, by what their names promise.
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
