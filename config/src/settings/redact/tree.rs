//! Writes a configuration as YAML, with the types of its values and without its secrets.

use super::known::is_hidden;
use super::names::{Sense, sense};
use super::places::is_place;
use super::redact_text;
use crate::pystr;
use crate::tree::{ConfigNode, ConfigValue, MapKey};

/// Returns the YAML of a tree. Below a secret key, every text and number is `***`; elsewhere only text that looks like a secret.
pub fn redacted_yaml(root: &ConfigNode) -> String {
    let mut out = String::new();
    write(root, Sense::Not, &mut out);
    out.push('\n');
    out
}

fn write(node: &ConfigNode, above: Sense, out: &mut String) {
    match &node.value {
        ConfigValue::Map(map) => {
            out.push('{');
            for (key, child) in map.iter() {
                match key {
                    MapKey::Str(name) => quote(&redact_text(name), out),
                    MapKey::Int(number) => out.push_str(&number.to_string()),
                    MapKey::Float(number) => out.push_str(&float(*number)),
                    MapKey::Bool(value) => out.push_str(&value.to_string()),
                }
                out.push_str(": ");
                let name = key.to_string();
                let own = match &child.value {
                    ConfigValue::Str(text) if is_place(&name, text) => Sense::Not,
                    _ => sense(&name),
                };
                write(child, above.max(own), out);
                out.push_str(",\n");
            }
            out.push('}');
        }
        ConfigValue::List(items) => {
            out.push('[');
            for item in items {
                write(item, above, out);
                out.push_str(", ");
            }
            out.push(']');
        }
        ConfigValue::Null => out.push_str("null"),
        ConfigValue::Bool(value) => out.push_str(&value.to_string()),
        ConfigValue::Str(text) if text.is_empty() => out.push_str("\"\""),
        _ if above == Sense::Surely => out.push_str("\"***\""),
        ConfigValue::Str(text) if above == Sense::Perhaps && is_hidden(text, false) => out.push_str("\"***\""),
        ConfigValue::Int(number) => out.push_str(&number.to_string()),
        ConfigValue::Float(number) => out.push_str(&float(*number)),
        ConfigValue::Str(text) => quote(&redact_text(text), out),
    }
}

fn float(number: f64) -> String {
    let text = pystr::float(number);
    match number.is_finite() {
        true => text,
        false => text.replace("inf", ".inf").replace("nan", ".nan"),
    }
}

/// Writes a double-quoted string; every other character is escaped.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
}
