//! Prints what this workspace makes of trainers' configurations, for comparison with OmegaConf and Hydra themselves.
//!
//! Reads one JSON request per line and prints one JSON answer per line. Types are told apart: `{"i":"1"}` is a whole number,
//! `{"f":"1.0"}` a floating-point one, `{"s":"1"}` a string.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use serde_json::{Value as Json, json};
use supervise_config::interpolation::Resolver;
use supervise_config::{ConfigError, ConfigTree, Key, Node, Value, parse_trainer_yaml};

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
    json!({ "error": "unknown request" })
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
    match Resolver::new(tree, &lookup).resolve_all() {
        Ok(tree) => tagged(&tree.root),
        Err(error) => refused(&error),
    }
}

fn refused(error: &ConfigError) -> Json {
    json!({ "error": error.to_string() })
}

fn tagged(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!({ "b": value }),
        Value::Int(number) => json!({ "i": number.to_string() }),
        Value::Float(number) => json!({ "f": format!("{:016x}", canonical(*number).to_bits()) }),
        Value::Str(text) => json!({ "s": text }),
        Value::List(items) => Json::Array(items.iter().map(tagged).collect()),
        Value::Map(map) => {
            let entries: Vec<Json> = map
                .iter()
                .map(|(name, node)| json!([key(name), tagged(node)]))
                .collect();
            json!({ "m": entries })
        }
    }
}

fn key(key: &Key) -> Json {
    match key {
        Key::Str(text) => json!({ "s": text }),
        Key::Int(number) => json!({ "i": number.to_string() }),
        Key::Float(number) => json!({ "f": format!("{:016x}", canonical(*number).to_bits()) }),
        Key::Bool(value) => json!({ "b": value }),
    }
}

/// One spelling of NaN.
fn canonical(number: f64) -> f64 {
    if number.is_nan() { f64::NAN } else { number }
}
