//! Normalizes one defaults list before the walk: `_self_`, lists of options, interpolated and relative names.

use super::GroupChoice;
use super::element::{DefaultsElement, ElementTarget};
use crate::error::{ConfigError, ErrorKind};
use crate::interpolation::InterpolationResolver;
use crate::tree::{ConfigNode, ConfigTree, ConfigValue, ValueOrigin};

/// Adds `_self_` at the end if it is missing, as Hydra does. Twice is an error.
pub(super) fn complete_self(list: &mut Vec<DefaultsElement>, config: &str) -> Result<(), ConfigError> {
    let mut own = list.iter().filter(|entry| entry.target == ElementTarget::Own);
    let first = own.next();
    if let Some(second) = own.next() {
        return Err(refuse(
            &format!("`_self_` is twice in the defaults list of '{config}'"),
            &second.origin,
        ));
    }
    let plain = list.iter().any(|entry| !entry.overriding);
    if first.is_none() && plain || list.is_empty() {
        let origin = list
            .first()
            .map_or(ValueOrigin::Default { of: config.to_owned() }, |entry| {
                entry.origin.clone()
            });
        list.push(DefaultsElement::new(ElementTarget::Own, origin));
    } else if first.is_none() {
        // A list of overrides only: the configuration's own content still counts.
        let origin = list
            .first()
            .map_or(ValueOrigin::Default { of: config.to_owned() }, |entry| {
                entry.origin.clone()
            });
        list.insert(0, DefaultsElement::new(ElementTarget::Own, origin));
    }
    Ok(())
}

pub(super) fn singles(entry: &DefaultsElement) -> Result<Vec<DefaultsElement>, ConfigError> {
    let ElementTarget::Group {
        group,
        choice: GroupChoice::Options(options),
    } = &entry.target
    else {
        return Ok(vec![entry.clone()]);
    };
    let mut found = Vec::new();
    for option in options {
        if option.contains("${") {
            return Err(refuse(
                "an interpolation is not allowed in a list of options",
                &entry.origin,
            ));
        }
        let mut single = entry.clone();
        single.target = ElementTarget::Config(format!("{group}/{option}"));
        found.push(single);
    }
    Ok(found)
}

pub(super) fn is_interpolated(entry: &DefaultsElement) -> bool {
    match &entry.target {
        ElementTarget::Group {
            choice: GroupChoice::Name(name),
            ..
        }
        | ElementTarget::Config(name) => name.contains("${"),
        _ => false,
    }
}

pub(super) fn resolve_name(choices: &ConfigTree, name: &str) -> Result<String, ConfigError> {
    let mut tree = choices.clone();
    let origin = tree.root.origin.clone();
    tree.add("_name_", ConfigNode::new(ConfigValue::Str(name.to_owned()), origin))?;
    let node = InterpolationResolver::new(&tree, &|_| None).require("_name_")?;
    match node.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(ConfigError::new(ErrorKind::Compose, "it is not a string")),
    }
}

/// The name as a loader knows it: `critic/../engine/fsdp` becomes `engine/fsdp`.
pub(super) fn collapsed(config: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in config.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

pub(super) fn refuse(message: &str, origin: &ValueOrigin) -> ConfigError {
    let error = ConfigError::new(ErrorKind::Compose, message);
    match origin {
        ValueOrigin::File { .. } => error.from_origin(origin),
        _ => error,
    }
}
