//! What of a table has no checksum and can still be checked: classes, words and names that torch spells in one way only.
//!
//! torch imports every class of a table when it reads it, so a name that is not torch's, or not in the version that
//! loads, ends the load. Which of both it is cannot be told here: the verdict is unknown, not damaged.

use super::metadata::{Reading, damaged};
use crate::pickle::danger::{self, Class};
use crate::pickle::{Heap, Pickle, Value, shown};
use std::collections::HashSet;
use supervise_core::checkpoint::{Finding, Verdict};

/// Attributes of all classes of a table, in every version since torch 2.0.
const ATTRIBUTES: &str = "state_dict_metadata planner_data storage_data storage_meta version mcore_data \
    properties size chunks offsets sizes fqn offset index relative_path length transform_descriptors \
    dtype layout requires_grad memory_format pin_memory checkpoint_id save_id load_id modules";
/// Layouts of tensors.
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
/// Memory formats, by number.
const FORMATS: u64 = 3;
/// Properties of a tensor.
const PROPERTIES: usize = 5;
/// Bytes that the name of one value takes in a set of them.
const WEIGHT: usize = 48;
/// Bytes of a name.
const NAME: usize = 4096;

/// Imports that no table of torch or Megatron has.
pub(super) fn classes(pickle: &Pickle, findings: &mut Vec<Finding>) {
    let globals = pickle.heap.globals().iter();
    let mut strange = globals.filter(|g| danger::class(&g.module, &g.name, g.usage) == Class::Unfamiliar);
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

/// The first attribute of a state that no class of a table has.
pub(super) fn strange_attribute(heap: &Heap, pairs: &[(Value, Value)]) -> Option<String> {
    let known = |key: &Value| heap.str(*key).is_some_and(|k| ATTRIBUTES.split(' ').any(|a| a == k));
    let (key, _) = pairs.iter().find(|(key, _)| !known(key))?;
    Some(heap.str(*key).map_or_else(|| "no string".to_owned(), |k| shown(&k)))
}

/// What is wrong with the layout or the memory format among the properties of a tensor.
pub(super) fn properties(heap: &Heap, state: &[Value]) -> Option<&'static str> {
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

/// `planner_data` maps each name to the way through the nested dict that it was made of: a name is that way, joined by
/// dots. Planners that are not torch's keep other things there, which are not looked at.
pub(super) fn ways(reading: &mut Reading<'_>, planner: Value) -> Result<(), Box<Finding>> {
    let heap = reading.heap;
    let pairs = heap.pairs(planner).unwrap_or_default();
    let ways = pairs.iter().filter(|p| is_way(heap, **p)).count();
    if 2 * ways <= pairs.len() {
        return Ok(());
    }
    if ways < pairs.len() {
        let detail = format!(
            "{} of {} names have no way that they were made of",
            pairs.len() - ways,
            pairs.len()
        );
        return Err(damaged("dcp_names", detail));
    }
    let mut named: HashSet<&[u8]> = HashSet::new();
    let mut absent = None;
    for (key, way) in pairs {
        let (Value::Str(text), Some(parts)) = (*key, heap.items(*way)) else {
            continue;
        };
        let name = heap.bytes(text);
        if !joins(heap, name, parts) {
            let name = String::from_utf8_lossy(name);
            let detail = format!("the name {} is not the way that it was made of", shown(&name));
            return Err(damaged("dcp_names", detail));
        }
        reading.spend(WEIGHT)?;
        named.insert(name);
        if !std::str::from_utf8(name).is_ok_and(|n| reading.names.contains_key(n)) {
            absent.get_or_insert(name);
        }
    }
    let lacking = reading.names.keys().filter(|n| !named.contains(n.as_bytes())).min();
    let odd = absent.map(String::from_utf8_lossy);
    if let Some(name) = odd.as_deref().or(lacking.map(|n| &**n)) {
        let detail = format!(
            "planner_data and the values do not have the same names: {}",
            shown(name)
        );
        reading.said.add(Finding::error("dcp_names", Verdict::Unknown, detail));
    }
    Ok(())
}

fn is_way(heap: &Heap, (key, way): (Value, Value)) -> bool {
    let plain = |v: &Value| matches!(v, Value::Str(_) | Value::Int(_));
    // Only as many parts are looked at as the name has room for.
    let room = |t: crate::pickle::Text| t.len() + 1;
    matches!(key, Value::Str(t) if t.len() <= NAME && heap.items(way).is_some_and(|w| w.iter().take(room(t)).all(plain)))
}

/// Whether the parts with dots between them are the name.
fn joins(heap: &Heap, name: &[u8], parts: &[Value]) -> bool {
    let mut rest = name;
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            match rest.strip_prefix(b".") {
                Some(after) => rest = after,
                None => return false,
            }
        }
        let after = match part {
            Value::Str(t) => rest.strip_prefix(heap.bytes(*t)),
            Value::Int(i) => rest.strip_prefix(i.to_string().as_bytes()),
            _ => None,
        };
        match after {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}
