//! One source of settings: parsed, checked, and passed to figment.

use figment::value::{Dict, Map as FigMap, Value as Fig};
use figment::{Figment, Metadata, Profile, Provider};

use super::check::{check, is_global};
use super::pages::defaults_yaml;
use super::schema::{self, SettingKind};
use super::{Explained, redact, redact_words};
use crate::error::{ConfigError, ErrorKind};
use crate::pystr;
use crate::tree::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin, join_path};
use crate::yaml::{parse_scalar, parse_supervisor_yaml};

const PREFIX: &str = "SUPERVISE_";
/// `SUPERVISE_…` variables that are not settings: the supervisor sets them itself or uses them elsewhere.
const RESERVED: &[&str] = &[
    "SUPERVISE_ATTEMPT",
    "SUPERVISE_WAY",
    "SUPERVISE_RUN",
    "SUPERVISE_TERM",
    "SUPERVISE_LOG",
    "SUPERVISE_SOCKET",
    "SUPERVISE_RESUME_STEP",
    "SUPERVISE_RESUME_FROM",
    "SUPERVISE_SAVES",
    "SUPERVISE_SAVE_REQUEST",
];

pub(super) struct SettingLayer {
    tree: ConfigTree,
    /// The checked values; filled by [`SettingLayer::check`].
    checked: Vec<(String, Fig)>,
}

impl SettingLayer {
    pub(super) fn defaults() -> Result<Self, ConfigError> {
        let mut layer = Self::file("defaults.yaml", &defaults_yaml(&[]))?;
        mark_default(&mut layer.tree.root);
        Ok(layer)
    }

    pub(super) fn file(name: &str, text: &str) -> Result<Self, ConfigError> {
        parse_supervisor_yaml(text, name).map(Self::of)
    }

    pub(super) fn block(node: &ConfigNode) -> Self {
        Self::of(node.clone())
    }

    /// Parses variables in order of their names: `SUPERVISE_GRACE__STOP` is `grace.stop`. Names below `env` keep their case.
    pub(super) fn env(variables: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut layer = Self::of(empty("environment"));
        let ours = variables.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
        for (name, text) in ours {
            let Some(rest) = name.strip_prefix(PREFIX).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            let parts: Vec<&str> = rest.split("__").collect();
            let key = match parts.as_slice() {
                [first, name @ ..] if first.eq_ignore_ascii_case("env") && !name.is_empty() => {
                    format!("env.{}", name.join("__"))
                }
                parts => parts.join(".").to_ascii_lowercase(),
            };
            layer.put(&key, text, ValueOrigin::Env { name: name.clone() })?;
        }
        Ok(layer)
    }

    pub(super) fn flags(flags: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut layer = Self::of(empty("flags"));
        for (key, text) in flags {
            // Show only the key: the value may be a secret.
            let origin = ValueOrigin::Flag {
                text: format!("--set supervisor.{key}"),
            };
            layer.put(key, text, origin)?;
        }
        Ok(layer)
    }

    fn of(root: ConfigNode) -> Self {
        Self {
            tree: ConfigTree::new(root),
            checked: Vec::new(),
        }
    }

    fn put(&mut self, key: &str, text: &str, origin: ValueOrigin) -> Result<(), ConfigError> {
        let kind = schema::kind_of(key);
        if matches!(kind, Some(SettingKind::Group(_))) {
            return Err(
                ConfigError::new(ErrorKind::WrongType, "it is a group of settings, not a setting")
                    .from_origin(&origin)
                    .with_key(key)
                    .with_hint(format!("set one of: {}", members(key))),
            );
        }
        let value = read_text(kind, text).map_err(|e| {
            ConfigError::new(ErrorKind::Syntax, format!("the value is no YAML: {}", e.message))
                .from_origin(&origin)
                .with_key(key)
                .with_hint("in double quotes a backslash begins an escape: write patterns in single quotes")
        })?;
        self.tree.add(key, ConfigNode::new(value, origin))
    }

    /// Checks every key and value. Returns the errors and keeps the valid values.
    pub(super) fn check(&mut self, trainers: &[&'static str]) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let root = self.tree.root.clone();
        match &root.value {
            ConfigValue::Map(map) => self.check_map("", map, trainers, &mut errors),
            ConfigValue::Null => {}
            other => errors.push(
                ConfigError::new(
                    ErrorKind::WrongType,
                    format!("the settings are {}, not a mapping", other.type_name()),
                )
                .from_origin(&root.origin)
                .with_hint("write `key: value` lines"),
            ),
        }
        errors
    }

    fn check_map(&mut self, parent: &str, map: &ConfigMap, trainers: &[&'static str], errors: &mut Vec<ConfigError>) {
        for (key, node) in map.iter() {
            let path = join_path(parent, &key.to_string());
            match (schema::kind_of(&path), &node.value) {
                (Some(SettingKind::Group(_)), ConfigValue::Map(inner)) => {
                    self.check_map(&path, inner, trainers, errors)
                }
                (Some(SettingKind::Group(_)), ConfigValue::Null) => {}
                (Some(SettingKind::Group(_)), other) => errors.push(
                    ConfigError::new(
                        ErrorKind::WrongType,
                        format!("it is {}, it has to be a mapping", other.type_name()),
                    )
                    .from_origin(&node.origin)
                    .with_hint(format!("set one of: {}", members(&path)))
                    .with_key(path),
                ),
                (Some(kind), _) => match check(kind, node, trainers) {
                    Ok(value) => self.checked.push((path, value)),
                    Err(wrong) => {
                        let class = if wrong.wrong_type {
                            ErrorKind::WrongType
                        } else {
                            ErrorKind::BadValue
                        };
                        let origin = inner_origin(node, kind);
                        errors.push(
                            ConfigError::new(class, wrong.message)
                                .from_origin(origin)
                                .with_key(path)
                                .with_hint(wrong.hint),
                        );
                    }
                },
                (None, _) => errors.push(unknown(path, node)),
            }
        }
    }

    /// Wraps the layer for figment; the number identifies it in the provenance.
    pub(super) fn provider(&self, number: usize) -> Numbered {
        let mut dict = Dict::new();
        for (path, value) in &self.checked {
            let mut parts = path.split('.');
            let (first, second) = (parts.next().unwrap_or_default(), parts.next());
            match second {
                None => {
                    dict.insert(first.to_owned(), value.clone());
                }
                Some(second) => {
                    let section = dict.entry(first.to_owned()).or_insert_with(|| Fig::from(Dict::new()));
                    if let Fig::Dict(_, section) = section {
                        section.insert(second.to_owned(), value.clone());
                    }
                }
            }
        }
        Numbered { number, dict }
    }
}

pub(super) struct Numbered {
    number: usize,
    dict: Dict,
}

impl Provider for Numbered {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.number.to_string())
    }

    fn data(&self) -> Result<FigMap<Profile, Dict>, figment::Error> {
        let mut data = FigMap::new();
        data.insert(Profile::Default, self.dict.clone());
        Ok(data)
    }
}

/// Lists every setting with its value as written and the origin of the layer that won.
pub(super) fn explain(figment: &Figment, layers: &[SettingLayer]) -> Vec<Explained> {
    let mut lines = Vec::new();
    for (key, row) in schema::leaves() {
        if matches!(row.kind, SettingKind::Variables) {
            let names = figment
                .find_value(&key)
                .ok()
                .and_then(Fig::into_dict)
                .unwrap_or_default();
            if names.is_empty() {
                lines.extend(line(figment, layers, &key));
            }
            for name in names.keys() {
                lines.extend(line(figment, layers, &format!("{key}.{name}")));
            }
        } else {
            lines.extend(line(figment, layers, &key));
        }
    }
    lines
}

fn line(figment: &Figment, layers: &[SettingLayer], key: &str) -> Option<Explained> {
    let number: usize = match figment.find_metadata(key) {
        Some(metadata) => metadata.name.parse().ok()?,
        // An empty mapping has no provenance of its own.
        None => 0,
    };
    let node = layers.get(number)?.tree.get(key)?;
    Some(Explained {
        key: key.to_owned(),
        value: redact(key, &shown(&node.value)),
        origin: node.origin.to_string(),
    })
}

fn shown(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Null => "null".to_owned(),
        ConfigValue::Bool(value) => value.to_string(),
        ConfigValue::List(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(&item.value)).collect();
            format!("[{}]", redact_words(&items).join(", "))
        }
        ConfigValue::Map(map) if map.is_empty() => "{}".to_owned(),
        other => pystr::value(other),
    }
}

/// Parses a variable or flag: as text if the setting is text, otherwise by its spelling.
fn read_text(kind: Option<SettingKind>, text: &str) -> Result<ConfigValue, ConfigError> {
    let as_it_is = || ConfigValue::Str(text.to_owned());
    let or_text = |value: Option<ConfigValue>| Ok(value.unwrap_or_else(as_it_is));
    match kind {
        Some(
            SettingKind::Bool
            | SettingKind::Whole { .. }
            | SettingKind::OptionalWhole { .. }
            | SettingKind::Number { .. },
        ) => or_text(parse_scalar(text.trim()).ok()),
        Some(
            SettingKind::Command
            | SettingKind::OptionalSize
            | SettingKind::OptionalLoss
            | SettingKind::OptionalText
            | SettingKind::OptionalAddress
            | SettingKind::OptionalVersion
            | SettingKind::Pattern,
        ) if matches!(text.trim(), "" | "null") => Ok(ConfigValue::Null),
        // A shell's `[` begins the same way.
        Some(SettingKind::Command) if text.trim_start().starts_with('[') => or_text(listed(text).ok()),
        Some(SettingKind::Gpus) if text.starts_with(|c: char| c.is_ascii_digit()) => {
            or_text(listed(&format!("[{text}]")).ok())
        }
        Some(
            SettingKind::Gpus
            | SettingKind::Globals
            | SettingKind::Users
            | SettingKind::Variables
            | SettingKind::Choices(_)
            | SettingKind::Answers(_)
            | SettingKind::FailureLines(_),
        ) if text.trim_start().starts_with(['[', '{']) => listed(text),
        // Words separated by commas, as in a flag or a variable.
        Some(SettingKind::Choices(_)) if !text.trim().is_empty() => or_text(listed(&format!("[{text}]")).ok()),
        // One number, as in a flag or a variable.
        Some(SettingKind::Users) if !text.trim().is_empty() => or_text(listed(&format!("[{text}]")).ok()),
        // One name, as in a flag or a variable.
        Some(SettingKind::Globals) if !text.trim().is_empty() => or_text(listed(&format!("[{text:?}]")).ok()),
        _ => Ok(as_it_is()),
    }
}

fn listed(text: &str) -> Result<ConfigValue, ConfigError> {
    parse_supervisor_yaml(text, "the value").map(|node| node.value)
}

fn unknown(path: String, node: &ConfigNode) -> ConfigError {
    let hint = match schema::nearest(&path) {
        Some(near) => format!("did you mean `{near}`? `supervise config show` lists all settings"),
        None => "`supervise config show` lists all settings".to_owned(),
    };
    ConfigError::new(ErrorKind::UnknownKey, "there is no such setting")
        .from_origin(&node.origin)
        .with_key(path)
        .with_hint(hint)
}

/// The origin of the first invalid item, if one item makes a list or mapping invalid.
fn inner_origin(node: &ConfigNode, kind: SettingKind) -> &ValueOrigin {
    let wrong = |item: &&ConfigNode| match (kind, &item.value) {
        (SettingKind::Variables, ConfigValue::Str(_) | ConfigValue::Int(_))
        | (SettingKind::Command, ConfigValue::Str(_)) => false,
        (SettingKind::Globals, ConfigValue::Str(text)) => !is_global(text),
        (SettingKind::Answers(words), ConfigValue::Str(text)) => words.iter().all(|(word, _)| word != text),
        (SettingKind::Gpus | SettingKind::Users, _) => item.as_i64().is_none(),
        _ => true,
    };
    let item = match &node.value {
        ConfigValue::List(items) => items.iter().find(wrong),
        ConfigValue::Map(map) => map.iter().map(|(_, item)| item).find(wrong),
        _ => None,
    };
    item.map_or(&node.origin, |item| &item.origin)
}

fn members(section: &str) -> String {
    let below = schema::keys().filter(|key| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')));
    below.collect::<Vec<_>>().join(", ")
}

fn empty(of: &str) -> ConfigNode {
    ConfigNode::new(
        ConfigValue::Map(ConfigMap::new()),
        ValueOrigin::Default { of: of.to_owned() },
    )
}

/// Marks a default as such: users do not have the file whose line it would name.
fn mark_default(node: &mut ConfigNode) {
    node.origin = ValueOrigin::Default {
        of: "supervise".to_owned(),
    };
    match &mut node.value {
        ConfigValue::Map(map) => {
            let keys: Vec<MapKey> = map.iter().map(|(key, _)| key.clone()).collect();
            for key in keys {
                if let Some(node) = map.get_mut(&key) {
                    mark_default(node);
                }
            }
        }
        ConfigValue::List(items) => items.iter_mut().for_each(mark_default),
        _ => {}
    }
}
