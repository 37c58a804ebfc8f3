//! Following Hydra's defaults lists.
//!
//! A configuration may begin with a `defaults:` list that names other configurations and options of groups. [`compose`] builds the same
//! list Hydra 1.3 builds (`_self_`, `group: option`, `override group: option`, `group@package`, `optional`, lists of options, `null`,
//! nested lists, interpolated option names, `# @package` headers) and lays the configurations over each other in its order.
//!
//! Texts come from a [`Loader`]. It may answer that a configuration is known but belongs to the trainer's own installation: then an
//! empty mapping stands in its place, the layer is recorded, and the trainer's adapter lays its own defaults beneath.

mod defaults;
mod element;
mod list;

use std::collections::BTreeMap;

use crate::error::{ConfigError, ConfigFinding, ErrorKind};
use crate::tree::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin};
use crate::yaml::parse_trainer_yaml;
use defaults::Walk;
use element::DefaultsElement;

/// Knowledge of a [`Loader`] about a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadResult {
    /// Its text, and the file's name for messages.
    Text {
        /// The YAML text.
        text: String,
        /// The file.
        file: String,
    },
    /// The trainer's installation brings it.
    ByTrainer,
    /// Not here, and the trainer's installation may bring it: which names it has is not known.
    Unknown,
    /// Nobody has it.
    Missing,
}

/// Name of a configuration: `ppo_trainer`, or `group/option`, without `.yaml`. A name that begins with `..` lies outside.
pub trait ConfigLoader {
    /// The configuration of that name.
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError>;

    /// The options of a group, for messages.
    fn options(&self, group: &str) -> Vec<String> {
        let _ = group;
        Vec::new()
    }
}

/// Value of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupChoice {
    /// `null`: nothing.
    Nothing,
    /// One option.
    Name(String),
    /// Several options.
    Options(Vec<String>),
}

/// A choice made on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupOverride {
    /// `group=option` or `group@package=option`.
    Choose {
        /// The group, with its package where one was given.
        key: String,
        /// The choice.
        choice: GroupChoice,
    },
    /// `+group=option`.
    Append {
        /// The group.
        group: String,
        /// Its package.
        package: Option<String>,
        /// The choice.
        choice: GroupChoice,
    },
    /// `~group` or `~group=option`.
    Delete {
        /// The group, with its package where one was given.
        key: String,
        /// Only if this option is chosen.
        option: Option<String>,
    },
}

/// One configuration of the final list, lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposedLayer {
    /// Its name.
    pub config: String,
    /// The package it was put in; empty for the root.
    pub package: String,
    /// True if it is the trainer's and its content is not here.
    pub by_trainer: bool,
}

/// A composed configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ComposedConfig {
    /// The configuration, without `defaults`.
    pub tree: ConfigTree,
    /// Its sources, lowest first.
    pub layers: Vec<ComposedLayer>,
    /// The option chosen for each group (`group` or `group@package`).
    pub choices: BTreeMap<String, GroupChoice>,
    /// The search path the primary configuration asks for.
    pub search_path: Vec<String>,
    /// What would be wrong if the trainer's installation did not bring it either.
    pub unknown: Vec<ConfigError>,
    /// Doubts.
    pub findings: Vec<ConfigFinding>,
}

/// Composes a configuration and the choices of the command line.
pub fn compose(
    loader: &dyn ConfigLoader,
    name: &str,
    overrides: &[GroupOverride],
) -> Result<ComposedConfig, ConfigError> {
    let mut walk = Walk::new(loader, overrides);
    let elements = walk.expand(name)?;
    let mut composed = ComposedConfig {
        tree: ConfigTree::empty(ValueOrigin::Default { of: name.to_owned() }),
        layers: Vec::new(),
        choices: walk.choices(),
        search_path: Vec::new(),
        unknown: walk.take_unknown(),
        findings: Vec::new(),
    };
    for element in elements {
        lay(&mut composed, &mut walk, &element)?;
    }
    walk.check_used(&mut composed)?;
    Ok(composed)
}

/// Puts one configuration of the list into its package and over the rest.
fn lay(composed: &mut ComposedConfig, walk: &mut Walk<'_>, element: &DefaultsElement) -> Result<(), ConfigError> {
    let config = element.config_path();
    let package = element.final_package();
    let loaded = walk.load(&config)?;
    let by_trainer = loaded.is_none();
    let mut content = loaded.map_or_else(
        || ConfigNode::new(ConfigValue::Map(ConfigMap::new()), composed.tree.root.origin.clone()),
        |file| file.content,
    );
    if !matches!(content.value, ConfigValue::Map(_)) {
        let message = format!(
            "'{config}' is {}, a configuration has to be a mapping",
            content.value.type_name()
        );
        return Err(ConfigError::new(ErrorKind::Compose, message).from_origin(&content.origin));
    }
    if element.primary {
        read_search_path(composed, &content);
    }
    // A package from a relative group may have parts without a name; they are keys like others.
    let parts = if package.is_empty() {
        Vec::new()
    } else {
        package.split('.').collect()
    };
    for part in parts.into_iter().rev() {
        let origin = content.origin.clone();
        let mut map = ConfigMap::new();
        map.insert(MapKey::from(part), content);
        content = ConfigNode::new(ConfigValue::Map(map), origin);
    }
    composed.layers.push(ComposedLayer {
        config: list::collapsed(&config),
        package,
        by_trainer,
    });
    composed.tree.merge(ConfigTree::new(content)).map_err(|mut error| {
        error.message = format!("while composing '{config}': {}", error.message);
        error
    })
}

fn read_search_path(composed: &mut ComposedConfig, content: &ConfigNode) {
    let Some(list) = content
        .child("hydra")
        .and_then(|hydra| hydra.child("searchpath"))
        .and_then(ConfigNode::as_list)
    else {
        return;
    };
    for entry in list {
        let Some(path) = entry.as_str() else { continue };
        let (code, message) = match path.split_once("://") {
            Some(("pkg", package)) => (
                "searchpath_unreachable",
                format!("the search path names the Python package '{package}', which is not read here"),
            ),
            _ => (
                "searchpath_ignored",
                format!("the search path '{path}' is not followed here"),
            ),
        };
        composed.findings.push(ConfigFinding {
            code,
            message,
            origin: Some(entry.origin.clone()),
        });
        composed.search_path.push(path.to_owned());
    }
}

/// A configuration's file, read.
#[derive(Debug, Clone)]
struct LoadedConfig {
    content: ConfigNode,
    defaults: Vec<DefaultsElement>,
    /// `# @package name`.
    package: Option<String>,
}

/// Reads a configuration and takes its defaults list out.
fn read(config: &str, text: &str, file: &str) -> Result<LoadedConfig, ConfigError> {
    let mut content = parse_trainer_yaml(text, file)?;
    let list = match &mut content.value {
        ConfigValue::Map(map) => map.remove(&MapKey::from("defaults")),
        _ => None,
    };
    let defaults = match list {
        None => Vec::new(),
        Some(ConfigNode {
            value: ConfigValue::List(items),
            ..
        }) => items
            .iter()
            .map(|item| element::read(config, item))
            .collect::<Result<_, _>>()?,
        Some(other) => {
            let message = format!("the defaults list of '{config}' is {}", other.value.type_name());
            return Err(ConfigError::new(ErrorKind::Compose, message).from_origin(&other.origin));
        }
    };
    Ok(LoadedConfig {
        content,
        defaults,
        package: header(text),
    })
}

/// The package a text names in its first comment lines.
fn header(text: &str) -> Option<String> {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let tag = line.strip_prefix('#').map(str::trim_start)?.strip_prefix('@')?;
        let mut words = tag.split_whitespace();
        if let (Some("package"), Some(package)) = (words.next(), words.next()) {
            return Some(package.to_owned());
        }
    }
    None
}
