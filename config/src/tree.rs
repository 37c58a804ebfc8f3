//! A configuration tree whose values know where they came from.
//!
//! A trainer's YAML, its defaults and its overrides become a [`ConfigTree`]. Values are typed as the trainer's own loader types them;
//! every node has a [`ValueOrigin`]. Interpolations are not resolved here: a value such as `${a.b}` is a string until
//! [`crate::interpolation`] evaluates it. Lookup, changes and merges follow OmegaConf: mappings merge key by key, lists are replaced.

mod map;
mod merge;
mod path;

use std::fmt;
use std::sync::Arc;

use crate::error::{ConfigError, ErrorKind};

pub use map::{ConfigMap, MapKey};
pub use path::{join_path, split_path};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// A location in a text.
    File {
        /// The file, or another name for the text.
        path: Arc<str>,
        /// Counted from one.
        line: u32,
        /// Counted from one.
        column: u32,
    },
    Env {
        /// The variable's name.
        name: String,
    },
    Flag {
        /// As the user wrote it.
        text: String,
    },
    Override {
        /// As written.
        text: String,
    },
    Default {
        /// Whose default it is.
        of: String,
    },
    /// Configuration that the trainer itself composed from files that are not available here.
    Composed {
        /// The trainer's name.
        by: String,
    },
}

const DEFAULT_OF: &str = "default of";

/// Whether the text of an origin is that of a default.
#[must_use]
pub fn is_default_origin(origin: &str) -> bool {
    origin.starts_with(DEFAULT_OF)
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, .. } => write!(f, "{path}:{line}"),
            Self::Env { name } => write!(f, "environment {name}"),
            Self::Flag { text } => f.write_str(text),
            Self::Override { text } => write!(f, "override {text}"),
            Self::Default { of } => write!(f, "{DEFAULT_OF} {of}"),
            Self::Composed { by } => write!(f, "composed by {by} itself"),
        }
    }
}

/// A typed value.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    List(Vec<ConfigNode>),
    /// A mapping that keeps its order.
    Map(ConfigMap),
}

impl ConfigValue {
    /// Returns the name of the value's type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// Whether the value is `???`, which the user has to fill in.
    pub fn is_mandatory_missing(&self) -> bool {
        matches!(self, Self::Str(text) if text == "???")
    }

    /// Whether the value is a string with an interpolation.
    pub fn is_interpolation(&self) -> bool {
        matches!(self, Self::Str(text) if text.contains("${"))
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigNode {
    pub value: ConfigValue,
    pub origin: ValueOrigin,
}

impl ConfigNode {
    /// Creates a node.
    pub fn new(value: ConfigValue, origin: ValueOrigin) -> Self {
        Self { value, origin }
    }

    /// Returns the string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            ConfigValue::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            ConfigValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the integer, if it is one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.value {
            ConfigValue::Int(value) => i64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Returns the number, if it is an integer or a float.
    pub fn as_f64(&self) -> Option<f64> {
        match self.value {
            ConfigValue::Int(value) => Some(value as f64),
            ConfigValue::Float(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the list, if it is one.
    pub fn as_list(&self) -> Option<&[ConfigNode]> {
        match &self.value {
            ConfigValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the mapping, if it is one.
    pub fn as_map(&self) -> Option<&ConfigMap> {
        match &self.value {
            ConfigValue::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.value, ConfigValue::Null)
    }

    /// Returns the child with that name (mapping) or index (list).
    pub fn child(&self, name: &str) -> Option<&ConfigNode> {
        match &self.value {
            ConfigValue::Map(map) => map.get_str(name),
            ConfigValue::List(items) => items.get(path::index(name)?),
            _ => None,
        }
    }

    pub(crate) fn child_mut(&mut self, name: &str) -> Option<&mut ConfigNode> {
        match &mut self.value {
            ConfigValue::Map(map) => map.get_mut(&MapKey::Str(name.to_owned())),
            ConfigValue::List(items) => items.get_mut(path::index(name)?),
            _ => None,
        }
    }
}

/// A whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigTree {
    /// A mapping or a list.
    pub root: ConfigNode,
}

impl ConfigTree {
    /// Creates a tree with that root.
    pub fn new(root: ConfigNode) -> Self {
        Self { root }
    }

    /// Creates a tree without keys.
    pub fn empty(origin: ValueOrigin) -> Self {
        Self {
            root: ConfigNode::new(ConfigValue::Map(ConfigMap::new()), origin),
        }
    }

    /// Returns the node at a dotted path, as written (interpolations are not followed). Accepts `a.b`, `a[b]` and list indices.
    pub fn get(&self, path: &str) -> Option<&ConfigNode> {
        if path.is_empty() {
            return Some(&self.root);
        }
        split_path(path)
            .iter()
            .try_fold(&self.root, |node, part| node.child(part))
    }

    /// Replaces the value at an existing path.
    pub fn set(&mut self, path: &str, node: ConfigNode) -> Result<(), ConfigError> {
        match self.get_mut(path) {
            Some(place) => {
                *place = node;
                Ok(())
            }
            None => Err(self.missing(path)),
        }
    }

    /// Sets the value at a path. Missing mappings are created, and a plain value in between becomes a mapping.
    pub fn add(&mut self, path: &str, node: ConfigNode) -> Result<(), ConfigError> {
        let parts = split_path(path);
        if parts.len() > crate::yaml::MAX_DEPTH {
            return Err(ConfigError::new(ErrorKind::Limit, "the key has too many parts"));
        }
        let mut here = &mut self.root;
        for (depth, part) in parts.iter().enumerate() {
            here =
                step_or_create(here, part, &node.origin).map_err(|error| error.with_key(parts[..=depth].join(".")))?;
        }
        *here = node;
        Ok(())
    }

    /// Removes and returns the value at a path.
    pub fn delete(&mut self, path: &str) -> Result<ConfigNode, ConfigError> {
        let missing = self.missing(path);
        let mut parts = split_path(path);
        let last = parts.pop().unwrap_or_default();
        let parent = parts.iter().try_fold(&mut self.root, |node, part| node.child_mut(part));
        let removed = match parent.map(|node| &mut node.value) {
            Some(ConfigValue::Map(map)) => map.remove(&MapKey::Str(last)),
            Some(ConfigValue::List(items)) => path::index(&last)
                .filter(|index| *index < items.len())
                .map(|index| items.remove(index)),
            _ => None,
        };
        removed.ok_or(missing)
    }

    /// Merges another tree over this one: mappings merge, everything else is replaced. `???` in `over` never hides an existing value.
    pub fn merge(&mut self, over: ConfigTree) -> Result<(), ConfigError> {
        merge::merge_trees(self, over)
    }

    /// Returns every leaf with its dotted path, in order. Empty lists and mappings are leaves.
    pub fn leaves(&self) -> Vec<(String, &ConfigNode)> {
        let mut found = Vec::new();
        let mut waiting = vec![(String::new(), &self.root)];
        while let Some((path, node)) = waiting.pop() {
            match &node.value {
                ConfigValue::Map(map) if !map.is_empty() => {
                    for (key, child) in map.iter().rev() {
                        waiting.push((join_path(&path, &key.to_string()), child));
                    }
                }
                ConfigValue::List(items) if !items.is_empty() => {
                    for (index, child) in items.iter().enumerate().rev() {
                        waiting.push((join_path(&path, &index.to_string()), child));
                    }
                }
                _ => found.push((path, node)),
            }
        }
        found
    }

    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut ConfigNode> {
        if path.is_empty() {
            return Some(&mut self.root);
        }
        split_path(path)
            .iter()
            .try_fold(&mut self.root, |node, part| node.child_mut(part))
    }

    fn missing(&self, path: &str) -> ConfigError {
        ConfigError::new(ErrorKind::MissingKey, "no such key").with_key(path)
    }
}

fn step_or_create<'a>(
    here: &'a mut ConfigNode,
    part: &str,
    origin: &ValueOrigin,
) -> Result<&'a mut ConfigNode, ConfigError> {
    if !matches!(here.value, ConfigValue::Map(_) | ConfigValue::List(_)) {
        *here = ConfigNode::new(ConfigValue::Map(ConfigMap::new()), origin.clone());
    }
    match &mut here.value {
        ConfigValue::Map(map) => Ok(map.entry_or_insert(MapKey::Str(part.to_owned()), || {
            ConfigNode::new(ConfigValue::Null, origin.clone())
        })),
        ConfigValue::List(items) => {
            let message = format!("the list has {} items and no item {part}", items.len());
            let place = path::index(part).and_then(|index| items.get_mut(index));
            place.ok_or_else(|| ConfigError::new(ErrorKind::MissingKey, message))
        }
        _ => Err(ConfigError::new(ErrorKind::MissingKey, "not a mapping")),
    }
}
