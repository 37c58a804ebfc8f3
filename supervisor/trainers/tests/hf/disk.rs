//! A genuine output directory, taken from the fixtures, changed in memory and judged.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::{FileReport, InspectLimits, inspect, inspect_described, judge_file};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact};
use supervise_trainers::hf::HF;
use supervise_trainers::{ExpectedLayout, StepTracker, adapter};

/// Files by path relative to the output directory.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<Utf8PathBuf, Vec<u8>>,
}

impl Disk {
    /// Two steps of two ranks.
    pub(crate) fn genuine() -> Self {
        Self::of("hf_trainer_w2")
    }

    #[expect(clippy::disallowed_methods, reason = "a fixture")]
    pub(crate) fn of(set: &str) -> Self {
        let root = Utf8Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures")
            .join(set);
        let mut disk = Self::default();
        let mut waiting = vec![root.clone()];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).unwrap() {
                let path = Utf8PathBuf::from_path_buf(entry.unwrap().path()).unwrap();
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    let inside = path.strip_prefix(&root).unwrap().to_owned();
                    disk.files.insert(inside, std::fs::read(&path).unwrap());
                }
            }
        }
        disk
    }

    pub(crate) fn without(mut self, path: &str) -> Self {
        assert!(self.files.remove(Utf8Path::new(path)).is_some(), "{path} is not there");
        self
    }

    pub(crate) fn put(mut self, path: &str, bytes: &[u8]) -> Self {
        self.files.insert(path.into(), bytes.to_owned());
        self
    }

    pub(crate) fn change(mut self, path: &str, to: impl Fn(Vec<u8>) -> Vec<u8>) -> Self {
        let bytes = self.files.remove(Utf8Path::new(path)).unwrap();
        self.files.insert(path.into(), to(bytes));
        self
    }

    /// The files below a directory of another disk, under another name.
    pub(crate) fn with(mut self, other: &Self, dir: &str, name: &str) -> Self {
        for (path, bytes) in &other.files {
            if let Ok(inside) = path.strip_prefix(dir) {
                self.files.insert(Utf8Path::new(name).join(inside), bytes.clone());
            }
        }
        self
    }

    pub(crate) fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        let mut tracker = adapter(HF).tracker(expect);
        for (path, bytes) in &self.files {
            tracker.note(&fact(path.as_str(), EntryKind::File, bytes.len()));
        }
        tracker
    }

    /// Every step, newest first, looked into as a proof would.
    pub(crate) fn judge(&self, expect: &ExpectedLayout) -> Vec<CheckpointSummary> {
        let mut tracker = self.tracker(expect);
        let steps = tracker.steps();
        let each = steps.into_iter().map(|(id, _)| {
            let reports = self.prove(&*tracker, &id);
            tracker.judge(&id, Depth::Structure, &reports)
        });
        each.collect()
    }

    /// The newest step.
    pub(crate) fn newest(&self) -> CheckpointSummary {
        self.judge(&ExpectedLayout::default()).remove(0)
    }

    pub(crate) fn prove(&self, tracker: &dyn StepTracker, id: &CkptId) -> BTreeMap<Utf8PathBuf, FileReport> {
        let mut reports: BTreeMap<Utf8PathBuf, FileReport> = BTreeMap::new();
        for need in tracker.needs(id, Depth::Structure) {
            let source = self.files[&need.path].as_slice();
            let by = need
                .described_by
                .as_ref()
                .and_then(|by| reports.get(by)?.description.clone());
            let inspected = match by {
                Some(by) => {
                    let beside = need.described_by.as_ref().unwrap().parent().unwrap();
                    let name = need.path.strip_prefix(beside).unwrap();
                    inspect_described(need.kind, &source, &by, name.as_str(), &InspectLimits::default())
                }
                None => inspect(need.kind, &source, &InspectLimits::default()),
            };
            reports.insert(need.path, judge_file(&inspected, &[]));
        }
        reports
    }
}

pub(crate) fn fact(path: &str, kind: EntryKind, size: usize) -> FileFact {
    FileFact {
        path: path.into(),
        kind,
        size: size as u64,
        mtime: 0,
        ctime: 0,
        dev: 1,
        ino: 1,
        uid: 0,
    }
}

/// The codes of what condemns a step.
pub(crate) fn why(c: &CheckpointSummary) -> Vec<String> {
    let condemns = c.findings.iter().filter(|f| f.effect() == c.verdict);
    condemns.map(|f| f.code.to_string()).collect()
}
