//! Checks table contents without a checksum: class names, words and names that torch spells in only one way.
//!
//! torch imports every class of a table when it loads it, so a name that does not exist in the loading version makes the load fail.
//! Whether it was damaged or is from another version cannot be decided here: the verdict is unknown, not damaged.

use crate::pickle::danger::{self, GlobalClass};
use crate::pickle::{ParsedPickle, PickleHeap, PickleValue};
use crate::raw::shown;
use supervise_core::checkpoint::{Finding, Verdict};

/// Attributes of all table classes, in every version since torch 2.0.
const ATTRIBUTES: &str = "state_dict_metadata planner_data storage_data storage_meta version mcore_data \
    properties size chunks offsets sizes fqn offset index relative_path length transform_descriptors \
    dtype layout requires_grad memory_format pin_memory checkpoint_id save_id load_id modules";
const LAYOUTS: [&str; 8] = [
    "torch.strided",
    "torch.sparse_coo",
    "torch.sparse_csr",
    "torch.sparse_csc",
    "torch.sparse_bsr",
    "torch.sparse_bsc",
    "torch.jagged",
    "torch._mkldnn",
];
/// Memory formats are numbered below this.
const FORMATS: u64 = 3;
const PROPERTIES: usize = 5;

/// Reports imports that no table of torch or Megatron has.
pub(super) fn classes(pickle: &ParsedPickle, findings: &mut Vec<Finding>) {
    let globals = pickle.heap.globals().iter();
    let mut strange = globals.filter(|g| danger::class(&g.module, &g.name, g.usage) == GlobalClass::Unfamiliar);
    if let Some(first) = strange.next() {
        let detail = format!(
            "it names {}.{}, which no table of torch or Megatron does ({} such names): loading imports it",
            shown(&first.module),
            shown(&first.name),
            1 + strange.count()
        );
        let f = Finding::error("unknown_table_class", Verdict::Unknown, detail);
        findings.push(f.at(first.at));
    }
}

pub(super) fn strange_attribute(heap: &PickleHeap, pairs: &[(PickleValue, PickleValue)]) -> Option<String> {
    let known = |key: &PickleValue| heap.str(*key).is_some_and(|k| ATTRIBUTES.split(' ').any(|a| a == k));
    let (key, _) = pairs.iter().find(|(key, _)| !known(key))?;
    Some(heap.str(*key).map_or_else(|| "no string".to_owned(), |k| shown(&k)))
}

/// Returns what is wrong with the layout or memory format in a tensor's properties.
pub(super) fn properties(heap: &PickleHeap, state: &[PickleValue]) -> Option<&'static str> {
    for value in state.iter().take(PROPERTIES) {
        let Some(call) = heap.call(*value) else { continue };
        let class = heap.global(call.callee).map_or("", |g| g.name.as_str());
        let argument = heap.items(call.args).and_then(|a| a.first().copied());
        match (class, argument) {
            ("_get_layout", Some(word)) if heap.str(word).is_none_or(|w| !LAYOUTS.contains(&&*w)) => {
                return Some("has an unknown layout");
            }
            ("_MEM_FORMAT_ENCODING", Some(n)) if heap.uint(n).is_none_or(|n| n >= FORMATS) => {
                return Some("has an unknown memory format");
            }
            _ => {}
        }
    }
    None
}
