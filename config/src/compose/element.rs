//! One entry of a defaults list: where its configuration lies and into which package it goes.

use super::Choice;
use crate::error::{ConfigError, ErrorKind};
use crate::tree::{Key, Node, Origin, Value};

/// Target of an entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    /// `_self_`: the configuration the list stands in.
    Own,
    /// `path` or `group/path`.
    Config(String),
    /// `group: choice`.
    Group { group: String, choice: Choice },
}

/// An entry. `base` and `parent_package` come from the configuration it stands in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Element {
    pub(super) target: Target,
    pub(super) package: Option<String>,
    pub(super) optional: bool,
    pub(super) overriding: bool,
    pub(super) appended: bool,
    pub(super) primary: bool,
    pub(super) base: String,
    pub(super) parent_package: String,
    pub(super) header: Option<String>,
    pub(super) origin: Origin,
}

impl Element {
    pub(super) fn new(target: Target, origin: Origin) -> Self {
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

    /// Places the entry under the configuration whose list holds it.
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

    /// Takes over the header of its file, which is always meant from the root.
    pub(super) fn set_header(&mut self, package: Option<&str>) {
        self.header = package.map(|package| match package {
            "" | "_global_" => "_global_".to_owned(),
            given if given.starts_with("_global_.") => given.to_owned(),
            given => format!("_global_.{given}"),
        });
    }

    /// The group a configuration lies in.
    pub(super) fn group_path(&self) -> String {
        match &self.target {
            Target::Own => self.base.clone(),
            Target::Group { group, .. } => self.under_base(group),
            Target::Config(path) => {
                let (group, _) = path.rsplit_once('/').unwrap_or(("", path));
                if path.starts_with('/') {
                    group.trim_start_matches('/').to_owned()
                } else {
                    self.under_base(group)
                }
            }
        }
    }

    /// The name under which a loader knows the configuration.
    pub(super) fn config_path(&self) -> String {
        match &self.target {
            Target::Own => self.base.clone(),
            Target::Config(path) => self.under_base(path),
            Target::Group {
                choice: Choice::Name(name),
                ..
            } => format!("{}/{name}", self.group_path()),
            Target::Group { .. } => self.group_path(),
        }
    }

    /// The option's name; for a configuration the last part of its path.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.target {
            Target::Own => None,
            Target::Config(path) => Some(path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name)),
            Target::Group {
                choice: Choice::Name(name),
                ..
            } => Some(name),
            Target::Group { .. } => None,
        }
    }

    pub(super) fn final_package(&self) -> String {
        self.package_with(self.package.as_deref().or(self.header.as_deref()))
    }

    /// How overrides name the entry: its group, with the package where that is not the group's own.
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
            Target::Own => String::new(),
            Target::Group { group, .. } => group.trim_start_matches('/').replace('/', "."),
            Target::Config(path) => path
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

/// Reads an entry as it is written in a list.
pub(super) fn read(config: &str, item: &Node) -> Result<Element, ConfigError> {
    let refuse = |message: String| {
        Err(ConfigError::new(
            ErrorKind::Compose,
            format!("in the defaults list of '{config}': {message}"),
        )
        .from_origin(&item.origin)
        .with_hint("an entry is a name, `group: option`, or `override group: option`"))
    };
    match &item.value {
        Value::Str(text) => {
            let (path, package) = split_package(text);
            if path == "_self_" {
                return match package {
                    None => Ok(Element::new(Target::Own, item.origin.clone())),
                    Some(_) => refuse("`_self_` takes no package".to_owned()),
                };
            }
            let mut element = Element::new(Target::Config(path.to_owned()), item.origin.clone());
            element.package = package;
            Ok(element)
        }
        Value::Map(map) if map.len() == 1 => match map.iter().next() {
            Some((Key::Str(key), node)) => read_group(key, node, item).or_else(refuse),
            _ => refuse("the name of a group has to be a string".to_owned()),
        },
        Value::Map(map) => refuse(format!("an entry has {} keys instead of one", map.len())),
        other => refuse(format!("an entry is {}", other.type_name())),
    }
}

fn read_group(key: &str, node: &Node, item: &Node) -> Result<Element, String> {
    let (group, package) = split_package(key);
    let mut words: Vec<&str> = group.split(' ').collect();
    let group = words.pop().unwrap_or_default().to_owned();
    if group.is_empty() {
        return Err("the name of a group is empty".to_owned());
    }
    let choice = match &node.value {
        Value::Null => Choice::Nothing,
        Value::Str(name) => Choice::Name(name.clone()),
        Value::List(items) => {
            let names = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>();
            Choice::Options(names.ok_or("the options of a group have to be strings")?)
        }
        other => return Err(format!("the option of '{group}' is {}", other.type_name())),
    };
    let known = words
        .iter()
        .take_while(|word| matches!(**word, "optional" | "override"));
    let words: Vec<&str> = known.copied().collect();
    let mut element = Element::new(Target::Group { group, choice }, item.origin.clone());
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
