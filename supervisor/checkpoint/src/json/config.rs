//! Checks configurations saved with weights: a model's, a tokenizer's, generation settings, Megatron's parallel settings.
//!
//! They have no checksum, and most changed bytes leave valid JSON. Three kinds of damage can be detected: a known key or word with a
//! single byte changed, if the original is missing; a value that the key cannot have; numbers that do not divide each other. Keys and
//! words unlike any known one belong to models that are not known here.

use super::keys::KEYS;
use super::keys::KeyType::{self, *};
use super::{JsonValue, content, megatron};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use supervise_core::checkpoint::Finding;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Any,
    Megatron,
}

impl Writer {
    /// The keys known to be written, with their types.
    fn keys(self) -> &'static BTreeMap<&'static str, KeyType> {
        static ANY: LazyLock<BTreeMap<&'static str, KeyType>> = LazyLock::new(|| KEYS.iter().copied().collect());
        static MEGATRON: LazyLock<BTreeMap<&'static str, KeyType>> = LazyLock::new(|| {
            let kinds = [
                (megatron::FLAGS, Flag),
                (megatron::COUNTS, Count),
                (megatron::OTHERS, Any),
            ];
            let fields = kinds
                .into_iter()
                .flat_map(|(keys, holds)| keys.split_ascii_whitespace().map(move |key| (key, holds)));
            let words = megatron::WORDS.iter().map(|(key, words)| (*key, Word(words)));
            fields.chain(words).chain(KEYS.iter().copied()).collect()
        });
        match self {
            Self::Any => &ANY,
            Self::Megatron => &MEGATRON,
        }
    }
}

/// Top-level keys of the trainer's checkpoint manifest.
const MANIFEST: &[&str] = &[
    "arch",
    "backend",
    "contents",
    "directories",
    "framework",
    "global_step",
    "role",
    "save_contents",
    "saved_any_dist_ckpt",
    "schema_version",
    "world_size",
];
const CONTENTS: &[&str] = &[
    "model",
    "hf_model",
    "peft_adapters",
    "optimizer",
    "lr_scheduler",
    "rng_state",
    "transformer_config",
    "hf_config",
    "tokenizer",
];
const BACKEND: &[&str] = &["has_bridge", "peft", "use_dist_checkpointing"];
/// How the model is divided; a file of Megatron has all of these.
const PARALLEL: &[&str] = &[
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
];
/// Keys below which anything may occur.
const NAMES: &[&str] = &[
    "id2label",
    "label2id",
    "added_tokens_decoder",
    "auto_map",
    "vocab",
    "task_specific_params",
];
/// This many known keys make a configuration of transformers.
const FEW: usize = 4;
/// A shorter key resembles too many others.
const SHORT: usize = 5;
/// The most nested objects to check.
const DEPTH: u32 = 4;
/// What transformers writes if a tokenizer has no limit: 1e30 as an integer.
const HUGE: i128 = 1_000_000_000_000_000_019_884_624_838_656;
/// Upper limit of every count.
const MOST: f64 = 1e12;

type JsonObject = BTreeMap<String, JsonValue>;

/// Checks a configuration of a model: `config.json`, `transformer_config.json`.
pub(crate) fn model(object: &JsonObject) -> Result<(), Box<Finding>> {
    let there = PARALLEL.iter().filter(|key| object.contains_key(**key)).count();
    let writer = if there > 0 { Writer::Megatron } else { Writer::Any };
    look(object, writer, 0).map_or(Ok(()), |wrong| Err(content(wrong)))?;
    if there > 0 {
        return match PARALLEL.iter().find(|key| !object.contains_key(**key)) {
            Some(key) => Err(content(format!(
                "{key} is missing, and Megatron writes it with the others"
            ))),
            None => Ok(()),
        };
    }
    let known = KEYS.iter().filter(|(key, _)| object.contains_key(*key)).count();
    if known >= FEW && !object.contains_key("model_type") {
        return Err(content(
            "model_type is missing: transformers cannot tell which model it is".to_owned(),
        ));
    }
    match class_differs(object) {
        Some(wrong) => Err(content(wrong)),
        None => Ok(()),
    }
}

pub(crate) fn settings(object: &JsonObject) -> Result<(), Box<Finding>> {
    look(object, Writer::Any, 0).map_or(Ok(()), |wrong| Err(content(wrong)))
}

/// Checks the top-level keys of verl's manifest, and those of how weights were saved.
pub(crate) fn manifest(object: &JsonObject) -> Result<(), Box<Finding>> {
    unchanged(object, MANIFEST)?;
    for (key, known) in [("backend", BACKEND), ("contents", CONTENTS)] {
        let inner = object.get(key).and_then(JsonValue::object);
        inner.map_or(Ok(()), |inner| unchanged(inner, known))?;
    }
    Ok(())
}

/// Checks that no key is a missing known one with a byte changed.
fn unchanged(object: &JsonObject, known: &[&str]) -> Result<(), Box<Finding>> {
    changed(object.keys(), known).map_or(Ok(()), |wrong| Err(content(wrong)))
}

/// Finds a key that differs by a byte from a known one that is missing.
pub(super) fn changed<'k>(keys: impl Iterator<Item = &'k String> + Clone, known: &[&str]) -> Option<String> {
    let near = |key: &&'k String| {
        let missing = |k: &&&str| alike(key, k) && !keys.clone().any(|there| there == **k);
        known.iter().find(missing).map(|k| one_byte(key, k))
    };
    let strange = keys.clone().filter(|key| !known.contains(&key.as_str()));
    strange.into_iter().find_map(|key| near(&key))
}

pub(super) fn one_byte(found: &str, known: &str) -> String {
    format!(
        "there is `{}` instead of `{known}`: a byte was changed",
        crate::raw::shown(found)
    )
}

/// Returns what is wrong in an object and in those nested in it.
fn look(object: &JsonObject, writer: Writer, depth: u32) -> Option<String> {
    for (key, value) in object {
        match writer.keys().get(key.as_str()) {
            Some(holds) => {
                if let Some(wanted) = refused(*holds, value) {
                    return Some(format!("{key} is {}, and {wanted} is expected", shown(value)));
                }
            }
            None => {
                let near = |known: &&&str| !object.contains_key(**known) && alike(key, known);
                if let Some(known) = writer.keys().keys().find(near).filter(|_| key.len() >= SHORT) {
                    return Some(one_byte(key, known));
                }
                if writer == Writer::Megatron && depth == 0 && !is_attribute(key) {
                    return Some(format!("`{}` is no attribute of a class", crate::raw::shown(key)));
                }
            }
        }
        let inner = value
            .object()
            .filter(|_| depth < DEPTH && !NAMES.contains(&key.as_str()));
        if let Some(wrong) = inner.and_then(|inner| look(inner, writer, depth + 1)) {
            return Some(wrong);
        }
    }
    indivisible(object)
}

fn shown(value: &JsonValue) -> String {
    match value {
        JsonValue::Whole(n) => n.to_string(),
        JsonValue::Float(f) => f.to_string(),
        JsonValue::Text(text) => format!("{:?}", crate::raw::shown(text)),
        other => other.kind().to_owned(),
    }
}

/// Returns the expected type if a value does not match.
fn refused(holds: KeyType, value: &JsonValue) -> Option<&'static str> {
    if let (Word(_) | Class(_), JsonValue::List(items)) = (holds, value) {
        return items.iter().find_map(|item| refused(holds, item));
    }
    if matches!(value, JsonValue::Null | JsonValue::List(_) | JsonValue::Object(_)) {
        return None;
    }
    let number = match value {
        JsonValue::Whole(n) => Some(*n as f64),
        JsonValue::Float(f) => Some(*f),
        // verl gives the critic a dropout of "0".
        JsonValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    let within = |range: std::ops::RangeInclusive<f64>| number.is_some_and(|n| range.contains(&n));
    match holds {
        Any => None,
        Flag => (!matches!(value, JsonValue::Bool(_) | JsonValue::Whole(0 | 1))).then_some("true or false"),
        Count => {
            (!number.is_some_and(|n| (0.0..=MOST).contains(&n) && n.fract() == 0.0)).then_some("a number of things")
        }
        Share => (!within(0.0..=1.0)).then_some("a number from 0 to 1"),
        Epsilon => (number != Some(0.0) && !within(1e-20..=0.1)).then_some("a small positive number"),
        Positive => (!number.is_some_and(|n| n > 0.0)).then_some("a positive number"),
        Text => value.text().is_none().then_some("a string"),
        Word(known) => match value.text() {
            None => Some("a string"),
            Some(text) if known.contains(&text) => None,
            Some(text) => known
                .iter()
                .any(|k| alike(text, k))
                .then_some("one of the words that are known for it"),
        },
        Class(ends) => value
            .text()
            .is_none_or(|text| !is_class(text, ends))
            .then_some("the name of a class"),
        Length => {
            let none = matches!(value, JsonValue::Whole(n) if *n > HUGE / 10 && *n < HUGE * 10 && *n != HUGE);
            (none || !number.is_some_and(|n| n > 0.0)).then_some("a number of tokens")
        }
        Version => (!value.text().is_some_and(is_version)).then_some("a version"),
    }
}

fn is_attribute(key: &str) -> bool {
    key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether the name does not end in a known ending with a byte changed. Classes of other modules have a path before them.
fn is_class(text: &str, ends: &[&str]) -> bool {
    let name = text.rsplit(['.', '/', ':', '-']).next().unwrap_or(text);
    let near = |end: &&str| {
        text.len()
            .checked_sub(end.len())
            .and_then(|at| text.get(at..))
            .is_some_and(|t| alike(t, end))
    };
    is_attribute(name) && !ends.iter().any(near)
}

/// `5.9.0`, `4.57.1`, `5.0.0.dev0`, `4.42.3+cu12`.
fn is_version(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    let numbers = number(parts.next()) && number(parts.next());
    let rest = parts.next().is_none_or(|p| p.starts_with(|c: char| c.is_ascii_digit()));
    numbers && rest && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-_".contains(&b))
}

/// Whether the two differ in a single byte. Exception: `bos_token`, `eos_token` and the like differ by one letter among the first three, so a letter there is another key.
pub(crate) fn alike(found: &str, known: &str) -> bool {
    let (a, b) = (found.as_bytes(), known.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut apart = a.iter().zip(b).enumerate().filter(|(_, (x, y))| x != y);
    let (Some((at, (x, _))), None) = (apart.next(), apart.next()) else {
        return false;
    };
    let token = known.contains("_token") && at < 3;
    !(token && x.is_ascii_lowercase())
}

/// Attention heads must divide evenly among key-value groups. The model's size need not be a multiple of their number: heads may have a
/// size of their own.
fn indivisible(object: &JsonObject) -> Option<String> {
    let count = |key: &str| match object.get(key) {
        Some(JsonValue::Whole(n)) if *n > 0 => Some(*n),
        _ => None,
    };
    let (heads, groups) = (count("num_attention_heads")?, count("num_key_value_heads")?);
    (heads % groups != 0).then(|| format!("{heads} heads of attention cannot share {groups} for keys and values"))
}

/// The class of a model begins with its type: a byte that differs there was changed.
fn class_differs(object: &JsonObject) -> Option<String> {
    let plain = |text: &str| -> String {
        let letters = text.chars().filter(|c| *c != '_' && *c != '-');
        letters.flat_map(char::to_lowercase).collect()
    };
    let kind = object.get("model_type")?.text()?;
    let class = object.get("architectures")?.list()?.first()?.text()?;
    let (a, b) = (plain(kind), plain(class));
    let begins = b.get(..a.len()).filter(|_| a.len() >= SHORT)?;
    let apart = begins.bytes().zip(a.bytes()).filter(|(x, y)| x != y).count();
    (apart == 1 && a.is_ascii()).then(|| {
        format!(
            "model_type is {:?}, and the class is {:?}: a byte was changed",
            crate::raw::shown(kind),
            crate::raw::shown(class)
        )
    })
}
