//! Prints what this workspace makes of trainers' configurations, for comparison with OmegaConf and Hydra themselves.
//!
//! Reads one JSON request per line and prints one JSON answer per line. Types are told apart: `{"i":"1"}` is a whole number,
//! `{"f":"1.0"}` a floating-point one, `{"s":"1"}` a string.

#[path = "../../supervisor/trainers/src"]
#[expect(
    unreachable_pub,
    reason = "the grammar of a crate above, compiled in: a dependency would be circular"
)]
mod trainers {
    pub mod hydra;
}
#[path = "shared/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use files::ExampleFiles;
use serde_json::{Value as Json, json};
use supervise_config::compose::{GroupOverride, LoadResult, compose};
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ConfigValue, MapKey, parse_trainer_yaml};
use trainers::hydra;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Json = serde_json::from_str(&line?)?;
        writeln!(out, "{}", answer(&request))?;
    }
    Ok(())
}

fn answer(request: &Json) -> Json {
    if let Some(text) = request["yaml"].as_str() {
        return yaml(text, &request["env"]);
    }
    if let Some(text) = request["override"].as_str() {
        return parsed(text);
    }
    if let Some(text) = request["encode"].as_str() {
        return json!({ "encoded": hydra::encode_str(text) });
    }
    if let Some(items) = request["encode_list"].as_array() {
        let items: Vec<&str> = items.iter().filter_map(Json::as_str).collect();
        return json!({ "encoded": hydra::encode_list(&items) });
    }
    if request["files"].is_object() {
        return composed(request).unwrap_or_else(|error| refused(&error));
    }
    json!({ "error": "unknown request" })
}

fn parsed(text: &str) -> Json {
    match hydra::parse(text) {
        Ok(read) => {
            let action = match read.action {
                hydra::OverrideAction::Change => "CHANGE",
                hydra::OverrideAction::Add => "ADD",
                hydra::OverrideAction::Force => "FORCE_ADD",
                hydra::OverrideAction::Delete => "DEL",
            };
            let value = read
                .value
                .clone()
                .map_or(Json::Null, |value| tagged(&ConfigNode::new(value, read.origin())));
            json!({ "action": action, "key": read.key, "package": read.package, "value": value })
        }
        Err(error) => refused(&error),
    }
}

fn composed(request: &Json) -> Result<Json, ConfigError> {
    let files = ExampleFiles::of(request, LoadResult::Missing);
    let (mut groups, mut changes): (Vec<GroupOverride>, Vec<hydra::HydraOverride>) = (Vec::new(), Vec::new());
    for text in request["overrides"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
    {
        let change = hydra::parse(text)?;
        match change.as_group(|group| files.is_group(group))? {
            Some(group) => groups.push(group),
            None => changes.push(change),
        }
    }
    let mut tree = compose(&files, request["config"].as_str().unwrap_or("config"), &groups)?.tree;
    for change in &changes {
        hydra::apply(&mut tree, change, true)?;
    }
    Ok(json!({ "raw": tagged(&tree.root), "resolved": resolved(&tree, &request["env"]) }))
}

fn yaml(text: &str, env: &Json) -> Json {
    match parse_trainer_yaml(text, "document") {
        Ok(node) => {
            let raw = tagged(&node);
            json!({ "raw": raw, "resolved": resolved(&ConfigTree::new(node), env) })
        }
        Err(error) => refused(&error),
    }
}

fn resolved(tree: &ConfigTree, env: &Json) -> Json {
    let env: BTreeMap<String, String> = serde_json::from_value(env.clone()).unwrap_or_default();
    let lookup = |name: &str| env.get(name).cloned();
    match InterpolationResolver::new(tree, &lookup).resolve_all() {
        Ok(tree) => tagged(&tree.root),
        Err(error) => refused(&error),
    }
}

fn refused(error: &ConfigError) -> Json {
    json!({ "error": error.to_string() })
}

fn tagged(node: &ConfigNode) -> Json {
    match &node.value {
        ConfigValue::Null => Json::Null,
        ConfigValue::Bool(value) => json!({ "b": value }),
        ConfigValue::Int(number) => json!({ "i": number.to_string() }),
        ConfigValue::Float(number) => json!({ "f": format!("{:016x}", canonical(*number).to_bits()) }),
        ConfigValue::Str(text) => json!({ "s": text }),
        ConfigValue::List(items) => Json::Array(items.iter().map(tagged).collect()),
        ConfigValue::Map(map) => {
            let entries: Vec<Json> = map
                .iter()
                .map(|(name, node)| json!([key(name), tagged(node)]))
                .collect();
            json!({ "m": entries })
        }
    }
}

fn key(key: &MapKey) -> Json {
    match key {
        MapKey::Str(text) => json!({ "s": text }),
        MapKey::Int(number) => json!({ "i": number.to_string() }),
        MapKey::Float(number) => json!({ "f": format!("{:016x}", canonical(*number).to_bits()) }),
        MapKey::Bool(value) => json!({ "b": value }),
    }
}

/// One spelling of NaN.
fn canonical(number: f64) -> f64 {
    if number.is_nan() { f64::NAN } else { number }
}
