//! One entry of a defaults list: its configuration and its target package.

use super::GroupChoice;
use crate::error::{ConfigError, ErrorKind};
use crate::tree::{ConfigNode, ConfigValue, MapKey, ValueOrigin};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ElementTarget {
    /// `_self_`: the configuration that contains the list.
    Own,
    /// `path` or `group/path`.
    Config(String),
    /// `group: choice`.
    Group { group: String, choice: GroupChoice },
}

/// An entry. `base` and `parent_package` come from the configuration that contains it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DefaultsElement {
    pub(super) target: ElementTarget,
    pub(super) package: Option<String>,
    pub(super) optional: bool,
    pub(super) overriding: bool,
    pub(super) appended: bool,
    pub(super) primary: bool,
    pub(super) base: String,
    pub(super) parent_package: String,
    pub(super) header: Option<String>,
    pub(super) origin: ValueOrigin,
}

impl DefaultsElement {
    pub(super) fn new(target: ElementTarget, origin: ValueOrigin) -> Self {
        Self {
            target,
            package: None,
            optional: false,
            overriding: false,
            appended: false,
            primary: false,
            base: String::new(),
            parent_package: String::new(),
            header: None,
            origin,
        }
    }

    /// Sets the configuration whose list contains the entry.
    pub(super) fn place(&mut self, base: &str, parent_package: &str) {
        base.clone_into(&mut self.base);
        parent_package.clone_into(&mut self.parent_package);
        if let Some(package) = &self.package
            && package.contains("_group_")
        {
            self.package = Some(format!(
                "_global_.{}",
                package.replace("_group_", &self.default_package())
            ));
        }
    }

    /// Applies the file's `# @package` header, whose package is always relative to the root.
    pub(super) fn set_header(&mut self, package: Option<&str>) {
        self.header = package.map(|package| match package {
            "" | "_global_" => "_global_".to_owned(),
            given if given.starts_with("_global_.") => given.to_owned(),
            given => format!("_global_.{given}"),
        });
    }

    pub(super) fn group_path(&self) -> String {
        match &self.target {
            ElementTarget::Own => self.base.clone(),
            ElementTarget::Group { group, .. } => self.under_base(group),
            ElementTarget::Config(path) => {
                let (group, _) = path.rsplit_once('/').unwrap_or(("", path));
                if path.starts_with('/') {
                    group.trim_start_matches('/').to_owned()
                } else {
                    self.under_base(group)
                }
            }
        }
    }

    pub(super) fn config_path(&self) -> String {
        match &self.target {
            ElementTarget::Own => self.base.clone(),
            ElementTarget::Config(path) => self.under_base(path),
            ElementTarget::Group {
                choice: GroupChoice::Name(name),
                ..
            } => format!("{}/{name}", self.group_path()),
            ElementTarget::Group { .. } => self.group_path(),
        }
    }

    /// The option's name; for a configuration, the last part of its path.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.target {
            ElementTarget::Own => None,
            ElementTarget::Config(path) => Some(path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name)),
            ElementTarget::Group {
                choice: GroupChoice::Name(name),
                ..
            } => Some(name),
            ElementTarget::Group { .. } => None,
        }
    }

    pub(super) fn final_package(&self) -> String {
        self.package_with(self.package.as_deref().or(self.header.as_deref()))
    }

    /// How overrides name the entry: its group, with the package if that differs from the group's default.
    pub(super) fn override_key(&self) -> String {
        let group = self.group_path();
        let package = self.package_with(self.package.as_deref());
        if package == self.default_package() {
            return group;
        }
        format!("{group}@{}", if package.is_empty() { "_global_" } else { &package })
    }

    fn default_package(&self) -> String {
        self.group_path().replace('/', ".")
    }

    fn package_with(&self, package: Option<&str>) -> String {
        let relative = match &self.target {
            ElementTarget::Own => String::new(),
            ElementTarget::Group { group, .. } => group.trim_start_matches('/').replace('/', "."),
            ElementTarget::Config(path) => path
                .trim_start_matches('/')
                .rsplit_once('/')
                .map_or_else(String::new, |(group, _)| group.replace('/', ".")),
        };
        let own = package.map_or(relative, |package| {
            if package == "_here_" {
                String::new()
            } else {
                package.to_owned()
            }
        });
        let full = match (self.parent_package.as_str(), own.as_str()) {
            ("", own) => own.to_owned(),
            (parent, "") => parent.to_owned(),
            (parent, own) => format!("{parent}.{own}"),
        };
        match full.rfind("_global_") {
            Some(at) => full[at + "_global_".len()..].trim_start_matches('.').to_owned(),
            None => full,
        }
    }

    fn under_base(&self, path: &str) -> String {
        match path.strip_prefix('/') {
            Some(absolute) => absolute.to_owned(),
            None if self.base.is_empty() => path.to_owned(),
            None if path.is_empty() => self.base.clone(),
            None => format!("{}/{path}", self.base),
        }
    }
}

pub(super) fn read(config: &str, item: &ConfigNode) -> Result<DefaultsElement, ConfigError> {
    let refuse = |message: String| {
        Err(ConfigError::new(
            ErrorKind::Compose,
            format!("in the defaults list of '{config}': {message}"),
        )
        .from_origin(&item.origin)
        .with_hint("an entry is a name, `group: option`, or `override group: option`"))
    };
    match &item.value {
        ConfigValue::Str(text) => {
            let (path, package) = split_package(text);
            if path == "_self_" {
                return match package {
                    None => Ok(DefaultsElement::new(ElementTarget::Own, item.origin.clone())),
                    Some(_) => refuse("`_self_` takes no package".to_owned()),
                };
            }
            let mut element = DefaultsElement::new(ElementTarget::Config(path.to_owned()), item.origin.clone());
            element.package = package;
            Ok(element)
        }
        ConfigValue::Map(map) if map.len() == 1 => match map.iter().next() {
            Some((MapKey::Str(key), node)) => read_group(key, node, item).or_else(refuse),
            _ => refuse("the name of a group has to be a string".to_owned()),
        },
        ConfigValue::Map(map) => refuse(format!("an entry has {} keys instead of one", map.len())),
        other => refuse(format!("an entry is {}", other.type_name())),
    }
}

fn read_group(key: &str, node: &ConfigNode, item: &ConfigNode) -> Result<DefaultsElement, String> {
    let (group, package) = split_package(key);
    let mut words: Vec<&str> = group.split(' ').collect();
    let group = words.pop().unwrap_or_default().to_owned();
    if group.is_empty() {
        return Err("the name of a group is empty".to_owned());
    }
    let choice = match &node.value {
        ConfigValue::Null => GroupChoice::Nothing,
        ConfigValue::Str(name) => GroupChoice::Name(name.clone()),
        ConfigValue::List(items) => {
            let names = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>();
            GroupChoice::Options(names.ok_or("the options of a group have to be strings")?)
        }
        other => return Err(format!("the option of '{group}' is {}", other.type_name())),
    };
    let known = words
        .iter()
        .take_while(|word| matches!(**word, "optional" | "override"));
    let words: Vec<&str> = known.copied().collect();
    let mut element = DefaultsElement::new(ElementTarget::Group { group, choice }, item.origin.clone());
    element.package = package;
    element.optional = words.contains(&"optional");
    element.overriding = words.contains(&"override");
    Ok(element)
}

fn split_package(text: &str) -> (&str, Option<String>) {
    match text.split_once('@') {
        Some((name, package)) => (name, Some(package.split(':').next().unwrap_or_default().to_owned())),
        None => (text, None),
    }
}
