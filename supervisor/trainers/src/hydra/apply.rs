//! Applying an override to a configuration.

use std::sync::Arc;

use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{ConfigError, ConfigMap, ConfigNode, ConfigTree, ConfigValue, ErrorKind, MapKey, split_path};

use super::{HydraOverride, OverrideAction, refuse};

/// Applies an override to a configuration. In struct mode, which Hydra uses, the plain form refuses unknown keys.
pub fn apply(tree: &mut ConfigTree, change: &HydraOverride, struct_mode: bool) -> Result<(), ConfigError> {
    if change.package.is_some() {
        return Err(refuse(
            &change.text,
            0,
            &format!("'{}' is not a group, so it has no package", change.key),
        ));
    }
    let value = change.value.clone().unwrap_or(ConfigValue::Null);
    match change.action {
        OverrideAction::Change => update(tree, change, value, struct_mode),
        OverrideAction::Force => update(tree, change, value, false),
        OverrideAction::Add => {
            let container = matches!(value, ConfigValue::Map(_) | ConfigValue::List(_));
            if !container && current(tree, &change.key).is_some() {
                return Err(
                    refuse(&change.text, 0, "the key has a value already").with_hint(format!(
                        "use {} to change it, or +{} to add or change",
                        &change.text[1..],
                        change.text
                    )),
                );
            }
            update(tree, change, value, false)
        }
        OverrideAction::Delete => {
            let missing = || refuse(&change.text, 0, "there is nothing to delete");
            let found = current(tree, &change.key).ok_or_else(missing)?;
            if change
                .value
                .as_ref()
                .is_some_and(|wanted| !matches!(wanted, ConfigValue::Null) && !equal(wanted, &found))
            {
                return Err(refuse(
                    &change.text,
                    0,
                    "the key has another value, so it is not deleted",
                ));
            }
            tree.delete(&change.key).map(|_| ()).map_err(|_| missing())
        }
    }
}

/// The current value of a key; an interpolation that cannot be resolved here counts as one.
fn current(tree: &ConfigTree, key: &str) -> Option<ConfigValue> {
    match InterpolationResolver::new(tree, &|_| None).get(key) {
        Ok(node) => node
            .map(|node| node.value)
            .filter(|value| !matches!(value, ConfigValue::Null)),
        Err(error) if error.kind == ErrorKind::MandatoryMissing => None,
        Err(_) => tree.get(key).map(|node| node.value.clone()),
    }
}

fn update(tree: &mut ConfigTree, change: &HydraOverride, value: ConfigValue, strict: bool) -> Result<(), ConfigError> {
    let parts = split_path(&change.key);
    let unknown = || {
        refuse(
            &change.text,
            0,
            &format!("Could not override '{}': the configuration has no such key", change.key),
        )
        .with_hint(format!(
            "use +{0} to add it, or ++{0} to add or change it",
            change.text.trim_start_matches('+')
        ))
    };
    let node = ConfigNode::new(value, change.origin());
    for length in 1..=parts.len() {
        let path = parts[..length].join(".");
        let known = tree.get(&path).map(|node| &node.value);
        match known {
            None if strict => return Err(unknown()),
            None => break,
            // A scalar on the path is replaced by an empty mapping, in which no key is known.
            Some(ConfigValue::Map(_) | ConfigValue::List(_)) => {}
            Some(_) if length < parts.len() && strict => return Err(unknown()),
            Some(_) => {}
        }
    }
    let existing = tree.get(&change.key);
    match (existing.map(|node| &node.value), &node.value) {
        (Some(ConfigValue::Map(below)), ConfigValue::Map(over)) => {
            if strict && !known_keys(below, over) {
                return Err(unknown());
            }
            let mut wrapped = node;
            for part in parts.iter().rev() {
                let mut map = ConfigMap::new();
                map.insert(MapKey::Str(part.clone()), wrapped);
                wrapped = ConfigNode::new(ConfigValue::Map(map), change.origin());
            }
            tree.merge(ConfigTree::new(wrapped))
        }
        (Some(ConfigValue::Map(_)), ConfigValue::List(_)) | (Some(ConfigValue::List(_)), ConfigValue::Map(_)) => Err(
            refuse(&change.text, 0, "a list and a mapping cannot replace each other"),
        ),
        _ => tree.add(&change.key, node).map_err(|error| {
            let file: Arc<str> = Arc::from("override");
            let mut error = error;
            error.file = Some(file);
            error
        }),
    }
}

/// Returns true if every key of the upper mapping exists below.
fn known_keys(below: &ConfigMap, over: &ConfigMap) -> bool {
    over.iter().all(
        |(key, node)| match (below.get(key).map(|node| &node.value), &node.value) {
            (None, _) => false,
            (Some(ConfigValue::Map(below)), ConfigValue::Map(over)) => known_keys(below, over),
            _ => true,
        },
    )
}

/// Equality as in Python: numbers and booleans compare by value.
fn equal(left: &ConfigValue, right: &ConfigValue) -> bool {
    let number = |value: &ConfigValue| match value {
        ConfigValue::Bool(value) => Some(f64::from(u8::from(*value))),
        ConfigValue::Int(number) => Some(*number as f64),
        ConfigValue::Float(number) => Some(*number),
        _ => None,
    };
    match (left, right) {
        (ConfigValue::List(left), ConfigValue::List(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(&left.value, &right.value))
        }
        (ConfigValue::Map(left), ConfigValue::Map(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, node)| right.get(key).is_some_and(|other| equal(&node.value, &other.value)))
        }
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        },
    }
}
