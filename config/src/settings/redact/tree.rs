//! A configuration as YAML, with the types of its values and without its secrets.

use super::known::is_hidden;
use super::names::{Sense, sense};
use super::places::is_place;
use super::redact_text;
use crate::pystr;
use crate::tree::{Key, Node, Value};

/// The YAML of a tree. Below a key that is a secret's every text and number is `***`; elsewhere
/// what looks like one.
pub fn redacted_yaml(root: &Node) -> String {
    let mut out = String::new();
    write(root, Sense::Not, &mut out);
    out.push('\n');
    out
}

fn write(node: &Node, above: Sense, out: &mut String) {
    match &node.value {
        Value::Map(map) => {
            out.push('{');
            for (key, child) in map.iter() {
                match key {
                    Key::Str(name) => quote(&redact_text(name), out),
                    Key::Int(number) => out.push_str(&number.to_string()),
                    Key::Float(number) => out.push_str(&float(*number)),
                    Key::Bool(value) => out.push_str(&value.to_string()),
                }
                out.push_str(": ");
                let name = key.to_string();
                let own = match &child.value {
                    Value::Str(text) if is_place(&name, text) => Sense::Not,
                    _ => sense(&name),
                };
                write(child, above.max(own), out);
                out.push_str(",\n");
            }
            out.push('}');
        }
        Value::List(items) => {
            out.push('[');
            for item in items {
                write(item, above, out);
                out.push_str(", ");
            }
            out.push(']');
        }
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(&value.to_string()),
        Value::Str(text) if text.is_empty() => out.push_str("\"\""),
        _ if above == Sense::Surely => out.push_str("\"***\""),
        Value::Str(text) if above == Sense::Perhaps && is_hidden(text, false) => out.push_str("\"***\""),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&float(*number)),
        Value::Str(text) => quote(&redact_text(text), out),
    }
}

fn float(number: f64) -> String {
    let text = pystr::float(number);
    match number.is_finite() {
        true => text,
        false => text.replace("inf", ".inf").replace("nan", ".nan"),
    }
}

/// Double quotes, in which every character has an escape.
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
