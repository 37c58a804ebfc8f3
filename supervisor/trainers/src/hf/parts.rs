//! The files of one step by content, and what each part lacks by its file names.

use super::groups::{PartFiles, StatePart, StepListing};
use super::{names, v1};
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{Finding, Verdict};

/// Suffix of a directory that DeepSpeed converted for another number of ranks.
const UNIVERSAL: &str = "_universal";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HfSaveFormat {
    /// Weights in the files that `from_pretrained` reads, the optimizer in one file.
    Plain,
    /// FSDP's distributed checkpoints.
    Fsdp,
    /// DeepSpeed's directory with its pointer.
    DeepSpeed,
    /// One file per rank: we do not know which of them belong together.
    LocalShards,
    V1,
    /// `save_state` of accelerate, called by the user's program.
    Accelerate,
}

#[derive(Debug)]
pub(crate) struct HfStepParts {
    pub(crate) form: HfSaveFormat,
    pub(crate) groups: BTreeMap<StatePart, PartFiles>,
    /// Ranks whose random states exist; only rank 0 for a single-process run.
    pub(crate) ranks: BTreeSet<u32>,
    pub(crate) one_process: bool,
    /// A save on demand is unfinished.
    pub(crate) sentinel: bool,
    pub(crate) tag: Option<String>,
}

impl HfStepParts {
    pub(crate) fn of(files: &StepListing<'_>) -> Self {
        let dirs = files.dirs();
        let fsdp = |dir: &&str| names::is_fsdp_dir(dir, "pytorch_model_fsdp");
        let of_accelerate = |(name, _): (&str, u64)| names::is_of_accelerate(name);
        let form = if !files.has(names::STATE) && files.in_dir("").any(of_accelerate) {
            HfSaveFormat::Accelerate
        } else if v1::is_one(files) {
            HfSaveFormat::V1
        } else if files.has(names::LATEST) || dirs.iter().any(|d| d.starts_with("global_step")) {
            HfSaveFormat::DeepSpeed
        } else if dirs.iter().any(fsdp) {
            HfSaveFormat::Fsdp
        } else if files.in_dir("").any(|(name, _)| names::is_local_shard(name)) {
            HfSaveFormat::LocalShards
        } else {
            HfSaveFormat::Plain
        };
        let mut parts = Self {
            form,
            groups: BTreeMap::new(),
            ranks: files.in_dir("").filter_map(|(name, _)| names::rng_rank(name)).collect(),
            one_process: files.has(names::RNG),
            sentinel: files.has(names::SENTINEL),
            tag: None,
        };
        if form == HfSaveFormat::V1 {
            (parts.groups, parts.ranks) = v1::sort(files);
            return parts;
        }
        parts.single(files);
        parts.weights(files, &dirs);
        parts.optimizer(files, &dirs);
        if form == HfSaveFormat::DeepSpeed {
            parts.deepspeed(files, &dirs);
        }
        parts
    }

    /// Returns true if nothing that `Trainer` writes exists.
    pub(crate) fn is_foreign(&self) -> bool {
        self.groups.is_empty() && self.form == HfSaveFormat::Plain && !self.sentinel
    }

    pub(crate) fn has(&self, what: StatePart) -> bool {
        self.groups.get(&what).is_some_and(|g| !g.is_empty())
    }

    /// Ranks that saved; `None` if there are no random states.
    pub(crate) fn world(&self) -> Option<u32> {
        let numbered = self.ranks.last().map(|last| last.saturating_add(1));
        numbered.or(self.one_process.then_some(1))
    }

    pub(crate) fn group(&mut self, what: StatePart) -> &mut PartFiles {
        self.groups.entry(what).or_default()
    }

    fn single(&mut self, files: &StepListing<'_>) {
        for (what, name, kind) in [
            (StatePart::State, names::STATE, FileKind::TrainerState),
            (StatePart::Schedule, names::SCHEDULE, FileKind::TorchZip),
            (StatePart::Scaler, names::SCALER, FileKind::TorchZip),
            (StatePart::Rng, names::RNG, FileKind::TorchZip),
            (StatePart::Rollout, names::ROLLOUT, FileKind::Json),
            (StatePart::Entropy, names::ENTROPY, FileKind::Json),
        ] {
            if files.has(name) {
                self.group(what).add(name, kind);
            }
        }
        for (name, _) in files.in_dir("").filter(|(n, _)| names::rng_rank(n).is_some()) {
            self.group(StatePart::Rng).add(name, FileKind::TorchZip);
        }
    }

    fn weights(&mut self, files: &StepListing<'_>, dirs: &BTreeSet<&str>) {
        let is_set = |(name, _): (&str, u64)| set::recognize(std::iter::once(name)) == Some(SetKind::Weights);
        if files.in_dir("").any(is_set) {
            self.group(StatePart::Weights).add_set("", SetKind::Weights, files);
        }
        if files.has("adapter_model.bin") {
            self.group(StatePart::Weights)
                .add("adapter_model.bin", FileKind::TorchZip);
        }
        for dir in dirs {
            if names::is_fsdp_dir(dir, "pytorch_model_fsdp") {
                self.group(StatePart::Weights).add_set(dir, SetKind::Dcp, files);
            } else if files.has(&format!("{dir}/adapter_model.safetensors")) {
                // Several adapters: each in its own directory.
                self.group(StatePart::Weights).add_set(dir, SetKind::Weights, files);
            }
        }
    }

    fn optimizer(&mut self, files: &StepListing<'_>, dirs: &BTreeSet<&str>) {
        for name in names::OPTIMIZERS.into_iter().filter(|n| files.has(n)) {
            self.group(StatePart::Optimizer).add(name, FileKind::TorchZip);
        }
        for dir in dirs.iter().filter(|d| names::is_fsdp_dir(d, "optimizer")) {
            self.group(StatePart::Optimizer).add_set(dir, SetKind::Dcp, files);
        }
    }

    /// The pointer is written before the ranks are finished: the number of random states says how many files they
    /// must have written.
    fn deepspeed(&mut self, files: &StepListing<'_>, dirs: &BTreeSet<&str>) {
        if files.has(names::LATEST) {
            self.group(StatePart::Weights).add(names::LATEST, FileKind::Text);
        } else {
            let lost = Finding::error(
                "latest_missing",
                Verdict::Incomplete,
                "DeepSpeed's pointer is not there: nothing would be loaded",
            );
            self.group(StatePart::Weights)
                .findings
                .push(lost.in_file(names::LATEST));
        }
        let mut steps: Vec<&&str> = dirs.iter().filter(|d| d.starts_with("global_step")).collect();
        // DeepSpeed's ds_to_universal puts its copy next to the original and does not change the pointer.
        if steps.len() > 1
            && let Some(copy) = steps.extract_if(.., |d| d.ends_with(UNIVERSAL)).next()
        {
            let detail = "a copy for another number of ranks: it is not loaded, and was not looked into";
            let note = Finding::note("deepspeed_universal", detail).in_file(*copy);
            self.group(StatePart::Weights).findings.push(note);
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
            self.group(StatePart::Weights)
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
                self.group(StatePart::Optimizer).add(&path, FileKind::TorchZip);
            } else if name.ends_with(".pt") {
                self.group(StatePart::Weights).add(&path, FileKind::TorchZip);
            }
        }
        let models = files.in_dir(dir).any(|(n, _)| n.ends_with("_model_states.pt"));
        if !models {
            let detail = "no file of model states is there";
            let finding = Finding::error("weights_missing", Verdict::Incomplete, detail);
            self.group(StatePart::Weights).findings.push(finding.in_file(*dir));
        }
        let world = self.world().unwrap_or(1);
        if optimizers < world {
            let detail = format!("{optimizers} of {world} ranks' optimizer states are there");
            let finding = Finding::error("optimizer_missing", Verdict::Incomplete, detail);
            self.group(StatePart::Optimizer).findings.push(finding.in_file(*dir));
        }
    }
}

/// `torch.save` writes the file's own name into it: another name means another file's content.
pub(super) fn misplaced(path: &str, report: &FileReport) -> Option<Finding> {
    let written_as = report.facts.torch.as_ref()?.archive.as_deref()?;
    let stem = camino::Utf8Path::new(path).file_stem()?;
    (written_as != "archive" && written_as != stem).then(|| {
        let detail = format!("the file was written as {written_as}: it holds what belongs there");
        Finding::error("misplaced", Verdict::Damaged, detail)
    })
}
