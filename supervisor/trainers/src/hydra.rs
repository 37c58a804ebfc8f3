//! Hydra's override grammar: `key=value`, `+key=value`, `++key=value`, `~key`.
//!
//! [`parse`] reads one command-line word as Hydra 1.3 does and refuses what Hydra refuses; sweeps (`a=1,2`), which
//! Hydra accepts only for multirun, are refused with their position. [`apply`] changes a configuration as Hydra
//! changes the composed one. [`encode_str`] and [`encode_list`] write any string so that it survives Hydra's quoting
//! and OmegaConf's interpolation.

mod apply;
mod encode;
mod value;

use supervise_config::compose::{GroupChoice, GroupOverride};
use supervise_config::literal::{self, TokenKind};
use supervise_config::{ConfigError, ConfigValue, ErrorKind, ValueOrigin};

pub use apply::apply;
pub use encode::{encode_list, encode_str};

/// What an override does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideAction {
    /// `key=value`: the key must exist.
    Change,
    /// `+key=value`: the key must not have a value yet.
    Add,
    /// `++key=value`: add or change.
    Force,
    /// `~key`: remove.
    Delete,
}

/// One parsed override.
#[derive(Debug, Clone, PartialEq)]
pub struct HydraOverride {
    pub action: OverrideAction,
    /// The dotted key, or the group.
    pub key: String,
    /// The package of a group: `group@package=option`.
    pub package: Option<String>,
    /// The value; `None` only for `~key`.
    pub value: Option<ConfigValue>,
    pub text: String,
}

impl HydraOverride {
    /// The origin of the value it sets.
    pub fn origin(&self) -> ValueOrigin {
        ValueOrigin::Override {
            text: self.text.clone(),
        }
    }

    /// The choice it makes in the defaults list, if its key is a group and its value is not a mapping.
    pub fn as_group(&self, is_group: impl Fn(&str) -> bool) -> Result<Option<GroupOverride>, ConfigError> {
        if matches!(self.value, Some(ConfigValue::Map(_))) || !is_group(&self.key) {
            return Ok(None);
        }
        let name = match &self.package {
            Some(package) => format!("{}@{package}", self.key),
            None => self.key.clone(),
        };
        let choice = |value: &ConfigValue| match value {
            ConfigValue::Str(option) => Some(GroupChoice::Name(option.clone())),
            ConfigValue::List(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .map(GroupChoice::Options),
            _ => None,
        };
        let refused = || {
            Err(refuse(
                &self.text,
                0,
                "a group takes the name of an option or a list of names",
            ))
        };
        match (self.action, &self.value) {
            (OverrideAction::Force, _) => {
                Err(refuse(&self.text, 0, "a group cannot be added by force").with_hint("use a single +"))
            }
            (OverrideAction::Delete, None) => Ok(Some(GroupOverride::Delete {
                key: name,
                option: None,
            })),
            (OverrideAction::Delete, Some(ConfigValue::Str(option))) => Ok(Some(GroupOverride::Delete {
                key: name,
                option: Some(option.clone()),
            })),
            (OverrideAction::Add, Some(value)) => match choice(value) {
                Some(choice) => Ok(Some(GroupOverride::Append {
                    group: self.key.clone(),
                    package: self.package.clone(),
                    choice,
                })),
                None => refused(),
            },
            (OverrideAction::Change, Some(value)) => match choice(value) {
                Some(choice) => Ok(Some(GroupOverride::Choose { key: name, choice })),
                None => refused(),
            },
            _ => refused(),
        }
    }
}

/// Parses one override.
pub fn parse(text: &str) -> Result<HydraOverride, ConfigError> {
    let (action, start) = match text.as_bytes() {
        [b'+', b'+', ..] => (OverrideAction::Force, 2),
        [b'+', ..] => (OverrideAction::Add, 1),
        [b'~', ..] => (OverrideAction::Delete, 1),
        _ => (OverrideAction::Change, 0),
    };
    let equals = text.find('=');
    let (key, package) = parse_key(text, start, equals.unwrap_or(text.len()))?;
    let value = match equals {
        Some(at) => Some(value::parse_value(text, at + 1)?),
        None if action == OverrideAction::Delete => None,
        None => return Err(refuse(text, text.len(), "an override needs '='").with_hint("write key=value")),
    };
    Ok(HydraOverride {
        action,
        key,
        package,
        value,
        text: text.to_owned(),
    })
}

fn parse_key(text: &str, start: usize, end: usize) -> Result<(String, Option<String>), ConfigError> {
    let whole = &text[start..end];
    let (name, package) = match whole.split_once('@') {
        Some((name, package)) => (name, Some(package)),
        None => (whole, None),
    };
    let illegal = |part: &str, offset: usize| {
        let at = part
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_-$./".contains(c)))
            .unwrap_or(0);
        Err(refuse(text, start + offset + at, "this is not a key"))
    };
    if !(is_package(name) || name.contains('/') && name.split('/').all(is_id)) {
        return illegal(name, 0);
    }
    match package {
        Some(package) if !is_package(package) => illegal(package, name.len() + 1),
        package => Ok((name.to_owned(), package.map(str::to_owned))),
    }
}

/// Accepts an empty text, one name, or names and list indices joined by dots.
fn is_package(text: &str) -> bool {
    let special = |part: &str| is_id(&part.replace('$', "_"));
    let index = |part: &str| matches!(literal::word(part), Some((TokenKind::Int, length)) if length == part.len() && !part.starts_with(['+', '-']));
    text.is_empty() || special(text) || text.contains('.') && text.split('.').all(|part| special(part) || index(part))
}

fn is_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn refuse(text: &str, at: usize, message: &str) -> ConfigError {
    let column = u32::try_from(text[..at].chars().count() + 1).unwrap_or(u32::MAX);
    let message = format!("the override `{text}` is wrong at character {column}: {message}");
    let mut error = ConfigError::new(ErrorKind::Override, message);
    error.column = Some(column);
    error
}
