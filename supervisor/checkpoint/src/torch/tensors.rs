//! Lists tensors: walks the values, names each tensor by its path and records where its elements are.
//!
//! Values may be shared and may contain themselves, so the walk counts its steps and its depth.

use super::TorchStorage;
use super::storages::reference;
use crate::dtype::Dtype;
use crate::limits::InspectLimits;
use crate::pickle::{PickleCall, PickleHeap, PickleObject, PickleValue};
use crate::raw::shown;
use std::collections::HashMap;
use supervise_core::checkpoint::{Finding, Verdict};

/// Longest key used in a name, and longest name, in bytes.
const KEY: usize = 200;
const NAME: usize = 1000;
/// The most dimensions of a tensor or mesh.
const DIMS: usize = 64;

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchTensor {
    /// Dict keys and list indices, joined by dots.
    pub name: String,
    /// The element type, if the file shows it.
    pub dtype: Option<Dtype>,
    /// Shape in this file (the local part of a distributed tensor).
    pub shape: Vec<u64>,
    /// Strides in elements.
    pub stride: Vec<u64>,
    pub storage: Option<String>,
    /// Offset in the storage, in elements.
    pub offset: u64,
    pub placement: Option<Placement>,
}

impl TorchTensor {
    /// Returns the number of elements in this file.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, d| n.saturating_mul(*d))
    }

    /// Elements of the storage up to the last one it uses.
    fn reach(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let far = self
            .shape
            .iter()
            .zip(&self.stride)
            .try_fold(self.offset, |at, (n, step)| at.checked_add((n - 1).checked_mul(*step)?))?;
        far.checked_add(1)
    }
}

/// How a distributed tensor is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Shape of the whole tensor.
    pub global: Vec<u64>,
    /// One word per mesh dimension: `Shard(0)`, `Replicate`, `Partial`.
    pub words: Vec<String>,
    pub mesh: Vec<u64>,
    /// The rank that wrote the file, if the mesh shows it.
    pub rank: Option<u64>,
}

pub(super) struct TensorList {
    pub(super) tensors: Vec<TorchTensor>,
    pub(super) count: u64,
    pub(super) elements: u64,
    pub(super) cut: bool,
}

pub(super) fn list(heap: &PickleHeap, root: PickleValue, limits: &InspectLimits) -> TensorList {
    let out = TensorList {
        tensors: Vec::new(),
        count: 0,
        elements: 0,
        cut: false,
    };
    // Tensors are not entered, so a walk without repetition visits each object at most once.
    let most = limits.walk_values.min(10_000 + 2 * heap.objects().len() as u64);
    let mut walk = Walk {
        heap,
        limits,
        most,
        steps: 0,
        room: limits.memory.saturating_sub(heap.taken()),
        path: String::new(),
        out,
    };
    walk.visit(root, 0);
    walk.out
}

struct Walk<'h> {
    heap: &'h PickleHeap,
    limits: &'h InspectLimits,
    most: u64,
    steps: u64,
    /// Bytes that the list may still take.
    room: usize,
    path: String,
    out: TensorList,
}

impl Walk<'_> {
    fn visit(&mut self, value: PickleValue, depth: u32) {
        let heap = self.heap;
        let Some(object) = heap.object(value) else {
            return;
        };
        self.steps += 1;
        if self.steps > self.most || depth > self.limits.walk_depth {
            self.out.cut = true;
            return;
        }
        match object {
            PickleObject::Tuple(items) | PickleObject::FrozenSet(items) => self.numbered(items, depth),
            PickleObject::List(items) | PickleObject::Set(items) => self.numbered(items, depth),
            PickleObject::Dict(pairs) => self.named(pairs, depth),
            PickleObject::Persistent(_) => {}
            PickleObject::Call(call) => match tensor(heap, call, 0) {
                Some(found) => self.found(found),
                None => {
                    self.named(call.pairs(), depth);
                    self.numbered(call.items(), depth);
                    for part in [Some(call.args), call.state].into_iter().flatten() {
                        self.visit(part, depth + 1);
                    }
                }
            },
        }
    }

    /// One list may be shared a million times: every visit counts.
    fn is_spent(&mut self, values: usize) -> bool {
        self.heap.charge(values);
        self.out.cut |= self.heap.is_exhausted();
        self.heap.is_exhausted()
    }

    fn numbered(&mut self, items: &[PickleValue], depth: u32) {
        if self.is_spent(items.len()) {
            return;
        }
        for (n, item) in items.iter().enumerate() {
            if matches!(item, PickleValue::Object(_)) {
                self.below(&n.to_string(), *item, depth);
            }
        }
    }

    fn named(&mut self, pairs: &[(PickleValue, PickleValue)], depth: u32) {
        if self.is_spent(pairs.len()) {
            return;
        }
        for (key, value) in pairs {
            if matches!(value, PickleValue::Object(_)) {
                let key = key_text(self.heap, *key);
                self.below(&key, *value, depth);
            }
        }
    }

    fn below(&mut self, key: &str, value: PickleValue, depth: u32) {
        let len = self.path.len();
        if len + key.len() < NAME {
            if len > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
        }
        self.visit(value, depth + 1);
        self.path.truncate(len);
    }

    fn found(&mut self, mut tensor: TorchTensor) {
        self.out.count += 1;
        self.out.elements = self.out.elements.saturating_add(tensor.elements());
        let weight = size_of::<TorchTensor>() + self.path.len() + 16 * tensor.shape.len() + 128;
        if self.out.tensors.len() < self.limits.tensors && weight <= self.room {
            self.room -= weight;
            tensor.name.clone_from(&self.path);
            self.out.tensors.push(tensor);
        } else {
            self.out.cut = true;
        }
    }
}

pub(super) fn key_text(heap: &PickleHeap, key: PickleValue) -> String {
    match key {
        PickleValue::Int(n) => n.to_string(),
        PickleValue::Str(t) => {
            let bytes = heap.bytes(t);
            String::from_utf8_lossy(bytes.get(..KEY).unwrap_or(bytes)).into_owned()
        }
        _ => "?".to_owned(),
    }
}

/// The tensor that a call rebuilds. `depth` counts nested wrappers.
fn tensor(heap: &PickleHeap, call: &PickleCall, depth: u32) -> Option<TorchTensor> {
    if depth > 4 {
        return None;
    }
    let callee = heap.global(call.callee)?;
    let args = heap.items(call.args)?;
    match (callee.module.as_str(), callee.name.as_str()) {
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3" | "_rebuild_qtensor") => {
            plain(heap, args)
        }
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
            tensor(heap, heap.call(*args.first()?)?, depth + 1)
        }
        ("torch._tensor", "_rebuild_from_type_v2") => {
            let [function, _, inner, state, ..] = *args else {
                return None;
            };
            let name = &heap.global(function)?.name;
            if name == "_rebuild_wrapper_subclass" {
                return distributed(heap, heap.items(inner)?, state, depth);
            }
            name.starts_with("_rebuild_")
                .then(|| plain(heap, heap.items(inner)?))
                .flatten()
        }
        _ => None,
    }
}

/// Arguments: storage, offset, size, stride, …, and in the third form the type.
fn plain(heap: &PickleHeap, args: &[PickleValue]) -> Option<TorchTensor> {
    let [storage, offset, size, stride, ..] = *args else {
        return None;
    };
    let PickleObject::Persistent(id) = heap.object(storage)? else {
        return None;
    };
    let (key, storage) = reference(heap, *id)?;
    let named = args
        .get(6)
        .and_then(|d| heap.global(*d))
        .and_then(|g| Dtype::from_torch(&g.name));
    Some(TorchTensor {
        name: String::new(),
        dtype: named.or_else(|| storage.dtype()),
        shape: numbers(heap, size)?,
        stride: numbers(heap, stride)?,
        storage: Some(key),
        offset: heap.uint(offset)?,
        placement: None,
    })
}

/// A tuple of numbers, or a `torch.Size` built from one.
fn numbers(heap: &PickleHeap, value: PickleValue) -> Option<Vec<u64>> {
    let items = match heap.call(value) {
        Some(call) => heap.items(*heap.items(call.args)?.first()?)?,
        None => heap.items(value)?,
    };
    items.iter().take(DIMS).map(|v| heap.uint(*v)).collect()
}

/// A tensor subclass around a local tensor: its attributes are in the state.
fn distributed(heap: &PickleHeap, outer: &[PickleValue], state: PickleValue, depth: u32) -> Option<TorchTensor> {
    let global = outer.get(2).and_then(|size| numbers(heap, *size)).unwrap_or_default();
    let parts = heap.items(state).unwrap_or_default();
    let attributes = std::iter::once(&state)
        .chain(parts)
        .find(|p| heap.get(**p, "_local_tensor").is_some());
    let Some(attributes) = attributes.copied() else {
        return sharded(heap, parts, global, depth);
    };
    let mut local = tensor(heap, heap.call(heap.get(attributes, "_local_tensor")?)?, depth + 1)?;
    let spec = heap.get(attributes, "_spec");
    let of = |new: &str, old: &str| {
        spec.and_then(|s| heap.attribute(s, new))
            .or_else(|| heap.get(attributes, old))
    };
    let (mesh, rank) = of("mesh", "_device_mesh")
        .map(|m| device_mesh(heap, m))
        .unwrap_or_default();
    let words = of("placements", "_placements")
        .and_then(|w| heap.items(w))
        .unwrap_or_default();
    let words = words.iter().take(DIMS).map(|w| word(heap, *w)).collect();
    local.placement = Some(Placement {
        global,
        words,
        mesh,
        rank,
    });
    Some(local)
}

/// The older sharded tensor (FSDP1): local shards, metadata of all shards, the process group, …
fn sharded(heap: &PickleHeap, parts: &[PickleValue], global: Vec<u64>, depth: u32) -> Option<TorchTensor> {
    let shard = *heap.items(*parts.first()?)?.first()?;
    let mut local = tensor(heap, heap.call(heap.attribute(shard, "tensor")?)?, depth + 1)?;
    let of_group = |name: &str| heap.uint(heap.attribute(*parts.get(2)?, name)?);
    local.placement = Some(Placement {
        global,
        words: vec!["Shard(0)".to_owned()],
        mesh: of_group("global_world_size").into_iter().collect(),
        rank: of_group("global_rank"),
    });
    Some(local)
}

fn word(heap: &PickleHeap, placement: PickleValue) -> String {
    let Some(call) = heap.call(placement) else {
        return "?".to_owned();
    };
    let name = heap
        .global(call.callee)
        .map_or_else(|| "?".to_owned(), |g| shown(&g.name));
    let dim = heap
        .attribute(placement, "dim")
        .or_else(|| heap.items(call.args)?.first().copied());
    match dim {
        Some(PickleValue::Int(dim)) => format!("{name}({dim})"),
        _ => name,
    }
}

/// Shape and own rank of a mesh, from its layout (newer torch) or from the tensor of ranks (older).
fn device_mesh(heap: &PickleHeap, mesh: PickleValue) -> (Vec<u64>, Option<u64>) {
    let of = |name: &str| heap.attribute(mesh, name);
    let shape = match of("_layout").and_then(|l| heap.attribute(l, "shape")) {
        Some(PickleValue::Int(n)) => u64::try_from(n).ok().map(|n| vec![n]),
        Some(shape) => numbers(heap, shape),
        None => of("mesh").and_then(|m| tensor(heap, heap.call(m)?, 0)).map(|t| t.shape),
    };
    let shape = shape.unwrap_or_default();
    let coordinate = || match (shape.len(), heap.items(of("_coordinate_on_dim")?)?) {
        (1, [at]) => heap.uint(*at),
        _ => None,
    };
    let rank = of("_rank").and_then(|r| heap.uint(r)).or_else(coordinate);
    (shape, rank)
}

/// Checks that every tensor is inside its storage.
pub(super) fn check(listed: &TensorList, storages: &HashMap<String, TorchStorage>, findings: &mut Vec<Finding>) {
    let outside = |t: &&TorchTensor| {
        let room = t.storage.as_ref().and_then(|k| storages.get(k)?.bytes());
        match (room, t.dtype, t.reach()) {
            (Some(room), Some(dtype), Some(reach)) => reach.saturating_mul(dtype.size()) > room,
            (Some(_), Some(_), None) => true,
            _ => false,
        }
    };
    let mut found = listed.tensors.iter().filter(outside);
    if let Some(first) = found.next() {
        let detail = format!(
            "{} tensors reach beyond their storage, the first is {}",
            1 + found.count(),
            shown(&first.name)
        );
        findings.push(Finding::error("tensor_range", Verdict::Damaged, detail));
    }
}
