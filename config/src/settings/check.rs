//! Checks a value against its setting, and converts it to the form in which it is layered.

use figment::value::{Dict, Value as Fig};

use super::patterns::{failure_lines, pattern};
use super::schema::{ChoiceWord, SettingKind, words};
use super::units::{parse_bytes, parse_duration, parse_max_loss};
use super::wrong::{SettingError, wrong, wrong_type};
use crate::tree::{ConfigNode, ConfigValue};

/// Checks a value and converts it for figment.
///
/// `trainers`: the frameworks that can be named; empty: any word.
pub(super) fn check(kind: SettingKind, node: &ConfigNode, trainers: &[&'static str]) -> Result<Fig, SettingError> {
    let value = &node.value;
    match (kind, value) {
        (SettingKind::Bool, ConfigValue::Bool(value)) => Ok(Fig::from(*value)),
        (SettingKind::Bool, other) => Err(wrong_type(other, "true or false", "write true or false without quotes")),
        (
            SettingKind::OptionalWhole { .. }
            | SettingKind::OptionalSize
            | SettingKind::OptionalLoss
            | SettingKind::OptionalText
            | SettingKind::OptionalAddress
            | SettingKind::OptionalVersion
            | SettingKind::Pattern
            | SettingKind::Command,
            ConfigValue::Null,
        ) => Ok(Fig::from(figment::value::Empty::None)),
        (SettingKind::Whole { min, max } | SettingKind::OptionalWhole { min, max }, value) => whole(value, min, max),
        (SettingKind::Number { min, max }, _) => match node.as_f64() {
            Some(number) if (min..=max).contains(&number) => Ok(Fig::from(number)),
            Some(number) => Err(wrong(
                format!("{number} is out of range"),
                format!("write a number from {min} to {max}"),
            )),
            None => Err(wrong_type(value, "a number", "write for example 2.0")),
        },
        (SettingKind::Duration, value) => duration(value),
        (SettingKind::OptionalLoss, value) => duration(value).and_then(|ms| loss(value, ms)),
        (SettingKind::Limit, ConfigValue::Str(text)) if text == "auto" || text == "never" => {
            Ok(Fig::from(text.clone()))
        }
        (SettingKind::Limit, value) => duration(value).map(limit),
        (SettingKind::Pattern, value) => pattern(value),
        (SettingKind::Size | SettingKind::OptionalSize, ConfigValue::Str(text)) => parse_bytes(text)
            .map(Fig::from)
            .map_err(|message| wrong(message, "write a size with its unit, for example 256MiB")),
        (SettingKind::Size | SettingKind::OptionalSize, other) => Err(wrong_type(
            other,
            "a size",
            "write a size with its unit, for example 256MiB",
        )),
        (SettingKind::Trainer, ConfigValue::Str(text)) if trainers.is_empty() => Ok(Fig::from(text.clone())),
        (SettingKind::Choice(_) | SettingKind::Trainer, value) => choice(&words(kind, trainers), value),
        (SettingKind::OptionalText, ConfigValue::Str(text)) if !text.is_empty() => Ok(Fig::from(text.clone())),
        (SettingKind::OptionalText, ConfigValue::Str(_)) => Err(wrong("it is empty", "write a path, or null")),
        (SettingKind::OptionalText, other) => {
            Err(wrong_type(other, "a string", "put the value in quotes, or write null"))
        }
        (SettingKind::OptionalAddress, value) => address(value),
        (SettingKind::Choices(_), value) => several(&words(kind, trainers), value),
        (SettingKind::OptionalVersion, value) => version(value),
        (SettingKind::Command, value) => command(value),
        (SettingKind::Gpus, value) => gpus(value),
        (SettingKind::Globals, value) => globals(value),
        (SettingKind::Users, value) => users(value),
        (SettingKind::Variables, value) => variables(value),
        (SettingKind::FailureLines(_), value) => failure_lines(&words(kind, trainers), value),
        (SettingKind::Answers(_), value) => answers(&words(kind, trainers), value),
        (SettingKind::Group(_), other) => Err(wrong_type(other, "a mapping", "write `key: value` lines below it")),
    }
}

fn whole(value: &ConfigValue, min: i64, max: i64) -> Result<Fig, SettingError> {
    match value {
        ConfigValue::Int(number) => match i64::try_from(*number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Fig::from(number)),
            _ => Err(wrong(
                format!("{number} is out of range"),
                format!("write a whole number from {min} to {max}"),
            )),
        },
        other => Err(wrong_type(
            other,
            "an integer",
            format!("write a whole number from {min} to {max}, without quotes"),
        )),
    }
}

fn loss(value: &ConfigValue, parsed: Fig) -> Result<Fig, SettingError> {
    match value {
        ConfigValue::Str(text) => match parse_max_loss(text) {
            Ok(_) => Ok(parsed),
            Err(message) => Err(wrong(message, "write 10s or more, for example 10m, or null")),
        },
        _ => Ok(parsed),
    }
}

fn duration(value: &ConfigValue) -> Result<Fig, SettingError> {
    match value {
        ConfigValue::Str(text) => match parse_duration(text) {
            Ok(duration) => Ok(Fig::from(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))),
            Err(message) if text.contains(':') => Err(wrong(
                message,
                "clock notation is read differently by different YAML readers; write 1h30m",
            )),
            Err(message) => Err(wrong(
                message,
                "write a duration with its unit, for example 90s, 5m or 1h30m",
            )),
        },
        ConfigValue::Int(number) => Err(wrong_type(
            value,
            "a duration",
            format!("write {number}s if seconds are meant (a bare 1:30:00 is read as 5400: write 1h30m)"),
        )),
        other => Err(wrong_type(
            other,
            "a duration",
            "write a duration with its unit, for example 90s, 5m or 1h30m",
        )),
    }
}

/// As text, like `auto` and `never`.
fn limit(millis: Fig) -> Fig {
    Fig::from(millis.to_u128().unwrap_or_default().to_string())
}

fn choice(words: &[ChoiceWord], value: &ConfigValue) -> Result<Fig, SettingError> {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let hint = format!("one of: {}", words.join(", "));
    let text = match value {
        ConfigValue::Str(text) => text.as_str(),
        // The trainer's YAML parses a bare `off` as false.
        ConfigValue::Bool(false) if words.contains(&"off") => "off",
        ConfigValue::Null if words.contains(&"none") => "none",
        other => return Err(wrong_type(other, "a word", hint)),
    };
    if words.contains(&text) {
        Ok(Fig::from(text))
    } else {
        Err(wrong(format!("'{text}' is not a possible value"), hint))
    }
}

fn several(words: &[ChoiceWord], value: &ConfigValue) -> Result<Fig, SettingError> {
    let ConfigValue::List(items) = value else {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = format!("write a list of: {}", known.join(", "));
        return Err(wrong_type(value, "a list of words", hint));
    };
    let checked = items.iter().map(|item| choice(words, &item.value));
    checked.collect::<Result<Vec<_>, _>>().map(Fig::from)
}

/// `{mem.cuda_oom: stop}`, or the same with a level for each family: `{mem: {cuda_oom: stop}}`.
fn answers(words: &[ChoiceWord], value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write lines such as `mem.cuda_oom: stop` or `mem.*: relaunch_later` below `policy:`";
    let map = match value {
        ConfigValue::Map(map) => map,
        ConfigValue::Null => return Ok(Fig::from(Dict::new())),
        other => return Err(wrong_type(other, "a mapping of classes of failures to answers", hint)),
    };
    let mut dict = Dict::new();
    for (key, node) in map.iter() {
        let entries: Vec<(String, &ConfigValue)> = match &node.value {
            ConfigValue::Map(below) => below
                .iter()
                .map(|(name, node)| (format!("{key}.{name}"), &node.value))
                .collect(),
            value => vec![(key.to_string(), value)],
        };
        for (class, value) in entries {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            match value {
                ConfigValue::Str(word) if known.contains(&word.as_str()) => dict.insert(class, Fig::from(word.clone())),
                _ => {
                    return Err(wrong(
                        format!("the answer to {class} is none that there is"),
                        format!("write one of: {}", known.join(", ")),
                    ));
                }
            };
        }
    }
    Ok(Fig::from(dict))
}

/// `https://hooks.example/x`. Errors do not quote the value, because it is a secret.
fn address(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write an address such as \"https://hooks.example/path\", or null";
    let ConfigValue::Str(text) = value else {
        return Err(wrong_type(value, "an address", hint));
    };
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\' | '{' | '}' | '[' | ']');
    match rest {
        Some(rest) if !rest.is_empty() && !text.contains(odd) => Ok(Fig::from(text.clone())),
        _ => Err(wrong("it is no address of a web server", hint)),
    }
}

/// `0.9`, `0.9.1`, `0.8.0.dev3`, `0.7.0+cu128`.
fn version(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write it in quotes as the package's metadata has it, for example \"0.9.1\", or write null";
    let ConfigValue::Str(text) = value else {
        return Err(wrong_type(value, "a version in quotes", hint));
    };
    let (series, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let plain = |c: char| c.is_ascii_alphanumeric() || ".+-_!".contains(c);
    let is_version = digits(rest) && series.bytes().all(|b| b.is_ascii_digit()) && !series.is_empty();
    if is_version && text.len() <= 64 && text.chars().all(plain) {
        Ok(Fig::from(text.clone()))
    } else {
        Err(wrong(format!("'{text}' is not a version"), hint))
    }
}

fn command(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write a list of words, or one string as for a shell";
    let words = match value {
        ConfigValue::Str(text) => shell_words::split(text).map_err(|e| wrong(e.to_string(), hint))?,
        ConfigValue::List(items) => {
            let word = |node: &ConfigNode| match &node.value {
                ConfigValue::Str(text) => Ok(text.clone()),
                other => Err(wrong(
                    format!("a word of the command is {}", other.type_name()),
                    "put each word in quotes",
                )),
            };
            items.iter().map(word).collect::<Result<Vec<_>, _>>()?
        }
        other => return Err(wrong_type(other, "a command", hint)),
    };
    if words.first().is_none_or(String::is_empty) {
        return Err(wrong("the command is empty", hint));
    }
    Ok(Fig::from(words))
}

fn gpus(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write auto, none, or a list of device numbers such as [0, 1]";
    match value {
        ConfigValue::Str(text) if text == "auto" || text == "none" => Ok(Fig::from(vec![text.clone()])),
        ConfigValue::Str(text) => Err(wrong(format!("'{text}' is not a possible value"), hint)),
        ConfigValue::List(items) if items.is_empty() => Ok(Fig::from(vec!["none".to_owned()])),
        ConfigValue::List(items) => {
            let number = |node: &ConfigNode| {
                node.as_i64()
                    .and_then(|number| u32::try_from(number).ok())
                    .map(|number| number.to_string())
            };
            let numbers: Option<Vec<String>> = items.iter().map(number).collect();
            numbers
                .map(Fig::from)
                .ok_or_else(|| wrong("a device number is not a whole number", hint))
        }
        other => Err(wrong_type(other, "a choice of devices", hint)),
    }
}

fn globals(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write a list such as [my_project.state.Sampler, \"my_project.*\"]";
    let ConfigValue::List(items) = value else {
        return Err(wrong_type(value, "a list of names", hint));
    };
    let name = |node: &ConfigNode| match &node.value {
        ConfigValue::Str(text) if is_global(text) => Ok(text.clone()),
        ConfigValue::Str(text) => Err(wrong(
            format!("'{text}' is no name of a module and what is in it"),
            hint,
        )),
        other => Err(wrong(format!("a name is {}", other.type_name()), hint)),
    };
    items.iter().map(name).collect::<Result<Vec<_>, _>>().map(Fig::from)
}

fn users(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write a list of user numbers such as [1000]; `id -u NAME` prints the number of a user";
    let ConfigValue::List(items) = value else {
        return Err(wrong_type(value, "a list of user numbers", hint));
    };
    let number = |node: &ConfigNode| node.as_i64().and_then(|number| u32::try_from(number).ok());
    let numbers: Option<Vec<u32>> = items.iter().map(number).collect();
    numbers
        .map(Fig::from)
        .ok_or_else(|| wrong("an entry is not the number of a user", hint))
}

/// `module.name`, `module.*`, `*`.
pub(super) fn is_global(text: &str) -> bool {
    let word = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_alphanumeric() || c == '_');
    match text.strip_suffix("*") {
        Some("") => true,
        Some(module) => module.strip_suffix('.').is_some_and(|m| m.split('.').all(word)),
        None => text.contains('.') && text.split('.').all(word),
    }
}

fn variables(value: &ConfigValue) -> Result<Fig, SettingError> {
    let map = match value {
        ConfigValue::Map(map) => map,
        ConfigValue::Null => return Ok(Fig::from(Dict::new())),
        other => {
            return Err(wrong_type(
                other,
                "a mapping of names to values",
                "write NAME: \"value\" lines below `env:`",
            ));
        }
    };
    let mut dict = Dict::new();
    for (key, node) in map.iter() {
        let name = key.to_string();
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !valid {
            return Err(wrong(
                format!("'{name}' is not the name of a variable"),
                "names have letters, digits and underscores",
            ));
        }
        let text = match &node.value {
            ConfigValue::Str(text) if !text.contains('\0') => text.clone(),
            ConfigValue::Int(number) => number.to_string(),
            other => {
                return Err(wrong(
                    format!("the value of {name} is {}", other.type_name()),
                    "put it in quotes",
                ));
            }
        };
        dict.insert(name, Fig::from(text));
    }
    Ok(Fig::from(dict))
}
