//! Cheap facts about one file, used to compare it with its neighbours and with the run.

use super::tensors::key_text;
use super::{Names, Placement, Storage, Tensor};
use crate::dtype::Dtype;
use crate::pickle::{Heap, Value, shown};
use crate::source::Reader;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use supervise_core::checkpoint::Finding;

/// Top-level keys kept.
const KEYS: usize = 32;
/// Optimizer steps read: one small read each.
const STEPS: usize = 4;

/// What a file written by `torch.save` tells beside its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchFacts {
    /// The folder inside the archive: the stem of the name the file was written under, or `archive` for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Version of the archive's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Byte order of the storages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byteorder: Option<String>,
    /// torch's own digest of names and checksums: equal in equal files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serialization_id: Option<String>,
    /// Keys of the outermost dict, the first few.
    pub keys: Vec<String>,
    /// Tensors.
    pub tensors: u64,
    /// Elements of all tensors in this file.
    pub elements: u64,
    /// The rank that wrote it, where a device mesh tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Ranks in the device mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<u64>,
    /// Distinct step counts that the optimizer keeps, from the first few parameters.
    pub optimizer_steps: Vec<u64>,
    /// A learning-rate schedule is there and not empty.
    pub has_lr_scheduler: bool,
    /// Steps the schedule has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_steps: Option<u64>,
    /// Which random number generators are there.
    pub rng: Vec<String>,
    /// Batches the dataloader has given out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
}

/// Fills in what the values tell.
pub(super) fn fill(facts: &mut TorchFacts, heap: &Heap, root: Value, tensors: &[Tensor]) {
    let pairs = heap.pairs(root).unwrap_or_default();
    facts.keys = pairs
        .iter()
        .take(KEYS)
        .map(|(k, _)| shown(&key_text(heap, *k)))
        .collect();
    let placements = || tensors.iter().filter_map(|t| t.placement.as_ref());
    let ranks = |p: &Placement| p.mesh.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
    facts.rank = placements().find_map(|p| p.rank);
    facts.mesh = placements().find(|p| !p.mesh.is_empty()).map(ranks);
    if let Some(schedule) = heap.get(root, "lr_scheduler") {
        facts.has_lr_scheduler = heap.pairs(schedule).is_some_and(|p| !p.is_empty());
        facts.scheduler_steps = heap.get(schedule, "last_epoch").and_then(|v| heap.uint(v));
    }
    if let Some(rng) = heap.get(root, "rng") {
        let kinds = heap.pairs(rng).unwrap_or_default();
        facts.rng = kinds
            .iter()
            .take(KEYS)
            .map(|(k, _)| shown(&key_text(heap, *k)))
            .collect();
    }
    facts.batches = batches(heap, root);
}

/// torchdata's loader counts batches since a snapshot (workers) or in all (none).
fn batches(heap: &Heap, root: Value) -> Option<u64> {
    if let Some(snapshot) = heap.get(root, "_snapshot") {
        let before = heap.uint(heap.get(snapshot, "_snapshot_step")?)?;
        let since = heap
            .get(root, "_steps_since_snapshot")
            .and_then(|v| heap.uint(v))
            .unwrap_or(0);
        return before.checked_add(since);
    }
    heap.uint(heap.get(root, "_num_yielded")?)
}

/// Reads the step counts of the first few parameters of an optimizer.
pub(super) fn optimizer_steps(
    file: &Reader<'_>,
    tensors: &[Tensor],
    storages: &HashMap<String, Storage>,
    names: &Names<'_>,
) -> Result<Vec<u64>, Box<Finding>> {
    let mut steps = BTreeSet::new();
    let is_step = |t: &&Tensor| t.name.starts_with("state.") && t.name.ends_with(".step") && t.elements() == 1;
    for t in tensors.iter().filter(is_step).take(STEPS) {
        let Some(key) = t.storage.as_ref() else {
            continue;
        };
        let Some(entry) = names.get(&format!("data/{key}")) else {
            continue;
        };
        let at = t
            .offset
            .checked_mul(4)
            .filter(|at| at.checked_add(4).is_some_and(|end| end <= entry.size));
        let (Some(at), Some(Dtype::F32), true) = (at, t.dtype, storages.contains_key(key)) else {
            continue;
        };
        let bytes = file.bytes(entry.data.saturating_add(at), 4)?;
        let value = f32::from_bits(crate::zip::le(&bytes, 0, 4) as u32);
        if value >= 0.0 && value.fract() == 0.0 && value < 1e15 {
            steps.insert(value as u64);
        }
    }
    Ok(steps.into_iter().collect())
}
