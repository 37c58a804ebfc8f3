//! Merges one tree over another, as `OmegaConf.merge` does.

use super::{ConfigNode, ConfigTree, ConfigValue};
use crate::error::{ConfigError, ErrorKind};
use crate::interpolation;

pub(super) fn merge_trees(below: &mut ConfigTree, over: ConfigTree) -> Result<(), ConfigError> {
    let mut path = Vec::new();
    merge_into(below, &mut path, over.root)
}

/// Merges `over` into the node at `path`. It takes a path, not a reference, because an interpolation below is looked up in the whole
/// tree.
fn merge_into(tree: &mut ConfigTree, path: &mut Vec<super::MapKey>, over: ConfigNode) -> Result<(), ConfigError> {
    expand_interpolation(tree, path, &over);
    let Some(here) = node_at(tree, path) else {
        return Ok(());
    };
    if over.value.is_mandatory_missing() {
        return Ok(());
    }
    match (&here.value, &over.value) {
        (ConfigValue::Map(_), ConfigValue::List(_)) | (ConfigValue::List(_), ConfigValue::Map(_)) => {
            return Err(clash(path, here, &over));
        }
        (ConfigValue::Map(_), ConfigValue::Map(_)) => {}
        _ => {
            *here = over;
            return Ok(());
        }
    }
    let ConfigValue::Map(entries) = over.value else {
        return Ok(());
    };
    for (key, node) in entries {
        let Some(ConfigNode {
            value: ConfigValue::Map(map),
            ..
        }) = node_at(tree, path)
        else {
            return Ok(());
        };
        if map.get(&key).is_none() {
            map.insert(key, node);
            continue;
        }
        path.push(key);
        let merged = merge_into(tree, path, node);
        path.pop();
        merged?;
    }
    Ok(())
}

fn node_at<'a>(tree: &'a mut ConfigTree, path: &[super::MapKey]) -> Option<&'a mut ConfigNode> {
    path.iter().try_fold(&mut tree.root, |node, key| match &mut node.value {
        ConfigValue::Map(map) => map.get_mut(key),
        _ => None,
    })
}

/// Replaces `${other}` with a copy of `other` before a mapping is merged over it.
fn expand_interpolation(tree: &mut ConfigTree, path: &[super::MapKey], over: &ConfigNode) {
    if !matches!(over.value, ConfigValue::Map(_) | ConfigValue::List(_)) {
        return;
    }
    let Some(here) = node_at(tree, path) else {
        return;
    };
    if !here.value.is_interpolation() {
        return;
    }
    if let Some(copy) = interpolation::container_behind(tree, path)
        && let Some(here) = node_at(tree, path)
    {
        *here = copy;
    }
}

fn clash(path: &[super::MapKey], below: &ConfigNode, over: &ConfigNode) -> ConfigError {
    let key = path.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
    let message = format!(
        "{} cannot be laid over {} ({})",
        over.value.type_name(),
        below.value.type_name(),
        below.origin
    );
    ConfigError::new(ErrorKind::WrongType, message)
        .from_origin(&over.origin)
        .with_key(key)
}
