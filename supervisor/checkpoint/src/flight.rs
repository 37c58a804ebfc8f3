//! Parses PyTorch's flight recorder dumps (pickles and JSON) into [`RankTrace`]s, as data and within bounds.
//!
//! Tested with formats 2.9 (NCCL) and 2.10 (Gloo, torch 2.11). Fields missing in other 2.x formats are left out.

use crate::limits::InspectLimits;
use crate::pickle::{self, PickleHeap, PickleObject, PickleValue};
use serde_json::{Map, Number, Value as Json};
use std::collections::BTreeMap;
use supervise_core::observe::collectives::{CollectiveCall, ProcessGroup, RankTrace};

/// Largest dump of one rank, in bytes.
pub const RECORD: u64 = 16 << 20;
/// The most values to visit: strings and containers may be shared in a pickle.
const VALUES: usize = 2_000_000;
const DEPTH: usize = 12;
/// Calls kept per rank: this many of the newest finished ones, and as many unfinished ones.
const CALLS: usize = 512;
/// Longest name, in bytes.
const TEXT: usize = 200;
/// Stack frames to search, innermost first.
const FRAMES: usize = 40;

/// Parses the dump of a rank.
///
/// # Errors
/// Why it is not a dump, in words.
pub fn read(rank: u32, bytes: Vec<u8>) -> Result<RankTrace, String> {
    if bytes.is_empty() {
        return Err("the file is empty: its rank was ended while it wrote".to_owned());
    }
    let text = bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    let record = match text {
        true => serde_json::from_slice(&bytes).map_err(|e| format!("no JSON: {e}"))?,
        false => unpickled(bytes)?,
    };
    trace(rank, &record)
}

/// Converts a pickle's values. Nothing is called, and a recorded call is not a value.
fn unpickled(bytes: Vec<u8>) -> Result<Json, String> {
    let limits = InspectLimits {
        pickle_bytes: RECORD,
        ..InspectLimits::default()
    };
    let pickle = pickle::read(bytes, &limits);
    match (pickle.root, pickle.error) {
        (Some(root), None) => {
            let mut left = VALUES;
            json(&pickle.heap, root, DEPTH, &mut left).ok_or_else(|| "it holds more than a record does".to_owned())
        }
        (_, Some((at, why))) => Err(format!("at byte {at}: {why}")),
        (None, None) => Err("the pickle holds nothing".to_owned()),
    }
}

fn json(heap: &PickleHeap, value: PickleValue, depth: usize, left: &mut usize) -> Option<Json> {
    *left = left.checked_sub(1)?;
    let depth = depth.checked_sub(1)?;
    Some(match value {
        PickleValue::Bool(b) => Json::Bool(b),
        PickleValue::Int(n) => Json::Number(n.into()),
        PickleValue::Float(f) => Number::from_f64(f).map_or(Json::Null, Json::Number),
        PickleValue::Str(text) => {
            // Long strings count for more.
            *left = left.checked_sub(text.len() / 64)?;
            Json::String(heap.str(value)?.into_owned())
        }
        PickleValue::Object(_) => match heap.object(value)? {
            PickleObject::Tuple(items) => list(heap, items, depth, left)?,
            PickleObject::List(items) => list(heap, items, depth, left)?,
            PickleObject::Dict(pairs) => {
                let mut map = Map::new();
                for (key, value) in pairs {
                    let key = heap.str(*key)?.into_owned();
                    map.insert(key, json(heap, *value, depth, left)?);
                }
                Json::Object(map)
            }
            _ => Json::Null,
        },
        _ => Json::Null,
    })
}

fn list(heap: &PickleHeap, items: &[PickleValue], depth: usize, left: &mut usize) -> Option<Json> {
    let all: Option<Vec<Json>> = items.iter().map(|item| json(heap, *item, depth, left)).collect();
    all.map(Json::Array)
}

fn trace(rank: u32, record: &Json) -> Result<RankTrace, String> {
    let (Some(version), Some(entries)) = (text(record, "version"), record.get("entries").and_then(Json::as_array))
    else {
        return Err("it has no `version` and `entries`: no record of the flight recorder".to_owned());
    };
    if !version.starts_with("2.") {
        return Err(format!("its form {version} is not known (expected 2.x)"));
    }
    let mut kept = (0, 0);
    let mut calls: Vec<CollectiveCall> = entries.iter().rev().filter_map(call).collect();
    calls.retain(|call| {
        let of = if call.is_done { &mut kept.0 } else { &mut kept.1 };
        *of += 1;
        *of <= CALLS
    });
    calls.reverse();
    let mut groups = groups(record);
    for call in &calls {
        groups.entry(call.group.clone()).or_default();
    }
    for entry in entries {
        let desc = entry.pointer("/process_group/1").and_then(Json::as_str);
        if let (Some(group), Some(desc)) = (groups.get_mut(&name(entry)), desc)
            && group.desc.is_empty()
        {
            group.desc = short(desc);
        }
    }
    count(record, entries, &mut groups);
    Ok(RankTrace { rank, groups, calls })
}

fn text<'a>(of: &'a Json, key: &str) -> Option<&'a str> {
    of.get(key).and_then(Json::as_str)
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT)].to_owned()
}

fn groups(record: &Json) -> BTreeMap<String, ProcessGroup> {
    let all = record.get("pg_config").and_then(Json::as_object);
    let named = all.into_iter().flatten().filter(|(name, _)| !name.is_empty());
    named
        .map(|(name, config)| {
            let group = ProcessGroup {
                desc: short(text(config, "desc").unwrap_or_default()),
                ranks: ranks(config.get("ranks")),
                ..ProcessGroup::default()
            };
            (short(name), group)
        })
        .collect()
}

/// `"[0, 4]"`, or a list.
fn ranks(of: Option<&Json>) -> Vec<u32> {
    let number = |n: u64| u32::try_from(n).ok();
    match of {
        Some(Json::String(text)) => {
            let inner = text.trim_matches(['[', ']']);
            inner.split(',').filter_map(|n| n.trim().parse().ok()).collect()
        }
        Some(Json::Array(all)) => all.iter().filter_map(Json::as_u64).filter_map(number).collect(),
        _ => Vec::new(),
    }
}

/// Matches the groups' counters, which have rank-local numbers. The recorded calls identify them; if there are as many counters as groups
/// with numeric names, the order does, because groups get both in creation order.
fn count(record: &Json, entries: &[Json], groups: &mut BTreeMap<String, ProcessGroup>) {
    let Some(status) = record.get("pg_status").and_then(Json::as_object) else {
        return;
    };
    let mut named: BTreeMap<u64, String> = BTreeMap::new();
    for entry in entries {
        if let Some(id) = entry.get("pg_id").and_then(Json::as_u64) {
            named.insert(id, name(entry));
        }
    }
    let mut ids: Vec<u64> = status.keys().filter_map(|id| id.parse().ok()).collect();
    let mut names: Vec<(u64, &String)> = groups.keys().filter_map(|n| Some((n.parse().ok()?, n))).collect();
    ids.sort_unstable();
    names.sort_unstable();
    if ids.len() == names.len() && ids.len() == groups.len() {
        let by_order: BTreeMap<u64, String> = ids.iter().zip(&names).map(|(id, (_, n))| (*id, (*n).clone())).collect();
        if named.iter().all(|(id, name)| by_order.get(id) == Some(name)) {
            named = by_order;
        }
    }
    for (id, name) in named {
        let counters = status.get(&id.to_string());
        // -1: none yet.
        let counter = |key: &str| Some(u64::try_from(counters?.get(key)?.as_i64()?).unwrap_or_default());
        if let Some(group) = groups.get_mut(&name) {
            group.entered = counter("last_enqueued_collective");
            group.done = counter("last_completed_collective");
        }
    }
}

/// The name of an entry's group, or its number if it has none.
fn name(entry: &Json) -> String {
    let named = entry.pointer("/process_group/0").or_else(|| entry.get("process_group"));
    match named.and_then(Json::as_str) {
        Some(name) => short(name),
        None => entry.get("pg_id").map(ToString::to_string).unwrap_or_default(),
    }
}

fn call(entry: &Json) -> Option<CollectiveCall> {
    let number = |key: &str| entry.get(key).and_then(Json::as_u64);
    let op = short(text(entry, "profiling_name")?);
    let is_p2p = match entry.get("is_p2p").and_then(Json::as_bool) {
        Some(is) => is,
        None => op.contains("->") || op.contains("<-"),
    };
    let of_group = number("collective_seq_id").or_else(|| number("seq_id"));
    let sizes = entry.get("input_sizes").and_then(Json::as_array);
    let elements = |size: &Json| {
        size.as_array()
            .map(|dims| dims.iter().filter_map(Json::as_u64).fold(1, u64::saturating_mul))
    };
    let types = entry.get("input_dtypes").and_then(Json::as_array);
    let is_done =
        entry.get("retired").and_then(Json::as_bool) == Some(true) || text(entry, "state") == Some("completed");
    Some(CollectiveCall {
        group: name(entry),
        number: if is_p2p {
            number("p2p_seq_id").or(of_group)?
        } else {
            of_group?
        },
        op,
        inputs: sizes.into_iter().flatten().filter_map(elements).take(8).collect(),
        types: types
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .take(8)
            .map(short)
            .collect(),
        is_p2p,
        is_done,
        place: place(entry),
    })
}

/// The innermost frame outside torch.
fn place(entry: &Json) -> Option<String> {
    let frames = entry.get("frames").and_then(Json::as_array)?;
    let is_own = |file: &&str| !file.contains("/torch/") && !file.is_empty() && !file.starts_with('<');
    frames.iter().take(FRAMES).find_map(|frame| {
        let file = text(frame, "filename").filter(is_own)?;
        Some(format!("{}:{}", short(file), frame.get("line").and_then(Json::as_u64)?))
    })
}
