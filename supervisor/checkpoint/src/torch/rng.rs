//! States of random number generators: which exist, and whether each has its library's form.
//!
//! A state of another size does not load: torch, Python and numpy reject it. Unknown forms are not checked.

use super::TorchTensor;
use super::tensors::key_text;
use crate::dtype::Dtype;
use crate::pickle::{PickleHeap, PickleValue};
use crate::raw::shown;
use supervise_core::checkpoint::Finding;

/// The most generators to list.
const MOST: usize = 32;
/// Bytes of torch's generator state on the CPU, and on CUDA devices (seed and offset).
const TORCH_CPU: u64 = 5056;
const TORCH_CUDA: u64 = 16;
/// Words of the Mersenne Twister.
const WORDS: usize = 624;

/// Returns the names of the generators; a wrong form is a finding.
pub(super) fn look(
    heap: &PickleHeap,
    root: PickleValue,
    tensors: &[TorchTensor],
    findings: &mut Vec<Finding>,
) -> Vec<String> {
    let Some(states) = heap.get(root, "rng").and_then(|rng| heap.pairs(rng)) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for (key, state) in states.iter().take(MOST) {
        let name = key_text(heap, *key);
        let wrong = match name.as_str() {
            "cpu" => torch(tensors, "rng.cpu", TORCH_CPU),
            "cuda" => torch(tensors, "rng.cuda", TORCH_CUDA),
            "numpy" => numpy(heap, *state),
            "random" => python(heap, *state),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let detail = format!("the state of the random number generator {} {wrong}", shown(&name));
            findings.push(Finding::warning("rng_state", detail));
        }
        names.push(shown(&name));
    }
    names
}

fn torch(tensors: &[TorchTensor], name: &str, bytes: u64) -> Option<String> {
    let Some(t) = tensors.iter().find(|t| t.name == name) else {
        return Some("is no tensor".to_owned());
    };
    if t.dtype != Some(Dtype::U8) || t.shape != [bytes] {
        return Some(format!("is no list of {bytes} bytes, its shape is {:?}", t.shape));
    }
    None
}

/// `('MT19937', key, position, has_gauss, gauss)`, where the key is an array of 624 words.
fn numpy(heap: &PickleHeap, state: PickleValue) -> Option<String> {
    let items = heap.items(state)?;
    if items.first().and_then(|v| heap.str(*v)).as_deref() != Some("MT19937") {
        return None;
    }
    let [_, key, position, _, _] = *items else {
        return Some(format!("has {} parts instead of 5", items.len()));
    };
    if heap.uint(position).is_none_or(|p| p > WORDS as u64) {
        return Some("has a position outside its words".to_owned());
    }
    match array(heap, key) {
        Some((shape, bytes)) if shape != [WORDS as u64] || bytes.is_some_and(|b| b != 4 * WORDS) => {
            Some(format!("is no array of {WORDS} words, its shape is {shape:?}"))
        }
        _ => None,
    }
}

/// Shape and bytes of an array's state from BUILD: version, shape, type, order, bytes.
fn array(heap: &PickleHeap, value: PickleValue) -> Option<(Vec<u64>, Option<usize>)> {
    let [_, shape, _, _, bytes] = *heap.items(heap.call(value)?.state?)? else {
        return None;
    };
    let shape: Option<Vec<u64>> = heap.items(shape)?.iter().take(8).map(|d| heap.uint(*d)).collect();
    let bytes = match bytes {
        PickleValue::Bytes(text) | PickleValue::ByteArray(text) => Some(text.len()),
        // Old protocols write bytes as text, one character each.
        _ => heap
            .call(bytes)
            .and_then(|call| heap.str(*heap.items(call.args)?.first()?))
            .map(|text| text.chars().count()),
    };
    Some((shape?, bytes))
}

/// `(3, (624 words and a position), gauss)`.
fn python(heap: &PickleHeap, state: PickleValue) -> Option<String> {
    let [version, words, _] = *heap.items(state)? else {
        return Some("has not 3 parts".to_owned());
    };
    if heap.uint(version) != Some(3) {
        return None;
    }
    let Some(words) = heap.items(words) else {
        return Some("has no words".to_owned());
    };
    if words.len() != WORDS + 1
        || words
            .iter()
            .any(|w| heap.uint(*w).is_none_or(|w| w > u64::from(u32::MAX)))
    {
        return Some(format!("has {} words instead of {}", words.len(), WORDS + 1));
    }
    None
}
