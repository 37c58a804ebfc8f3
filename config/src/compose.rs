//! Composition of Hydra defaults lists.
//!
//! A configuration may begin with a `defaults:` list that names other configurations and group options. [`compose`] builds the same list
//! as Hydra 1.3 (`_self_`, `group: option`, `override group: option`, `group@package`, `optional`, lists of options, `null`, nested
//! lists, interpolated option names, `# @package` headers) and merges the configurations in that order.
//!
//! Texts come from a loader. It may answer that a configuration belongs to the trainer's own installation. Then an empty mapping takes
//! its place, the layer is recorded, and the trainer's adapter supplies its own defaults underneath.

mod defaults;
mod element;
mod list;

use std::collections::BTreeMap;

use crate::error::{ConfigError, ConfigFinding, ErrorKind};
use crate::tree::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin};
use crate::yaml::parse_trainer_yaml;
use defaults::Walk;
use element::DefaultsElement;

/// What a loader knows about a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadResult {
    /// The text, and a file name for messages.
    Text {
        text: String,
        /// File name, for messages.
        file: String,
    },
    /// Part of the trainer's installation.
    ByTrainer,
    /// Not found here. The trainer's installation may have it; its names are not known.
    Unknown,
    /// Not found anywhere.
    Missing,
}

/// Finds configurations by name: `ppo_trainer` or `group/option`, without `.yaml`. A name that begins with `..` is outside the root.
pub trait ConfigLoader {
    /// Loads the configuration of that name.
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError>;

    /// Lists the options of a group, for messages.
    fn options(&self, group: &str) -> Vec<String> {
        let _ = group;
        Vec::new()
    }
}

/// The option or options chosen for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupChoice {
    Nothing,
    Name(String),
    Options(Vec<String>),
}

/// A group choice made on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupOverride {
    /// `group=option` or `group@package=option`.
    Choose {
        /// The group, with its package if one was given.
        key: String,
        choice: GroupChoice,
    },
    /// `+group=option`.
    Append {
        group: String,
        /// The package, if one was given.
        package: Option<String>,
        choice: GroupChoice,
    },
    /// `~group` or `~group=option`.
    Delete {
        /// The group, with its package if one was given.
        key: String,
        /// Delete only if this option is chosen.
        option: Option<String>,
    },
}

/// One configuration of the final list. Lists of these are lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposedLayer {
    pub config: String,
    /// The target package; empty for the root.
    pub package: String,
    /// Whether the trainer owns it, so that its content is not here.
    pub by_trainer: bool,
}

/// A composed configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ComposedConfig {
    /// The merged values, without `defaults`.
    pub tree: ConfigTree,
    /// The configurations that were merged, lowest first.
    pub layers: Vec<ComposedLayer>,
    /// The option chosen for each group (`group` or `group@package`).
    pub choices: BTreeMap<String, GroupChoice>,
    pub search_path: Vec<String>,
    /// Errors that apply only if the trainer's installation does not have these configurations either.
    pub unknown: Vec<ConfigError>,
    pub findings: Vec<ConfigFinding>,
}

/// Composes a configuration with the choices from the command line.
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

/// Merges one configuration of the list into its package.
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
    // A package from a relative group may have parts with an empty name; they are keys like others.
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

#[derive(Debug, Clone)]
struct LoadedConfig {
    content: ConfigNode,
    defaults: Vec<DefaultsElement>,
    /// From `# @package name`.
    package: Option<String>,
}

/// Parses a configuration and takes its defaults list out.
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

/// Finds the package named in the text's first comment lines.
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
