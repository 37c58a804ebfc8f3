//! The files of a step that LLaMA-Factory's own trainer wrote (`USE_V1=1`, 0.9.5): it is no `Trainer`, and its steps have the same names.
//! Source: `v1/core/utils/checkpoint.py`.

use super::names::{self, V1_COMPLETE, V1_DATA, V1_RNG, V1_STATE};
use super::parts::{Files, Group, Parts, What};
use std::collections::BTreeSet;
use supervise_checkpoint::FileKind;
use supervise_checkpoint::set::{self, SetKind};
use supervise_core::checkpoint::{Finding, Verdict};

/// Directory of the weights, and of the optimizer.
const MODEL: &str = "model";
const OPTIMIZER: &str = "optimizer";
/// The optimizer of a run without FSDP.
const STATE_DICT: &str = "optimizer/state_dict.pt";

/// A step has this form: its mark, or its position beside files that `Trainer` never writes.
pub(crate) fn is_one(files: &Files<'_>) -> bool {
    let own = [V1_RNG, V1_DATA, MODEL];
    files.has(V1_COMPLETE) || files.has(V1_STATE) && !files.has(names::STATE) && own.iter().any(|d| files.has_dir(d))
}

/// Sorts its files.
pub(crate) fn sort(parts: &mut Parts, files: &Files<'_>) {
    if files.has(V1_STATE) {
        parts.group(What::State).add(V1_STATE, FileKind::TrainerState);
    }
    if files.has(names::SCHEDULE) {
        parts.group(What::Schedule).add(names::SCHEDULE, FileKind::TorchZip);
    }
    let kind = set::recognise(files.in_dir(MODEL).map(|(name, _)| name));
    if let Some(kind @ (SetKind::Dcp | SetKind::Weights)) = kind {
        parts.group(What::Weights).add_set(MODEL, kind, files);
    }
    if files.has(STATE_DICT) {
        parts.group(What::Optimizer).add(STATE_DICT, FileKind::TorchZip);
    } else if set::recognise(files.in_dir(OPTIMIZER).map(|(name, _)| name)) == Some(SetKind::Dcp) {
        parts.group(What::Optimizer).add_set(OPTIMIZER, SetKind::Dcp, files);
    }
    for (dir, what) in [(V1_RNG, What::Rng), (V1_DATA, What::Data)] {
        add_ranks(parts.group(what), dir, files);
    }
    let ranks = |dir: &str| {
        files
            .in_dir(dir)
            .filter_map(|(name, _)| names::file_rank(name))
            .collect()
    };
    parts.ranks = ranks(V1_RNG);
    let of_data: BTreeSet<u32> = ranks(V1_DATA);
    let differ = parts.ranks.symmetric_difference(&of_data).next().copied();
    if let Some(rank) = differ {
        let has = parts.ranks.contains(&rank);
        let (what, dir) = if has {
            (What::Data, V1_DATA)
        } else {
            (What::Rng, V1_RNG)
        };
        let detail = format!(
            "rank {rank} has no file, and it has one in {}",
            if has { V1_RNG } else { V1_DATA }
        );
        let finding = Finding::error("rng_missing", Verdict::Incomplete, detail);
        parts
            .group(what)
            .findings
            .push(finding.in_file(format!("{dir}/rank_{rank}.pt")));
    }
}

fn add_ranks(group: &mut Group, dir: &str, files: &Files<'_>) {
    for (name, _) in files.in_dir(dir).filter(|(n, _)| names::file_rank(n).is_some()) {
        group.add(&format!("{dir}/{name}"), FileKind::TorchZip);
    }
}
