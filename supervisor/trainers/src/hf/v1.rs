//! The files of a step written by LLaMA-Factory's own trainer (`USE_V1=1`, 0.9.5): it is not a `Trainer`, but its
//! steps have the same names. Source: `v1/core/utils/checkpoint.py`.

use super::groups::{PartFiles, StatePart, StepListing};
use super::names::{self, V1_COMPLETE, V1_DATA, V1_RNG, V1_STATE};
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{Finding, Verdict};

/// Directory of the weights, and of the optimizer.
const MODEL: &str = "model";
const OPTIMIZER: &str = "optimizer";
/// The optimizer of a run without FSDP.
pub(crate) const STATE_DICT: &str = "optimizer/state_dict.pt";

/// Keys of a file of random states.
const GENERATORS: [&str; 3] = ["python", "numpy", "torch"];

/// Recognizes this format by its marker, or by its position file next to files that `Trainer` never writes.
pub(crate) fn is_one(files: &StepListing<'_>) -> bool {
    let own = [V1_RNG, V1_DATA, MODEL];
    files.has(V1_COMPLETE) || files.has(V1_STATE) && !files.has(names::STATE) && own.iter().any(|d| files.has_dir(d))
}

/// Content of a whole file on which LLaMA-Factory would fail, or which it would mistake for something else: a rank's
/// files have the same name in both directories.
pub(crate) fn odd_content(path: &str, report: &FileReport) -> Option<Finding> {
    let damage = |detail: &str| Some(Finding::error("other_content", Verdict::Damaged, detail.to_owned()));
    if path == V1_STATE {
        let lacks = report.facts.trainer_state.is_some_and(|state| state.lacks_epoch);
        return lacks.then(|| damage("it names no epoch: every resume from here would fail"))?;
    }
    let keys = &report.facts.torch.as_ref()?.keys;
    let is_rng = GENERATORS.iter().all(|name| keys.iter().any(|key| key == name));
    match path.split_once('/')?.0 {
        V1_RNG if !is_rng => damage("it does not hold the random states of python, numpy and torch"),
        V1_DATA if is_rng => damage("it holds random states, and no position in the data"),
        _ => None,
    }
}

pub(crate) fn sort(files: &StepListing<'_>) -> (BTreeMap<StatePart, PartFiles>, BTreeSet<u32>) {
    let mut groups: BTreeMap<StatePart, PartFiles> = BTreeMap::new();
    if files.has(V1_STATE) {
        groups
            .entry(StatePart::State)
            .or_default()
            .add(V1_STATE, FileKind::TrainerState);
    }
    if files.has(names::SCHEDULE) {
        groups
            .entry(StatePart::Schedule)
            .or_default()
            .add(names::SCHEDULE, FileKind::TorchZip);
    }
    let kind = set::recognize(files.in_dir(MODEL).map(|(name, _)| name));
    if let Some(kind @ (SetKind::Dcp | SetKind::Weights)) = kind {
        groups
            .entry(StatePart::Weights)
            .or_default()
            .add_set(MODEL, kind, files);
    }
    if files.has(STATE_DICT) {
        groups
            .entry(StatePart::Optimizer)
            .or_default()
            .add(STATE_DICT, FileKind::TorchZip);
    } else if set::recognize(files.in_dir(OPTIMIZER).map(|(name, _)| name)) == Some(SetKind::Dcp) {
        groups
            .entry(StatePart::Optimizer)
            .or_default()
            .add_set(OPTIMIZER, SetKind::Dcp, files);
    }
    let mut ranks = |dir: &str, what: StatePart| {
        let names = files
            .in_dir(dir)
            .filter_map(|(name, _)| Some((name, names::file_rank(name)?)));
        let found: BTreeMap<u32, &str> = names.map(|(name, rank)| (rank, name)).collect();
        for name in found.values() {
            groups
                .entry(what)
                .or_default()
                .add(&format!("{dir}/{name}"), FileKind::TorchZip);
        }
        found.into_keys().collect::<BTreeSet<u32>>()
    };
    let (rng, data) = (ranks(V1_RNG, StatePart::Rng), ranks(V1_DATA, StatePart::Data));
    if let Some(rank) = rng.symmetric_difference(&data).next() {
        let (what, lacks, has) = match rng.contains(rank) {
            true => (StatePart::Data, V1_DATA, V1_RNG),
            false => (StatePart::Rng, V1_RNG, V1_DATA),
        };
        let detail = format!("rank {rank} has no file, and it has one in {has}");
        let finding = Finding::error("rng_missing", Verdict::Incomplete, detail);
        let finding = finding.in_file(format!("{lacks}/rank_{rank}.pt"));
        groups.entry(what).or_default().findings.push(finding);
    }
    (groups, rng)
}
