//! One defaults list before it is walked: its `_self_`, its lists of options, its interpolated and its relative names.

use super::Choice;
use super::element::{Element, Target};
use crate::error::{ConfigError, ErrorKind};
use crate::interpolation::Resolver;
use crate::tree::{ConfigTree, Node, Origin, Value};

/// `_self_` stands last where it is not written, as in Hydra; twice is wrong.
pub(super) fn complete_self(list: &mut Vec<Element>, config: &str) -> Result<(), ConfigError> {
    let mut own = list.iter().filter(|entry| entry.target == Target::Own);
    let first = own.next();
    if let Some(second) = own.next() {
        return Err(refuse(
            &format!("`_self_` stands twice in the defaults list of '{config}'"),
            &second.origin,
        ));
    }
    let plain = list.iter().any(|entry| !entry.overriding);
    if first.is_none() && plain || list.is_empty() {
        let origin = list
            .first()
            .map_or(Origin::Default { of: config.to_owned() }, |entry| entry.origin.clone());
        list.push(Element::new(Target::Own, origin));
    } else if first.is_none() {
        // A list of overrides only: the configuration's own content is still wanted.
        let origin = list
            .first()
            .map_or(Origin::Default { of: config.to_owned() }, |entry| entry.origin.clone());
        list.insert(0, Element::new(Target::Own, origin));
    }
    Ok(())
}

/// A list of options is one entry per option.
pub(super) fn singles(entry: &Element) -> Result<Vec<Element>, ConfigError> {
    let Target::Group {
        group,
        choice: Choice::Options(options),
    } = &entry.target
    else {
        return Ok(vec![entry.clone()]);
    };
    let mut found = Vec::new();
    for option in options {
        if option.contains("${") {
            return Err(refuse(
                "an interpolation cannot stand in a list of options",
                &entry.origin,
            ));
        }
        let mut single = entry.clone();
        single.target = Target::Config(format!("{group}/{option}"));
        found.push(single);
    }
    Ok(found)
}

pub(super) fn is_interpolated(entry: &Element) -> bool {
    match &entry.target {
        Target::Group {
            choice: Choice::Name(name),
            ..
        }
        | Target::Config(name) => name.contains("${"),
        _ => false,
    }
}

pub(super) fn resolve_name(choices: &ConfigTree, name: &str) -> Result<String, ConfigError> {
    let mut tree = choices.clone();
    let origin = tree.root.origin.clone();
    tree.add("_name_", Node::new(Value::Str(name.to_owned()), origin))?;
    let node = Resolver::new(&tree, &|_| None).require("_name_")?;
    match node.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(ConfigError::new(ErrorKind::Compose, "it is not a string")),
    }
}

/// A name as a loader knows it: `critic/../engine/fsdp` is `engine/fsdp`.
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

pub(super) fn refuse(message: &str, origin: &Origin) -> ConfigError {
    let error = ConfigError::new(ErrorKind::Compose, message);
    match origin {
        Origin::File { .. } => error.from_origin(origin),
        _ => error,
    }
}
