//! A YAML that only contains its author's changes, as overrides on verl's own configuration.
//!
//! Hydra would take such a file for the whole configuration and fail on the first missing key. Each value is checked
//! to arrive as written: what an override cannot express is an error with its location, never passed on changed.

use crate::hydra;
use crate::verl::read::GROUPS;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ConfigValue, ErrorKind, MapKey, join_path, python_str};

/// Blocks that are not the trainer's.
const NOT_OURS: [&str; 2] = ["supervisor", "hydra"];

/// One override for every value of the file.
pub(crate) fn as_overrides(tree: &ConfigTree) -> Result<Vec<String>, Vec<ConfigError>> {
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    let mut waiting: Vec<(String, &ConfigNode)> = vec![(String::new(), &tree.root)];
    while let Some((path, node)) = waiting.pop() {
        match &node.value {
            ConfigValue::Map(map) => {
                let ours = |key: &MapKey| !path.is_empty() || !NOT_OURS.contains(&key.to_string().as_str());
                let children = map.iter().filter(|(key, _)| ours(key));
                waiting.extend(
                    children
                        .rev()
                        .map(|(key, child)| (join_path(&path, &key.to_string()), child)),
                );
            }
            value if value.is_mandatory_missing() => {}
            _ => match one(&path, node) {
                Ok(text) => out.push(text),
                Err(problem) => problems.push(problem),
            },
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

fn one(path: &str, node: &ConfigNode) -> Result<String, ConfigError> {
    // A plain name assigned to a verl group selects a file instead of setting a value.
    let chosen = GROUPS.contains(&path) && matches!(node.value, ConfigValue::Str(_));
    let mark = if chosen { "" } else { "++" };
    let text = format!("{mark}{path}={}", encode(node));
    let arrives = hydra::parse(&text).is_ok_and(|read| {
        read.key == path && read.package.is_none() && read.value.is_some_and(|v| same(&v, &node.value))
    });
    if arrives {
        return Ok(text);
    }
    Err(ConfigError::new(ErrorKind::Override, "this cannot be said as an override of verl's configuration")
        .from_origin(&node.origin)
        .with_key(path)
        .with_hint("begin the file with `defaults: [ppo_trainer, _self_]` (sft_trainer_engine for SFT), so that Hydra reads it itself"))
}

/// Hydra's spelling of a value. Interpolations stay as they are.
fn encode(node: &ConfigNode) -> String {
    match &node.value {
        ConfigValue::Null => "null".to_owned(),
        ConfigValue::Bool(b) => b.to_string(),
        ConfigValue::Int(n) => n.to_string(),
        ConfigValue::Float(_) => python_str(&node.value),
        ConfigValue::Str(text) => quote(text),
        ConfigValue::List(items) => format!("[{}]", items.iter().map(encode).collect::<Vec<_>>().join(",")),
        ConfigValue::Map(map) => {
            let entries = map
                .iter()
                .map(|(key, child)| format!("{}:{}", quote_key(key), encode(child)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
    }
}

fn quote_key(key: &MapKey) -> String {
    match key {
        MapKey::Str(text) => quote(text),
        other => other.to_string(),
    }
}

/// Quotes a text so that it arrives unchanged: only the quote and backslashes before one are special.
fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(mark);
    let mut slashes = 0;
    for c in text.chars() {
        if c == mark {
            out.push_str(&"\\".repeat(slashes + 1));
        }
        slashes = if c == '\\' { slashes + 1 } else { 0 };
        out.push(c);
    }
    out.push_str(&"\\".repeat(slashes));
    out.push(mark);
    out
}

/// Compares values, ignoring their origins.
fn same(a: &ConfigValue, b: &ConfigValue) -> bool {
    match (a, b) {
        (ConfigValue::List(a), ConfigValue::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(&a.value, &b.value))
        }
        (ConfigValue::Map(a), ConfigValue::Map(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(k, v)| b.get(k).is_some_and(|w| same(&v.value, &w.value)))
        }
        (ConfigValue::Float(a), ConfigValue::Float(b)) => a == b || a.is_nan() && b.is_nan(),
        _ => a == b,
    }
}
