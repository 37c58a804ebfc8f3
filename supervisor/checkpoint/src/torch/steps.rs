//! The number of updates that an optimizer has counted.
//!
//! torch keeps a count per parameter, as a tensor of one element or as a number; Megatron keeps one for all, or one per group of
//! parameters. There are too many to read them all: the first few and the last few show whether they agree.

use super::{EntryIndex, TorchStorage, TorchTensor};
use crate::dtype::Dtype;
use crate::pickle::{PickleHeap, PickleValue};
use crate::source::{FileReader, ReadFault};
use std::collections::{BTreeSet, HashMap};

/// Counts to read at each end of the list: one small read each.
const ENDS: usize = 4;

pub(super) fn read(
    file: &FileReader<'_>,
    heap: &PickleHeap,
    root: PickleValue,
    tensors: &[TorchTensor],
    storages: &HashMap<String, TorchStorage>,
    names: &EntryIndex<'_>,
) -> Result<Vec<u64>, ReadFault> {
    let mut steps = BTreeSet::new();
    let counts: Vec<&TorchTensor> = tensors.iter().filter(|t| is_count(t)).collect();
    for t in ends(&counts) {
        let Some(entry) = t.storage.as_ref().filter(|key| storages.contains_key(*key)) else {
            continue;
        };
        let Some(entry) = names.get(&format!("data/{entry}")) else {
            continue;
        };
        let Some(dtype) = t.dtype else {
            continue;
        };
        let at = t.offset.checked_mul(dtype.size());
        let Some(at) = at.filter(|at| at.checked_add(dtype.size()).is_some_and(|end| end <= entry.size)) else {
            continue;
        };
        let bytes = file.bytes(entry.data.saturating_add(at), dtype.size() as usize)?;
        steps.extend(number(dtype, &bytes));
    }
    steps.extend(plain(heap, root));
    Ok(steps.into_iter().collect())
}

/// Whether this is a one-element tensor named `step` or `common_step` in an optimizer's state.
fn is_count(t: &TorchTensor) -> bool {
    let inside = t.name.starts_with("state.") || t.name.contains(".state.") || t.name.contains("param_groups.");
    inside && matches!(t.name.rsplit('.').next(), Some("step" | "common_step")) && t.elements() == 1
}

fn ends<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let last = all.len().saturating_sub(ENDS).max(ENDS.min(all.len()));
    all.iter().take(ENDS).chain(all.iter().skip(last))
}

fn number(dtype: Dtype, bytes: &[u8]) -> Option<u64> {
    let raw = crate::raw::le(bytes, 0, bytes.len().min(8));
    match dtype {
        Dtype::F32 => whole(f64::from(f32::from_bits(raw as u32))),
        Dtype::F64 => whole(f64::from_bits(raw)),
        Dtype::I64 => Some(raw).filter(|n| *n <= i64::MAX as u64),
        Dtype::I32 => Some(raw).filter(|n| *n <= i32::MAX as u64),
        _ => None,
    }
}

fn whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value.fract() == 0.0 && value < 1e15).then_some(value as u64)
}

/// Counts that are numbers in the pickle, in an optimizer that is the file or one of its keys.
fn plain(heap: &PickleHeap, root: PickleValue) -> Vec<u64> {
    let optimizers = [Some(root), heap.get(root, "optimizer")];
    let mut out = Vec::new();
    for optimizer in optimizers.into_iter().flatten() {
        let states: Vec<PickleValue> = heap
            .get(optimizer, "state")
            .and_then(|s| heap.pairs(s))
            .map(|pairs| pairs.iter().map(|(_, v)| *v).collect())
            .unwrap_or_default();
        let groups = heap
            .get(optimizer, "param_groups")
            .and_then(|g| heap.items(g))
            .unwrap_or_default();
        for holder in ends(&states).chain(ends(groups)) {
            out.extend(match heap.get(*holder, "step") {
                Some(PickleValue::Float(f)) => whole(f),
                Some(value) => heap.uint(value),
                None => None,
            });
        }
    }
    out
}
