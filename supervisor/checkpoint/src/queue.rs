//! Files of a saved TransferQueue, and what they say about each other.

use crate::json;
use crate::limits::InspectLimits;
use crate::pickle::{PickleHeap, PickleValue};
use crate::source::FileReader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{Finding, Verdict};

/// The most units of a queue, and files of one unit, to check.
const MOST: usize = 1 << 20;

/// What one file of a saved queue says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueFacts {
    /// `metadata.json`: whether the content of the units was saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_saved: Option<bool>,
    /// `metadata.json`: the step, if the trainer gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// `storage_unit_info.json`: the file names of its units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<Vec<String>>,
    /// In a unit: its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// In a unit: the sizes of the files next to it, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub blobs: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Metadata {
    storage_saved: bool,
    #[serde(default)]
    user_metadata: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Unit {
    position: u32,
    storage_unit_id: String,
}

/// Parses `metadata.json`.
pub(crate) fn metadata(file: &FileReader<'_>, limits: &InspectLimits) -> Result<QueueFacts, Box<Finding>> {
    let said: Metadata = json::parse(&json::bytes(file, limits)?, limits)?;
    Ok(QueueFacts {
        storage_saved: Some(said.storage_saved),
        step: said
            .user_metadata
            .get("global_steps")
            .and_then(serde_json::Value::as_u64),
        ..QueueFacts::default()
    })
}

/// Parses `storage_unit_info.json`.
pub(crate) fn units(file: &FileReader<'_>, limits: &InspectLimits) -> Result<QueueFacts, Box<Finding>> {
    let said: Vec<Unit> = json::parse(&json::bytes(file, limits)?, limits)?;
    let wrong = |what: &str| Err(Box::new(Finding::error("transfer_queue_units", Verdict::Damaged, what)));
    let mut positions: Vec<u32> = said.iter().map(|u| u.position).collect();
    positions.sort_unstable();
    if said.is_empty() || !positions.iter().copied().eq((0..).take(said.len())) {
        return wrong("the positions of the units of storage are not 0, 1 and so on");
    }
    if said.iter().any(|u| !is_name(&u.storage_unit_id)) {
        return wrong("a unit of storage has a name that is none of a file");
    }
    let name = |u: &Unit| format!("su_{}_{}.pkl", u.position, u.storage_unit_id);
    Ok(QueueFacts {
        units: Some(said.iter().map(name).collect()),
        ..QueueFacts::default()
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && !text.contains(['/', '\0'])
}

/// Returns the facts of a pickle, if it is a storage unit.
pub(crate) fn unit(heap: &PickleHeap, root: PickleValue, findings: &mut Vec<Finding>) -> Option<QueueFacts> {
    let unit = heap.get(root, "storage_unit_id")?;
    heap.get(root, "field_data")?;
    let mut out = QueueFacts {
        unit: heap.str(unit).map(|text| text.into_owned()),
        ..QueueFacts::default()
    };
    let fields = heap.get(root, "ssd_index").and_then(|index| heap.pairs(index));
    for (_, entries) in fields.unwrap_or_default() {
        for (_, entry) in heap.pairs(*entries).unwrap_or_default() {
            let name = heap.get(*entry, "filename").and_then(|name| heap.str(name));
            let size = heap.get(*entry, "size_bytes").and_then(|size| heap.uint(size));
            match (name, size) {
                (Some(name), Some(size)) if is_name(&name) && out.blobs.len() < MOST => {
                    out.blobs.insert(name.into_owned(), size);
                }
                _ => {
                    let what = "an entry of its index names no file, or no size";
                    findings.push(Finding::error("transfer_queue_units", Verdict::Damaged, what));
                    return Some(out);
                }
            }
        }
    }
    Some(out)
}
