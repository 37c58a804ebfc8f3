//! Cheap facts about one file, for comparing it with its neighbours and with the run.

use super::tensors::key_text;
use super::{Placement, TorchTensor};
use crate::pickle::{PickleHeap, PickleValue};
use crate::raw::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Top-level keys kept.
const KEYS: usize = 8;

/// What a `torch.save` file says besides its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchFacts {
    /// The directory inside the archive: the stem of the original file name, or `archive` for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// The archive's format version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byteorder: Option<String>,
    /// torch's own digest of names and checksums, equal in equal files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serialization_id: Option<String>,
    /// The first few keys of the top-level dict.
    pub keys: Vec<String>,
    /// Whole numbers among these keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
    pub tensors: u64,
    /// Elements of all tensors in this file.
    pub elements: u64,
    /// The rank that wrote it, if a device mesh shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Ranks in the device mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mesh_shape: Vec<u64>,
    /// How much of the distributed tensors is in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<ShardTotals>,
    /// Distinct step counts of the optimizer, from the first few and the last few parameters.
    pub optimizer_steps: Vec<u64>,
    /// Whether there is a learning-rate schedule that is not empty.
    pub has_lr_scheduler: bool,
    /// Steps the schedule has taken (`last_epoch` of torch, `num_steps` of Megatron).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_steps: Option<u64>,
    /// Calls of the schedule (torch's `_step_count`): one more than the steps, if it is called once per step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_calls: Option<u64>,
    /// How Megatron's distributed optimizer divided its state, which decides who can load it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer_sharding: Option<String>,
    pub rng: Vec<String>,
    /// Batches that the dataloader yielded in this epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Whether the dataloader's epoch is over, so that the next batch begins another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_over: Option<bool>,
    /// Names in the pickle that torch, numpy and plain data do not need: sorted, the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfamiliar: Vec<String>,
}

/// Totals of the tensors distributed over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShardTotals {
    pub tensors: u64,
    /// Their elements in this file.
    pub here: u64,
    /// Their elements in the files of all ranks together, counting every copy in the mesh.
    pub everywhere: u64,
}

impl TorchFacts {
    /// Whether all top-level keys were kept.
    #[must_use]
    pub fn names_all_keys(&self) -> bool {
        self.keys.len() < KEYS
    }

    /// Facts with unfamiliar names only; `None` without names.
    pub(crate) fn of_names(unfamiliar: Vec<String>) -> Option<Self> {
        (!unfamiliar.is_empty()).then(|| Self {
            unfamiliar,
            ..Self::default()
        })
    }
}

pub(super) fn fill(facts: &mut TorchFacts, heap: &PickleHeap, root: PickleValue, tensors: &[TorchTensor]) {
    // Megatron puts the state common to all ranks into a list of its own.
    let root = match heap.items(root) {
        Some([only]) => *only,
        _ => root,
    };
    let pairs = heap.pairs(root).unwrap_or_default();
    facts.keys = pairs
        .iter()
        .take(KEYS)
        .map(|(k, _)| shown(&key_text(heap, *k)))
        .collect();
    let numbers = pairs.iter().take(KEYS);
    facts.numbers = numbers
        .filter_map(|(k, v)| Some((shown(&key_text(heap, *k)), heap.uint(*v)?)))
        .collect();
    let placements = || tensors.iter().filter_map(|t| t.placement.as_ref());
    let ranks = |p: &Placement| p.mesh.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
    facts.rank = placements().find_map(|p| p.rank);
    let on_mesh = placements().find(|p| !p.mesh.is_empty());
    facts.mesh = on_mesh.map(ranks);
    facts.mesh_shape = on_mesh.map(|p| p.mesh.clone()).unwrap_or_default();
    facts.spread = spread(tensors).filter(|_| facts.tensors == tensors.len() as u64);
    if let Some(schedule) = heap.get(root, "lr_scheduler") {
        facts.has_lr_scheduler = heap.pairs(schedule).is_some_and(|p| !p.is_empty());
        let counter = |name| heap.get(schedule, name).and_then(|v| heap.uint(v));
        facts.scheduler_steps = counter("last_epoch").or_else(|| counter("num_steps"));
        facts.scheduler_calls = counter("_step_count");
    }
    let inside = |dict, name| heap.get(heap.get(root, dict)?, name);
    facts.optimizer_sharding = inside("content_metadata", "distrib_optim_sharding_type")
        .or_else(|| inside("optimizer", "param_state_sharding_type"))
        .map(|name| shown(&key_text(heap, name)));
    facts.batches = batches(heap, root);
    facts.epoch_over = match heap.get(root, "_iterator_finished") {
        Some(PickleValue::Bool(over)) => Some(over),
        _ => None,
    };
}

/// `None` if a tensor does not say how it is distributed.
fn spread(tensors: &[TorchTensor]) -> Option<ShardTotals> {
    let mut out = ShardTotals::default();
    for (t, p) in tensors.iter().filter_map(|t| Some((t, t.placement.as_ref()?))) {
        if p.words.len() != p.mesh.len() {
            return None;
        }
        let copies = p.words.iter().zip(&p.mesh).filter(|(word, _)| !word.contains("Shard"));
        let all = p.global.iter().chain(copies.map(|(_, ranks)| ranks));
        let elements = all.fold(1, |n: u64, d| n.saturating_mul(*d));
        out.tensors += 1;
        out.here = out.here.saturating_add(t.elements());
        out.everywhere = out.everywhere.saturating_add(elements);
    }
    (out.tensors > 0).then_some(out)
}

/// torchdata's loader counts batches since a snapshot (with workers) or in total (without).
pub(crate) fn batches(heap: &PickleHeap, root: PickleValue) -> Option<u64> {
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
