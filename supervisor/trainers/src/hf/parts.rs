//! The files of one step by what they hold, and what each group of them lacks by its names.

use super::{names, v1};
use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport, Need};
use supervise_core::checkpoint::{Depth, Finding, Verdict};

/// A part of the state that is saved in files of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Position of the run: step, epoch, logs.
    State,
    /// Weights, or adapters.
    Weights,
    /// The optimizer's state.
    Optimizer,
    /// The learning-rate schedule.
    Schedule,
    /// The loss scale.
    Scaler,
    /// Random states of the ranks.
    Rng,
    /// Where the rollouts are, in a file of their own.
    Rollout,
    /// The entropy controller.
    Entropy,
    /// Position in the data, in files of their own.
    Data,
}

impl What {
    /// The word in a summary's contents.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Weights => "model",
            Self::Optimizer => "optimizer",
            Self::Schedule => "schedule",
            Self::Scaler => "scaler",
            Self::Rng => "rng",
            Self::Rollout => "rollout",
            Self::Entropy => "entropy",
            Self::Data => "data",
        }
    }
}

/// Files that belong together in one directory of the step; the empty name: the step itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    dir: String,
    kind: SetKind,
}

/// One part of the state in one step.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Files to be looked into, relative to the step.
    pub(crate) needs: Vec<Need>,
    sets: Vec<Set>,
    /// Evidence of its names alone.
    pub(crate) findings: Vec<Finding>,
}

impl Group {
    /// Nothing of it is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    pub(crate) fn add(&mut self, path: &str, kind: FileKind) {
        self.needs.push(Need::new(path, kind));
    }

    pub(crate) fn add_set(&mut self, dir: &str, kind: SetKind, files: &Files<'_>) {
        let needs = set::needs(kind, files.in_dir(dir).map(|(name, _)| name));
        self.needs
            .extend(needs.into_iter().map(|need| need.under(Utf8Path::new(dir))));
        let dir = dir.to_owned();
        self.sets.push(Set { dir, kind });
    }

    /// Names or files that show more when they are compared.
    pub(crate) fn compare(&self, files: &Files<'_>, reports: &BTreeMap<&str, &FileReport>) -> Vec<Finding> {
        let mut out = self.findings.clone();
        for found in &self.sets {
            out.extend(found.compare(self, files, reports));
        }
        out
    }

    /// How deep the least proven file was looked into; `None` where one was not.
    pub(crate) fn proven(&self, depth: Depth, reports: &BTreeMap<&str, &FileReport>) -> Option<Depth> {
        let of = |need: &Need| reports.get(need.path.as_str()).map(|r| r.proven.min(depth));
        self.needs
            .iter()
            .try_fold(depth, |least, need| Some(least.min(of(need)?)))
    }
}

impl Set {
    /// Verdict on the set's files together; what each is alone is told by its own report.
    fn compare(&self, group: &Group, files: &Files<'_>, reports: &BTreeMap<&str, &FileReport>) -> Vec<Finding> {
        let sizes: BTreeMap<String, u64> = files
            .in_dir(&self.dir)
            .map(|(name, size)| (name.to_owned(), size))
            .collect();
        let dir = Utf8Path::new(&self.dir);
        let inside = |path: &Utf8Path| {
            let name = path.strip_prefix(dir).ok()?.as_str();
            (!name.contains('/')).then(|| name.to_owned())
        };
        let own = group
            .needs
            .iter()
            .filter_map(|need| Some((inside(&need.path)?, (*reports.get(need.path.as_str())?).clone())));
        let own: BTreeMap<String, FileReport> = own.collect();
        let alone: Vec<&Finding> = own.values().flat_map(|r| &r.findings).collect();
        let found = set::judge(self.kind, &sizes, &own).findings;
        found
            .into_iter()
            .filter(|f| !alone.iter().any(|a| a.code == f.code && a.detail == f.detail))
            .map(|mut f| {
                f.file = f.file.map(|name| dir.join(name));
                f
            })
            .collect()
    }
}

/// Names and sizes of the regular files of a step.
#[derive(Debug, Default)]
pub(crate) struct Files<'a> {
    pub(crate) by_path: BTreeMap<&'a str, u64>,
}

impl<'a> Files<'a> {
    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// A directory of the step holds files.
    pub(crate) fn has_dir(&self, dir: &str) -> bool {
        self.in_dir(dir).next().is_some()
    }

    /// Files directly in a directory of the step, by name.
    pub(crate) fn in_dir(&self, dir: &str) -> impl Iterator<Item = (&'a str, u64)> {
        self.by_path.iter().filter_map(move |(path, size)| {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            (above == dir).then_some((name, *size))
        })
    }

    /// Directories directly in the step that hold files.
    fn dirs(&self) -> BTreeSet<&'a str> {
        let first = |path: &&'a str| path.split_once('/').map(|(dir, _)| dir);
        self.by_path.keys().filter_map(first).collect()
    }
}

/// End of the name of a directory that DeepSpeed made for another number of ranks.
const UNIVERSAL: &str = "_universal";

/// How a step was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Weights in the files that `from_pretrained` reads, the optimizer in one file.
    Plain,
    /// FSDP's distributed checkpoints.
    Fsdp,
    /// DeepSpeed's directory beneath its pointer.
    DeepSpeed,
    /// A file a rank: which of them belong together is not read here.
    LocalShards,
    /// LLaMA-Factory's own trainer.
    V1,
    /// `save_state` of accelerate, by a program of its own.
    Accelerate,
}

/// A step, sorted.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) form: Form,
    pub(crate) groups: BTreeMap<What, Group>,
    /// Ranks whose random states are there; a run of one process: rank 0 alone.
    pub(crate) ranks: BTreeSet<u32>,
    /// The random states are of a run with one process.
    pub(crate) one_process: bool,
    /// A save on demand was not finished.
    pub(crate) sentinel: bool,
    /// DeepSpeed's directory that was looked into.
    pub(crate) tag: Option<String>,
}

impl Parts {
    pub(crate) fn of(files: &Files<'_>) -> Self {
        let dirs = files.dirs();
        let fsdp = |dir: &&str| names::is_fsdp_dir(dir, "pytorch_model_fsdp");
        let of_accelerate = |(name, _): (&str, u64)| names::is_of_accelerate(name);
        let form = if !files.has(names::STATE) && files.in_dir("").any(of_accelerate) {
            Form::Accelerate
        } else if v1::is_one(files) {
            Form::V1
        } else if files.has(names::LATEST) || dirs.iter().any(|d| d.starts_with("global_step")) {
            Form::DeepSpeed
        } else if dirs.iter().any(fsdp) {
            Form::Fsdp
        } else if files.in_dir("").any(|(name, _)| names::is_local_shard(name)) {
            Form::LocalShards
        } else {
            Form::Plain
        };
        let mut parts = Self {
            form,
            groups: BTreeMap::new(),
            ranks: files.in_dir("").filter_map(|(name, _)| names::rng_rank(name)).collect(),
            one_process: files.has(names::RNG),
            sentinel: files.has(names::SENTINEL),
            tag: None,
        };
        if form == Form::V1 {
            v1::sort(&mut parts, files);
            return parts;
        }
        parts.single(files);
        parts.weights(files, &dirs);
        parts.optimizer(files, &dirs);
        if form == Form::DeepSpeed {
            parts.deepspeed(files, &dirs);
        }
        parts
    }

    /// Nothing that `Trainer` writes is there.
    pub(crate) fn is_foreign(&self) -> bool {
        self.groups.is_empty() && self.form == Form::Plain && !self.sentinel
    }

    pub(crate) fn has(&self, what: What) -> bool {
        self.groups.get(&what).is_some_and(|g| !g.is_empty())
    }

    /// Ranks that saved; none where no random states are there.
    pub(crate) fn world(&self) -> Option<u32> {
        let numbered = self.ranks.last().map(|last| last.saturating_add(1));
        numbered.or(self.one_process.then_some(1))
    }

    pub(crate) fn group(&mut self, what: What) -> &mut Group {
        self.groups.entry(what).or_default()
    }

    fn single(&mut self, files: &Files<'_>) {
        for (what, name, kind) in [
            (What::State, names::STATE, FileKind::TrainerState),
            (What::Schedule, names::SCHEDULE, FileKind::TorchZip),
            (What::Scaler, names::SCALER, FileKind::TorchZip),
            (What::Rng, names::RNG, FileKind::TorchZip),
            (What::Rollout, names::ROLLOUT, FileKind::Json),
            (What::Entropy, names::ENTROPY, FileKind::Json),
        ] {
            if files.has(name) {
                self.group(what).add(name, kind);
            }
        }
        for (name, _) in files.in_dir("").filter(|(n, _)| names::rng_rank(n).is_some()) {
            self.group(What::Rng).add(name, FileKind::TorchZip);
        }
    }

    fn weights(&mut self, files: &Files<'_>, dirs: &BTreeSet<&str>) {
        let is_set = |(name, _): (&str, u64)| set::recognise(std::iter::once(name)) == Some(SetKind::Weights);
        if files.in_dir("").any(is_set) {
            self.group(What::Weights).add_set("", SetKind::Weights, files);
        }
        if files.has("adapter_model.bin") {
            self.group(What::Weights).add("adapter_model.bin", FileKind::TorchZip);
        }
        for dir in dirs {
            if names::is_fsdp_dir(dir, "pytorch_model_fsdp") {
                self.group(What::Weights).add_set(dir, SetKind::Dcp, files);
            } else if files.has(&format!("{dir}/adapter_model.safetensors")) {
                // Several adapters: each in a directory of its own.
                self.group(What::Weights).add_set(dir, SetKind::Weights, files);
            }
        }
    }

    fn optimizer(&mut self, files: &Files<'_>, dirs: &BTreeSet<&str>) {
        for name in names::OPTIMIZERS.into_iter().filter(|n| files.has(n)) {
            self.group(What::Optimizer).add(name, FileKind::TorchZip);
        }
        for dir in dirs.iter().filter(|d| names::is_fsdp_dir(d, "optimizer")) {
            self.group(What::Optimizer).add_set(dir, SetKind::Dcp, files);
        }
    }

    /// The pointer is written before the ranks are done: what they must have written is counted by their random states.
    fn deepspeed(&mut self, files: &Files<'_>, dirs: &BTreeSet<&str>) {
        if files.has(names::LATEST) {
            self.group(What::Weights).add(names::LATEST, FileKind::Text);
        } else {
            let lost = Finding::error(
                "latest_missing",
                Verdict::Incomplete,
                "DeepSpeed's pointer is not there: nothing would be loaded",
            );
            self.group(What::Weights).findings.push(lost.in_file(names::LATEST));
        }
        let mut steps: Vec<&&str> = dirs.iter().filter(|d| d.starts_with("global_step")).collect();
        // DeepSpeed's ds_to_universal puts its copy beside what it was made from, and leaves the pointer as it is.
        if steps.len() > 1
            && let Some(copy) = steps.extract_if(.., |d| d.ends_with(UNIVERSAL)).next()
        {
            let detail = "a copy for another number of ranks: it is not loaded, and was not looked into";
            let note = Finding::note("deepspeed_universal", detail).in_file(*copy);
            self.group(What::Weights).findings.push(note);
        }
        let [dir] = steps.as_slice() else {
            let detail = format!(
                "{} directories of DeepSpeed are there, and one is expected",
                steps.len()
            );
            let verdict = if steps.is_empty() {
                Verdict::Incomplete
            } else {
                Verdict::Unknown
            };
            self.group(What::Weights)
                .findings
                .push(Finding::error("deepspeed_steps", verdict, detail));
            return;
        };
        self.tag = Some((**dir).to_owned());
        let mut optimizers = 0;
        for (name, _) in files.in_dir(dir) {
            let path = format!("{dir}/{name}");
            if name.ends_with("_optim_states.pt") {
                optimizers += 1;
                self.group(What::Optimizer).add(&path, FileKind::TorchZip);
            } else if name.ends_with(".pt") {
                self.group(What::Weights).add(&path, FileKind::TorchZip);
            }
        }
        let models = files.in_dir(dir).any(|(n, _)| n.ends_with("_model_states.pt"));
        if !models {
            let detail = "no file of model states is there";
            let finding = Finding::error("weights_missing", Verdict::Incomplete, detail);
            self.group(What::Weights).findings.push(finding.in_file(*dir));
        }
        let world = self.world().unwrap_or(1);
        if optimizers < world {
            let detail = format!("{optimizers} of {world} ranks' optimizer states are there");
            let finding = Finding::error("optimizer_missing", Verdict::Incomplete, detail);
            self.group(What::Optimizer).findings.push(finding.in_file(*dir));
        }
    }
}
