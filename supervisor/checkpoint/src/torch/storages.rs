//! Compares the storages that the pickle refers to with the archive's entries.

use super::EntryIndex;
use crate::device::is_location;
use crate::dtype::Dtype;
use crate::pickle::{ParsedPickle, PickleHeap, PickleObject, PickleValue};
use crate::raw::shown;
use std::collections::HashMap;
use supervise_core::checkpoint::{Finding, Verdict};

/// The most findings of one kind per file.
const SAID: usize = 8;

/// Longest key or device name, in bytes.
const WORD: usize = 256;

/// A storage as the pickle refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchStorage {
    /// The class that names its type, such as `FloatStorage`.
    pub class: String,
    /// The device of its tensors when they were saved.
    pub location: String,
    /// Number of elements, as the class counts them.
    pub count: u64,
    /// The element type of a typed class; bytes for an untyped one; `None` for an unknown class.
    element: Option<Dtype>,
}

impl TorchStorage {
    /// Returns its required size in bytes, if the class is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.count.checked_mul(self.element?.size())
    }

    /// Returns the element type, if the class shows it.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        self.element.filter(|_| self.class != "UntypedStorage")
    }
}

pub(super) fn collect(pickle: &ParsedPickle, findings: &mut Vec<Finding>) -> HashMap<String, TorchStorage> {
    let heap = &pickle.heap;
    let mut out: HashMap<String, TorchStorage> = HashMap::new();
    let (mut bad, mut differ, mut places) = (0, 0, Vec::new());
    for object in heap.objects() {
        let PickleObject::Persistent(id) = object else {
            continue;
        };
        let Some((key, storage)) = reference(heap, *id) else {
            bad += 1;
            continue;
        };
        if !is_location(&storage.location) && !out.contains_key(&key) && places.len() < SAID {
            let detail = format!(
                "storage {} was saved on {}, no device that torch knows",
                shown(&key),
                shown(&storage.location)
            );
            places.push(Finding::error("unknown_device", Verdict::Unknown, detail));
        }
        if storage.element.is_none() {
            let detail = format!(
                "storage {} has the unknown class {}",
                shown(&key),
                shown(&storage.class)
            );
            findings.push(Finding::error("unknown_storage", Verdict::Unknown, detail));
        }
        match out.get(&key) {
            Some(first) if first.bytes() != storage.bytes() => differ += 1,
            Some(_) => {}
            None => drop(out.insert(key, storage)),
        }
    }
    findings.append(&mut places);
    if bad > 0 {
        let detail = format!("{bad} references of data.pkl are none that torch can follow");
        findings.push(Finding::error("bad_persistent_id", Verdict::Damaged, detail));
    }
    if differ > 0 {
        let detail = format!("{differ} storages are referred to with two different sizes");
        findings.push(Finding::error("storage_size", Verdict::Damaged, detail));
    }
    out
}

/// Parses a persistent ID.
pub(super) fn reference(heap: &PickleHeap, id: PickleValue) -> Option<(String, TorchStorage)> {
    let PickleObject::Tuple(parts) = heap.object(id)? else {
        return None;
    };
    let [kind, class, key, location, count] = **parts else {
        return None;
    };
    if word(heap, kind)? != b"storage" {
        return None;
    }
    let class = heap.global(class)?;
    let known = matches!(class.module.as_str(), "torch" | "torch.storage" | "torch.cuda");
    let element = Dtype::from_storage(&class.name).filter(|_| known);
    let storage = TorchStorage {
        class: class.name.clone(),
        location: String::from_utf8_lossy(word(heap, location)?).into_owned(),
        count: heap.uint(count)?,
        element,
    };
    let key = Some(key)
        .filter(|k| matches!(k, PickleValue::Str(_)))
        .and_then(|k| word(heap, k))?;
    Some((String::from_utf8_lossy(key).into_owned(), storage))
}

/// A short text, or bytes that torch reads as one. A long one is not torch's, and copying it for each of a million references would never
/// end.
fn word(heap: &PickleHeap, value: PickleValue) -> Option<&[u8]> {
    match value {
        PickleValue::Str(t) | PickleValue::Bytes(t) | PickleValue::ByteArray(t) if t.len() <= WORD => {
            Some(heap.bytes(t))
        }
        _ => None,
    }
}

/// Checks that every storage is present with its size, and reports entries that nothing refers to.
pub(super) fn compare(storages: &HashMap<String, TorchStorage>, names: &EntryIndex<'_>, findings: &mut Vec<Finding>) {
    let mut keys: Vec<&String> = storages.keys().collect();
    keys.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    for key in keys {
        let want = storages[key].bytes();
        match names.get(&format!("data/{key}")) {
            None => missing.push(key.as_str()),
            Some(e) if want.is_some_and(|w| w != e.size) => {
                let detail = format!(
                    "storage {} has {} bytes instead of {}",
                    shown(key),
                    e.size,
                    want.unwrap_or(0)
                );
                wrong.push(Finding::error("storage_size", Verdict::Damaged, detail).at(e.data));
            }
            Some(_) => {}
        }
    }
    if let Some(first) = missing.first() {
        let detail = format!(
            "{} of {} storages are missing, the first is data/{}: the save broke off",
            missing.len(),
            storages.len(),
            shown(first)
        );
        findings.push(Finding::error("storage_missing", Verdict::Incomplete, detail));
    }
    wrong.truncate(SAID);
    findings.append(&mut wrong);
    let mut spare: Vec<&str> = names.data_keys().filter(|k| !storages.contains_key(*k)).collect();
    spare.sort_unstable();
    if let Some(first) = spare.first() {
        let detail = format!(
            "{} entries belong to no tensor, the first is data/{}",
            spare.len(),
            shown(first)
        );
        findings.push(Finding::warning("storage_unreferenced", detail));
    }
}
