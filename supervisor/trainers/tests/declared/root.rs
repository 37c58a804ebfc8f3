//! A checkpoint root in memory: facts and reports as a scan and a proof would give them.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::sync::Arc;
use supervise_checkpoint::torch::TorchFacts;
use supervise_checkpoint::{FileKind, FileReport, unreadable_file};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_trainers::StepTracker;
use supervise_trainers::declared::{Declaration, DeclaredStepTracker, preset};

#[derive(Clone, Default)]
pub(crate) struct Root {
    facts: BTreeMap<Utf8PathBuf, FileFact>,
    numbers: BTreeMap<Utf8PathBuf, (String, u64)>,
    pub(crate) pointer: Option<&'static str>,
}

impl Root {
    /// SkyRL's steps 2 and 4 of two ranks.
    pub(crate) fn skyrl(roles: &[&str]) -> Self {
        let mut root = Self {
            pointer: Some("4"),
            ..Self::default()
        };
        for step in [2, 4] {
            let dir = format!("global_step_{step}");
            for role in roles {
                for rank in 0..2 {
                    for kind in ["model", "optim", "extra_state"] {
                        root.file(&format!("{dir}/{role}/{kind}_world_size_2_rank_{rank}.pt"));
                    }
                }
            }
            root.file(&format!("{dir}/data.pt"));
            root.file(&format!("{dir}/trainer_state.pt"));
            root.says(&format!("{dir}/trainer_state.pt"), "global_step", step);
        }
        root
    }

    pub(crate) fn file(&mut self, path: &str) {
        self.put(path, EntryKind::File);
        let above = Utf8Path::new(path).ancestors().skip(1);
        for dir in above.filter(|dir| !dir.as_str().is_empty()) {
            self.put(dir.as_str(), EntryKind::Dir);
        }
    }

    pub(crate) fn put(&mut self, path: &str, kind: EntryKind) {
        let fact = FileFact {
            path: path.into(),
            kind,
            size: 4096,
            mtime: 1_800_000_000_000_000_000,
            ctime: 0,
            dev: 0,
            ino: 0,
            uid: 0,
        };
        self.facts.insert(path.into(), fact);
    }

    pub(crate) fn with(mut self, path: &str) -> Self {
        self.file(path);
        self
    }

    /// Removes a path and all below it; at least something has to be there.
    #[track_caller]
    pub(crate) fn without(mut self, path: &str) -> Self {
        let before = self.facts.len();
        self.facts.retain(|p, _| !p.starts_with(path));
        assert!(self.facts.len() < before, "{path} is not there");
        self
    }

    /// A number at the top of a torch file.
    pub(crate) fn says(&mut self, path: &str, key: &str, number: u64) {
        self.numbers.insert(path.into(), (key.to_owned(), number));
    }

    pub(crate) fn paths(&self) -> Vec<Utf8PathBuf> {
        let files = self.facts.values().filter(|f| f.kind == EntryKind::File);
        files.map(|f| f.path.clone()).collect()
    }

    pub(crate) fn facts(&self) -> Vec<FileFact> {
        self.facts.values().cloned().collect()
    }

    pub(crate) fn tracker(&self, of: &Arc<Declaration>) -> DeclaredStepTracker {
        let mut tracker = of.tracker();
        for fact in self.facts.values() {
            tracker.note(fact);
        }
        tracker.read_tracker(self.pointer.map(str::as_bytes));
        tracker
    }

    pub(crate) fn judge(&self, name: &str, step: &str) -> CheckpointSummary {
        let mut tracker = self.tracker(preset(name).unwrap());
        let id = CkptId(step.into());
        let needs = tracker.needs(&id, Depth::Structure);
        let reports: BTreeMap<Utf8PathBuf, FileReport> = needs
            .into_iter()
            .map(|need| (need.path.clone(), self.report(&need.path, need.kind)))
            .collect();
        tracker.judge(&id, Depth::Structure, &reports)
    }

    fn report(&self, path: &Utf8Path, kind: FileKind) -> FileReport {
        let mut report = unreadable_file(kind, std::io::Error::other("nothing was read"));
        report.verdict = Verdict::Whole;
        report.findings.clear();
        let said = self.numbers.get(path).map(|(key, _)| key.clone());
        report.facts.torch = Some(TorchFacts {
            keys: ["model".to_owned(), "optimizer".to_owned()]
                .into_iter()
                .chain(said)
                .collect(),
            numbers: self.numbers.get(path).cloned().into_iter().collect(),
            ..TorchFacts::default()
        });
        report
    }
}

/// Codes of the findings that condemn.
pub(crate) fn codes(summary: &CheckpointSummary) -> Vec<&str> {
    let errors = summary.findings.iter().filter(|f| f.effect() != Verdict::Whole);
    errors.map(|f| f.code.as_ref()).collect()
}
