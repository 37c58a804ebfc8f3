//! Checkpoint trees in memory: facts and reports as a scan and a proof would give them.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::{FileDetail, FileKind, FileReport, FloatTally};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Finding, Verdict};
use supervise_core::spec::RoleSpec;
use supervise_trainers::verl::Layouts;
use supervise_trainers::{AdapterPayload, ExpectedLayout, StepTracker, adapter};

/// Wall time at which everything is written, in nanoseconds.
const NOON: i64 = 1_800_000_000_000_000_000;

/// A checkpoint root.
#[derive(Default, Clone)]
pub(crate) struct Tree {
    facts: BTreeMap<Utf8PathBuf, FileFact>,
    reports: BTreeMap<Utf8PathBuf, FileReport>,
    worlds: BTreeMap<Utf8PathBuf, u32>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A whole PPO step.
    pub(crate) fn ppo(mut self, step: u64, world: u32, roles: &[&str]) -> Self {
        let dir = Utf8PathBuf::from(format!("global_step_{step}"));
        self.dir(&dir);
        for role in roles {
            self.role(&dir.join(role), world);
        }
        self.file(dir.join("data.pt"), 1500);
        self
    }

    /// A whole step of the SFT trainer.
    pub(crate) fn sft(mut self, step: u64, world: u32, parts: u32) -> Self {
        let dir = Utf8PathBuf::from(format!("global_step_{step}"));
        self.dir(&dir);
        self.role(&dir, world);
        for part in 0..parts {
            self.file(dir.join(format!("data_{part}.pt")), 1500);
        }
        self
    }

    pub(crate) fn dir(&mut self, path: impl Into<Utf8PathBuf>) {
        self.put(path.into(), EntryKind::Dir, 0);
    }

    /// The files of one role.
    pub(crate) fn role(&mut self, dir: &Utf8Path, world: u32) {
        self.dir(dir);
        for rank in 0..world {
            for (kind, size) in [("model", 400_000), ("optim", 800_000), ("extra_state", 15_000)] {
                self.file(dir.join(format!("{kind}_world_size_{world}_rank_{rank}.pt")), size);
            }
        }
        self.file(dir.join("fsdp_config.json"), 46);
        self.worlds.insert(dir.join("fsdp_config.json"), world);
        self.dir(dir.join("huggingface"));
        self.file(dir.join("huggingface/config.json"), 900);
        self.file(dir.join("huggingface/tokenizer.json"), 9000);
    }

    pub(crate) fn file(&mut self, path: impl Into<Utf8PathBuf>, size: u64) {
        self.put(path.into(), EntryKind::File, size);
    }

    pub(crate) fn with(mut self, path: &str, size: u64) -> Self {
        self.file(path, size);
        self
    }

    pub(crate) fn put(&mut self, path: Utf8PathBuf, kind: EntryKind, size: u64) {
        let ino = self.facts.len() as u64 + 100;
        let fact = FileFact {
            path: path.clone(),
            kind,
            size,
            mtime: NOON,
            ctime: NOON,
            dev: 7,
            ino,
            uid: 0,
        };
        self.facts.insert(path, fact);
    }

    /// Removes a path and all below it; at least something has to be there.
    pub(crate) fn without(mut self, path: &str) -> Self {
        let before = self.facts.len();
        self.facts.retain(|p, _| !p.starts_with(path));
        assert!(self.facts.len() < before, "{path} is not in the tree");
        self
    }

    /// Removes every path that holds this text.
    pub(crate) fn without_any(mut self, text: &str) -> Self {
        let before = self.facts.len();
        self.facts.retain(|p, _| !p.as_str().contains(text));
        assert!(self.facts.len() < before, "nothing with {text} is in the tree");
        self
    }

    pub(crate) fn change(mut self, path: &str, change: impl FnOnce(&mut FileFact)) -> Self {
        change(self.facts.get_mut(Utf8Path::new(path)).unwrap());
        self
    }

    /// Findings of a proof in a file.
    pub(crate) fn finds(mut self, path: &str, finding: Finding) -> Self {
        assert!(
            self.facts.contains_key(Utf8Path::new(path)),
            "{path} is not in the tree"
        );
        let mut report = whole(FileKind::of(path), None);
        report.add(finding);
        self.reports.insert(path.into(), report);
        self
    }

    /// `fsdp_config.json` says another world size.
    pub(crate) fn says_world(mut self, path: &str, world: u32) -> Self {
        self.worlds.insert(path.into(), world);
        self
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = &FileFact> {
        self.facts.values()
    }

    pub(crate) fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(expect);
        for fact in self.facts.values() {
            tracker.note(fact);
        }
        tracker
    }

    /// The reports that a proof of this step would bring.
    pub(crate) fn proof(&self, tracker: &dyn StepTracker, ckpt: &CkptId) -> BTreeMap<Utf8PathBuf, FileReport> {
        let needs = tracker.needs(ckpt, Depth::Structure);
        let report = |path: &Utf8PathBuf, kind| {
            self.reports
                .get(path)
                .cloned()
                .unwrap_or_else(|| whole(kind, self.worlds.get(path).copied()))
        };
        needs
            .into_iter()
            .map(|need| (need.path.clone(), report(&need.path, need.kind)))
            .collect()
    }

    /// Judges a step after a proof of it.
    pub(crate) fn judge(&self, expect: &ExpectedLayout, step: u64) -> CheckpointSummary {
        let mut tracker = self.tracker(expect);
        let ckpt = CkptId(format!("global_step_{step}").into());
        let reports = self.proof(&*tracker, &ckpt);
        tracker.judge(&ckpt, Depth::Structure, &reports)
    }

    /// Judges a step as `verify` does.
    pub(crate) fn verify(&self, step: u64) -> CheckpointSummary {
        self.judge(&ExpectedLayout::default(), step)
    }
}

/// The report of a file in which nothing was found.
pub(crate) fn whole(kind: FileKind, world_size: Option<u32>) -> FileReport {
    let facts = FileDetail {
        world_size,
        ..FileDetail::default()
    };
    FileReport {
        kind,
        verdict: Verdict::Whole,
        findings: Vec::new(),
        bytes: 1,
        proven: Depth::Structure,
        crc: None,
        facts,
        description: None,
        floats: FloatTally::default(),
    }
}

/// A run that saves everything.
pub(crate) fn run(sft: bool, world: u32, roles: &[&str]) -> ExpectedLayout {
    ExpectedLayout {
        roles: Some(roles.iter().map(|r| role(r)).collect()),
        world: Some(world),
        own: AdapterPayload::new(Layouts {
            sft: Some(sft),
            one_data_file: None,
        }),
        ..ExpectedLayout::default()
    }
}

/// A role that saves everything.
pub(crate) fn role(name: &str) -> RoleSpec {
    let contents: Vec<String> = ["model", "optimizer", "extra"].map(str::to_owned).to_vec();
    RoleSpec {
        name: name.to_owned(),
        save_contents: contents.clone(),
        load_contents: contents,
        load_wish: false,
        megatron: None,
        fsdp_size: None,
        sequence: None,
        keep: None,
    }
}

/// The codes of all findings, worst first.
pub(crate) fn codes(summary: &CheckpointSummary) -> Vec<&str> {
    summary.findings.iter().map(|f| &*f.code).collect()
}

/// The code of the finding that decided.
pub(crate) fn why(summary: &CheckpointSummary) -> &str {
    summary.why().map_or("", |f| &*f.code)
}
