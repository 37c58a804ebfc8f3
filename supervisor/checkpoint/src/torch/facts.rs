//! Cheap facts about one file, used to compare it with its neighbours and with the run.

use super::tensors::key_text;
use super::{Placement, TorchTensor};
use crate::pickle::{PickleHeap, PickleValue};
use crate::raw::shown;
use serde::{Deserialize, Serialize};

/// Top-level keys kept.
const KEYS: usize = 8;

/// Statements of a file written by `torch.save` beside its tensors.
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
    /// Shape of the device mesh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mesh_shape: Vec<u64>,
    /// How much of the tensors that are spread over ranks is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<ShardTotals>,
    /// Distinct step counts that the optimizer keeps, from the first few and the last few parameters.
    pub optimizer_steps: Vec<u64>,
    /// A learning-rate schedule is there and not empty.
    pub has_lr_scheduler: bool,
    /// Steps the schedule has taken (`last_epoch` of torch, `num_steps` of Megatron).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_steps: Option<u64>,
    /// How often the schedule was called (`_step_count` of torch): one more than the steps, where it is called once per step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_calls: Option<u64>,
    /// How Megatron's distributed optimizer divided its state, which decides who can load it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer_sharding: Option<String>,
    /// Random number generators that are there.
    pub rng: Vec<String>,
    /// Batches the dataloader has given out in this epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// The dataloader's epoch is over: the next batch begins another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_over: Option<bool>,
    /// Names in the pickle that torch, numpy and plain data do not need: sorted, the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfamiliar: Vec<String>,
}

/// Tensors that are spread over ranks, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShardTotals {
    /// How many there are.
    pub tensors: u64,
    /// Their elements in this file.
    pub here: u64,
    /// Their elements in the files of all ranks together, copies counted as often as the mesh keeps them.
    pub everywhere: u64,
}

impl TorchFacts {
    /// Returns true if no key was left out of those that are kept.
    #[must_use]
    pub fn names_all_keys(&self) -> bool {
        self.keys.len() < KEYS
    }

    /// Facts that are only strange names; none without names.
    pub(crate) fn of_names(unfamiliar: Vec<String>) -> Option<Self> {
        (!unfamiliar.is_empty()).then(|| Self {
            unfamiliar,
            ..Self::default()
        })
    }
}

/// Fills in what the values tell.
pub(super) fn fill(facts: &mut TorchFacts, heap: &PickleHeap, root: PickleValue, tensors: &[TorchTensor]) {
    // Megatron puts what all ranks have in common into a list of its own.
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

/// None where a tensor does not say how it is spread.
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

/// torchdata's loader counts batches since a snapshot (workers) or in all (none).
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
