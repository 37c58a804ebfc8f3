//! Conversion of values as in AReaL's own classes: OmegaConf converts each value to the field's type.

use crate::kit::{ConfigReader, ScalarType};
use supervise_config::{ConfigValue, python_str};

/// Text. Numbers and booleans become what Python prints: `on` is `True`, `010` is `8`.
pub(super) const TEXT: ScalarType<String> = ("a text", as_text);
pub(super) const INT: ScalarType<i64> = ("an integer", as_number);
pub(super) const REAL: ScalarType<f64> = ("a number", as_real);
const FLAG: ScalarType<bool> = ("true or false", as_truth);

/// A boolean; missing ones are false.
pub(super) fn is(v: &mut ConfigReader<'_>, key: &str) -> bool {
    v.has(key) && v.needed(key, FLAG).unwrap_or(false)
}

fn as_text(value: &ConfigValue) -> Option<String> {
    match value {
        ConfigValue::Null | ConfigValue::List(_) | ConfigValue::Map(_) => None,
        other => Some(python_str(other)),
    }
}

/// Python's `int()` of a number or a text.
fn as_number(value: &ConfigValue) -> Option<i64> {
    match value {
        ConfigValue::Int(n) => i64::try_from(*n).ok(),
        ConfigValue::Str(text) => {
            let text = text.trim();
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let well = digits
                .split('_')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
            text.replace('_', "").parse().ok().filter(|_| well)
        }
        _ => None,
    }
}

fn as_real(value: &ConfigValue) -> Option<f64> {
    match value {
        ConfigValue::Float(number) => Some(*number),
        ConfigValue::Int(number) => Some(*number as f64),
        ConfigValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn as_truth(value: &ConfigValue) -> Option<bool> {
    match value {
        ConfigValue::Bool(truth) => Some(*truth),
        ConfigValue::Int(number) => Some(*number != 0),
        ConfigValue::Str(text) => match text.to_lowercase().as_str() {
            "yes" | "y" | "on" | "true" | "1" => Some(true),
            "no" | "n" | "off" | "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
