//! Which settings there are and what each may be.

use figment::value::{Dict, Value as Fig};

use super::AUTO;
use super::units::{parse_bytes, parse_duration};
use super::words::split_words;
use crate::tree::{Node, Value};

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Bool,
    Whole {
        min: i64,
        max: i64,
    },
    OptionalWhole {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Duration,
    Size,
    Choice(&'static [&'static str]),
    /// The name of a trainer framework.
    Trainer,
    OptionalText,
    /// A version, as Python's package metadata spells it.
    OptionalVersion,
    Command,
    Gpus,
    /// A list of Python names, each perhaps ending in a star.
    Globals,
    /// A mapping of names to strings.
    Variables,
}

/// The last second that a date of four digits has.
const LAST_SECOND: i64 = 253_402_300_799;
const COUNT: Kind = Kind::Whole { min: 0, max: 10_000 };

/// Every setting, in the order of `defaults.yaml`.
pub(super) const SCHEMA: &[(&str, Kind)] = &[
    ("trainer", Kind::Trainer),
    ("trainer_version", Kind::OptionalVersion),
    ("command", Kind::Command),
    ("run_dir", Kind::OptionalText),
    ("root", Kind::OptionalText),
    ("retries", COUNT),
    ("step_backs", COUNT),
    ("backoff.initial", Kind::Duration),
    ("backoff.factor", Kind::Number { min: 1.0, max: 1000.0 }),
    ("backoff.max", Kind::Duration),
    ("backoff.jitter", Kind::Number { min: 0.0, max: 1.0 }),
    ("grace.stop", Kind::Duration),
    ("grace.save", Kind::Duration),
    ("grace.orphan", Kind::Duration),
    ("gang.launcher", Kind::Choice(&["auto", "driver", "gang"])),
    ("gang.workers", Kind::OptionalWhole { min: 1, max: 1_000_000 }),
    ("gang.gpus", Kind::Gpus),
    ("proof.depth", Kind::Choice(&["structure", "full"])),
    ("proof.enabled", Kind::Bool),
    ("proof.trust_globals", Kind::Globals),
    ("proof.trust_unsafe", Kind::Bool),
    ("proof.background_rate", Kind::Size),
    ("proof.memory", Kind::Size),
    (
        "degraded_resume",
        Kind::Choice(&["never", "data_order", "model_only", "ask"]),
    ),
    ("protect.enabled", Kind::Bool),
    ("protect.keep", Kind::Whole { min: 2, max: 1000 }),
    ("protect.rate", Kind::Size),
    ("protect.reserve", Kind::Size),
    ("protect.accept_ahead", Kind::Choice(&["never", "ask", "always"])),
    ("stall.startup", Kind::Duration),
    ("stall.factor", Kind::Number { min: 1.0, max: 1000.0 }),
    ("stall.minimum", Kind::Duration),
    ("stall.save", Kind::Duration),
    ("output.max_bytes", Kind::Size),
    ("output.keep", COUNT),
    ("kill.cgroup", Kind::Choice(&["auto", "off"])),
    ("retention.prune", Kind::Bool),
    ("retention.raise_by", COUNT),
    ("lease.ttl", Kind::Duration),
    ("multi_host", Kind::Bool),
    ("allow_fresh", Kind::Bool),
    ("recovery", Kind::Bool),
    ("learn_within", Kind::Duration),
    ("learn_step", Kind::Duration),
    ("scan_interval", Kind::Duration),
    ("rehearse", Kind::Bool),
    ("assist.expiry", Kind::Bool),
    ("assist.logger", Kind::Bool),
    ("assist.skip_validation", Kind::Bool),
    ("assist.environment", Kind::Bool),
    ("assist.wandb", Kind::Bool),
    (
        "deadline",
        Kind::OptionalWhole {
            min: 1,
            max: LAST_SECOND,
        },
    ),
    ("env", Kind::Variables),
];

/// `SUPERVISE_…` variables that are not settings: the supervisor sets them itself or reads them elsewhere.
pub const RESERVED_VARIABLES: &[&str] = &[
    "SUPERVISE_ATTEMPT",
    "SUPERVISE_WAY",
    "SUPERVISE_RUN",
    "SUPERVISE_TERM",
    "SUPERVISE_LOG",
    "SUPERVISE_SOCKET",
    "SUPERVISE_RESUME_STEP",
];

/// The dotted keys of all settings.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SCHEMA.iter().map(|(key, _)| *key)
}

/// Whether a dotted key is a setting.
pub fn is_known(key: &str) -> bool {
    kind_of(key).is_some() || key.strip_prefix("env.").is_some_and(|name| !name.is_empty())
}

pub(super) fn kind_of(key: &str) -> Option<Kind> {
    SCHEMA.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)
}

/// Whether settings lie below a key.
pub(super) fn is_section(key: &str) -> bool {
    SCHEMA
        .iter()
        .any(|(known, _)| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// The setting whose name is nearest to a mistyped one.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    let leaf = |key: &'static str| key.rsplit_once('.').map_or(key, |(_, leaf)| leaf);
    let scored = keys().map(|known| {
        (
            edit_distance(key, known).min(edit_distance(key, leaf(known)) + 1),
            known,
        )
    });
    let (score, known) = scored.min_by_key(|(score, _)| *score)?;
    (score <= 2 + key.len() / 4).then_some(known)
}

/// Edit distance, insertions, deletions and replacements counting one.
pub fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, from) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()] + left.chars().count().saturating_sub(64)
}

/// What is wrong with a value, and how to write it right.
pub(super) struct Wrong {
    /// The type is wrong, not only the value.
    pub(super) wrong_type: bool,
    pub(super) message: String,
    pub(super) hint: String,
}

fn wrong(message: impl Into<String>, hint: impl Into<String>) -> Wrong {
    Wrong {
        wrong_type: false,
        message: message.into(),
        hint: hint.into(),
    }
}

fn wrong_type(value: &Value, wanted: &str, hint: impl Into<String>) -> Wrong {
    Wrong {
        wrong_type: true,
        message: format!("it is {}, it has to be {wanted}", value.type_name()),
        hint: hint.into(),
    }
}

/// Checks a value and gives it the form in which figment layers it.
///
/// `trainers`: the frameworks that can be named; empty: any word.
pub(super) fn check(kind: Kind, node: &Node, trainers: &[&str]) -> Result<Fig, Wrong> {
    let value = &node.value;
    match (kind, value) {
        (Kind::Bool, Value::Bool(value)) => Ok(Fig::from(*value)),
        (Kind::Bool, other) => Err(wrong_type(other, "true or false", "write true or false without quotes")),
        (Kind::OptionalWhole { .. } | Kind::OptionalText | Kind::OptionalVersion | Kind::Command, Value::Null) => {
            Ok(Fig::from(figment::value::Empty::None))
        }
        (Kind::Whole { min, max } | Kind::OptionalWhole { min, max }, value) => whole(value, min, max),
        (Kind::Number { min, max }, _) => match node.as_f64() {
            Some(number) if (min..=max).contains(&number) => Ok(Fig::from(number)),
            Some(number) => Err(wrong(
                format!("{number} is out of range"),
                format!("write a number from {min} to {max}"),
            )),
            None => Err(wrong_type(value, "a number", "write for example 2.0")),
        },
        (Kind::Duration, value) => duration(value),
        (Kind::Size, Value::Str(text)) => parse_bytes(text)
            .map(Fig::from)
            .map_err(|message| wrong(message, "write a size with its unit, for example 256MiB")),
        (Kind::Size, other) => Err(wrong_type(
            other,
            "a size",
            "write a size with its unit, for example 256MiB",
        )),
        (Kind::Choice(words), value) => choice(words, value),
        (Kind::Trainer, Value::Str(text)) if trainers.is_empty() => Ok(Fig::from(text.clone())),
        (Kind::Trainer, value) => choice(&[&[AUTO], trainers].concat(), value),
        (Kind::OptionalText, Value::Str(text)) if !text.is_empty() => Ok(Fig::from(text.clone())),
        (Kind::OptionalText, Value::Str(_)) => Err(wrong("it is empty", "write a path, or null")),
        (Kind::OptionalText, other) => Err(wrong_type(other, "a string", "put the value in quotes, or write null")),
        (Kind::OptionalVersion, value) => version(value),
        (Kind::Command, value) => command(value),
        (Kind::Gpus, value) => gpus(value),
        (Kind::Globals, value) => globals(value),
        (Kind::Variables, value) => variables(value),
    }
}

fn whole(value: &Value, min: i64, max: i64) -> Result<Fig, Wrong> {
    match value {
        Value::Int(number) => match i64::try_from(*number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Fig::from(number)),
            _ => Err(wrong(
                format!("{number} is out of range"),
                format!("write a whole number from {min} to {max}"),
            )),
        },
        other => Err(wrong_type(
            other,
            "a whole number",
            format!("write a whole number from {min} to {max}, without quotes"),
        )),
    }
}

fn duration(value: &Value) -> Result<Fig, Wrong> {
    match value {
        Value::Str(text) => match parse_duration(text) {
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
        Value::Int(number) => Err(wrong_type(
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

fn choice(words: &[&str], value: &Value) -> Result<Fig, Wrong> {
    let hint = format!("one of: {}", words.join(", "));
    let text = match value {
        Value::Str(text) => text.as_str(),
        // The trainer's YAML reads a bare `off` as false.
        Value::Bool(false) if words.contains(&"off") => "off",
        Value::Null if words.contains(&"none") => "none",
        other => return Err(wrong_type(other, "a word", hint)),
    };
    if words.contains(&text) {
        Ok(Fig::from(text))
    } else {
        Err(wrong(format!("'{text}' is not a possible value"), hint))
    }
}

/// `0.9`, `0.9.1`, `0.8.0.dev3`, `0.7.0+cu128`.
fn version(value: &Value) -> Result<Fig, Wrong> {
    let hint = "write it in quotes as the package's metadata has it, for example \"0.9.1\", or write null";
    let Value::Str(text) = value else {
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

fn command(value: &Value) -> Result<Fig, Wrong> {
    let hint = "write a list of words, or one string as for a shell";
    let words = match value {
        Value::Str(text) => split_words(text).map_err(|message| wrong(message, hint))?,
        Value::List(items) => {
            let word = |node: &Node| match &node.value {
                Value::Str(text) => Ok(text.clone()),
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

fn gpus(value: &Value) -> Result<Fig, Wrong> {
    let hint = "write auto, none, or a list of device numbers such as [0, 1]";
    match value {
        Value::Str(text) if text == "auto" || text == "none" => Ok(Fig::from(vec![text.clone()])),
        Value::Str(text) => Err(wrong(format!("'{text}' is not a possible value"), hint)),
        Value::List(items) if items.is_empty() => Ok(Fig::from(vec!["none".to_owned()])),
        Value::List(items) => {
            let number = |node: &Node| {
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

fn globals(value: &Value) -> Result<Fig, Wrong> {
    let hint = "write a list such as [my_project.state.Sampler, \"my_project.*\"]";
    let Value::List(items) = value else {
        return Err(wrong_type(value, "a list of names", hint));
    };
    let name = |node: &Node| match &node.value {
        Value::Str(text) if is_global(text) => Ok(text.clone()),
        Value::Str(text) => Err(wrong(
            format!("'{text}' is no name of a module and what is in it"),
            hint,
        )),
        other => Err(wrong(format!("a name is {}", other.type_name()), hint)),
    };
    items.iter().map(name).collect::<Result<Vec<_>, _>>().map(Fig::from)
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

fn variables(value: &Value) -> Result<Fig, Wrong> {
    let map = match value {
        Value::Map(map) => map,
        Value::Null => return Ok(Fig::from(Dict::new())),
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
            Value::Str(text) if !text.contains('\0') => text.clone(),
            Value::Int(number) => number.to_string(),
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
