//! Formats values as Python's `str()` and `repr()` do.

use crate::tree::{ConfigNode, ConfigValue, MapKey};

/// `str(value)`: strings unchanged, everything else as Python's `repr`.
pub fn value(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Str(text) => text.clone(),
        other => repr(other),
    }
}

/// `repr` of a float: shortest digits, an exponent below 1e-4 and from 1e16.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

fn repr(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Null => "None".to_owned(),
        ConfigValue::Bool(true) => "True".to_owned(),
        ConfigValue::Bool(false) => "False".to_owned(),
        ConfigValue::Int(number) => number.to_string(),
        ConfigValue::Float(number) => float(*number),
        ConfigValue::Str(text) => quoted(text),
        ConfigValue::List(items) => {
            let items: Vec<String> = items.iter().map(|node: &ConfigNode| repr(&node.value)).collect();
            format!("[{}]", items.join(", "))
        }
        ConfigValue::Map(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, node)| format!("{}: {}", key_repr(key), repr(&node.value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn key_repr(key: &MapKey) -> String {
    match key {
        MapKey::Str(text) => quoted(text),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn floats_print_as_python_prints_them() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e300, "1.25e+300"),
            (0.1, "0.1"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(super::float(number), text);
        }
    }
}
