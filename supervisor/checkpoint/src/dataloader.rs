//! Checks a dataloader's state in a separate pickle, which no checksum covers.
//!
//! torchdata always writes the same few keys, so a missing one was changed. Their values have fixed types and depend on each other. Other
//! loaders have other keys, which are not checked.

use crate::pickle::{PickleHeap, PickleValue};
use supervise_core::checkpoint::{Finding, Verdict};

#[derive(Clone, Copy)]
enum LoaderValue {
    Any,
    Count,
    Flag,
    /// A dict or `None`.
    Dict,
    /// A number or `None`.
    MaybeCount,
}
use LoaderValue::*;

/// Keys of a loader without workers.
const ALONE: &[(&str, LoaderValue)] = &[
    ("_index_sampler_state", Any),
    ("_sampler_iter_state", Any),
    ("_sampler_iter_yielded", Count),
    ("_num_yielded", Count),
    ("_IterableDataset_len_called", MaybeCount),
    ("_shared_seed", MaybeCount),
    ("fetcher_state", Dict),
    ("dataset_state", Any),
    ("_iterator_finished", Flag),
];
/// Keys of a loader with workers, and of its snapshot.
const WORKERS: &[(&str, LoaderValue)] = &[
    ("_snapshot", Any),
    ("_steps_since_snapshot", Count),
    ("_iterator_finished", Flag),
];
const SNAPSHOT: &[(&str, LoaderValue)] = &[
    ("_snapshot_step", Count),
    ("_last_yielded_worker_id", Count),
    ("_main_snapshot", Any),
    ("_worker_snapshots", Any),
];
/// Keys of sampler states: batching, shuffling, and distributed samplers.
const SAMPLER: &[&str] = &[
    "samples_yielded",
    "sampler_state",
    "sampler_iter_state",
    "yielded",
    "generator",
];
/// No batch count is larger.
const MOST: u64 = 1 << 40;
/// States of a list that are checked.
const STATES: usize = 65_536;

pub(crate) fn check(heap: &PickleHeap, root: PickleValue, findings: &mut Vec<Finding>) {
    let states = heap.items(root).unwrap_or_default();
    let all = states
        .iter()
        .take(STATES)
        .chain(heap.pairs(root).is_some().then_some(&root));
    let mut counts = Vec::new();
    for (rank, state) in all.enumerate() {
        if let Some(wrong) = wrong(heap, *state) {
            let detail = format!("the state of the dataloader of process {rank} {wrong}");
            findings.push(Finding::error("loader_state", Verdict::Damaged, detail));
            return;
        }
        counts.extend(crate::torch::batches(heap, *state));
    }
    if let (Some(first), Some(other)) = (counts.first(), counts.iter().find(|n| Some(*n) != counts.first())) {
        let detail =
            format!("one process has given out {first} batches, another {other}: they read their data in step");
        findings.push(Finding::warning("loaders_differ", detail));
    }
}

fn wrong(heap: &PickleHeap, state: PickleValue) -> Option<String> {
    // A state with most of these keys is torchdata's.
    let known = |keys: &[(&str, LoaderValue)]| keys.iter().filter(|(key, _)| heap.get(state, key).is_some()).count();
    let loader = known(ALONE).max(known(WORKERS));
    if loader < 2 {
        return None;
    }
    let keys = if known(ALONE) >= known(WORKERS) { ALONE } else { WORKERS };
    if let Some(wrong) = missing(heap, state, keys) {
        return Some(wrong);
    }
    match heap.get(state, "_snapshot") {
        Some(snapshot) => missing(heap, snapshot, SNAPSHOT).or_else(|| {
            let main = heap.get(snapshot, "_main_snapshot")?;
            sampler(heap, heap.get(main, "_sampler_iter_state")?, None)
        }),
        None => alone(heap, state),
    }
}

fn missing(heap: &PickleHeap, state: PickleValue, keys: &[(&str, LoaderValue)]) -> Option<String> {
    for (key, holds) in keys {
        let Some(value) = heap.get(state, key) else {
            return Some(format!("has no `{key}`"));
        };
        let count = |v| heap.uint(v).is_some_and(|n| n <= MOST);
        let right = match (*holds, value) {
            (Any, _) | (MaybeCount | Dict, PickleValue::None) | (Flag, PickleValue::Bool(_)) => true,
            (Count, v) => count(v),
            (MaybeCount, v) => heap.uint(v).is_some(),
            (Dict, v) => heap.pairs(v).is_some(),
            (Flag, _) => false,
        };
        if !right {
            return Some(format!("says of `{key}` what it cannot be"));
        }
    }
    None
}

/// A sampler yields a batch each time the loader does; each batch has at least one sample.
fn alone(heap: &PickleHeap, state: PickleValue) -> Option<String> {
    let count = |key| heap.get(state, key).and_then(|v| heap.uint(v));
    let (given, drawn) = (count("_num_yielded")?, count("_sampler_iter_yielded")?);
    // The end of an iterable shows only after its index was drawn.
    if drawn < given || drawn > given.saturating_add(1) {
        return Some(format!("has given out {given} batches, and its sampler {drawn}"));
    }
    ["_sampler_iter_state", "_index_sampler_state"]
        .iter()
        .find_map(|key| sampler(heap, heap.get(state, key)?, Some(given)))
}

fn sampler(heap: &PickleHeap, state: PickleValue, batches: Option<u64>) -> Option<String> {
    let pairs = heap.pairs(state)?;
    for (key, value) in pairs {
        let key = heap.str(*key)?;
        let near = |known: &&&str| {
            let apart = known.bytes().zip(key.bytes()).filter(|(a, b)| a != b).count();
            known.len() == key.len() && apart == 1 && heap.get(state, known).is_none()
        };
        if let Some(known) = SAMPLER.iter().find(near) {
            return Some(format!(
                "has `{}` where `{known}` is missing: a byte was changed",
                crate::raw::shown(&key)
            ));
        }
        if key == "samples_yielded" {
            let Some(samples) = heap.uint(*value).filter(|n| *n <= MOST) else {
                return Some("says of `samples_yielded` what it cannot be".to_owned());
            };
            if batches.is_some_and(|b| samples < b || b == 0 && samples > 0) {
                return Some(format!(
                    "has given out {samples} samples in {} batches",
                    batches.unwrap_or(0)
                ));
            }
        }
    }
    None
}
