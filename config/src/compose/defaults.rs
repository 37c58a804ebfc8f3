//! Flattens nested defaults lists.
//!
//! A list is walked from its end, because the last override decides what an earlier entry loads. Entries whose option is an interpolation
//! wait until all others of their list are known.

use std::collections::{BTreeMap, BTreeSet};

use super::element::{DefaultsElement, ElementTarget};
use super::list::{collapsed, complete_self, is_interpolated, refuse, resolve_name, singles};
use super::{ComposedConfig, ConfigLoader, GroupChoice, GroupOverride, LoadResult, LoadedConfig, read};
use crate::error::{ConfigError, ConfigFinding, ErrorKind};
use crate::tree::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin};

const MAX_NESTING: usize = 32;
const MAX_ENTRIES: usize = 10_000;

/// An entry's final elements, or the entry itself while its name waits for an interpolation.
type Visited = (Option<DefaultsElement>, Vec<DefaultsElement>);

struct Pending {
    choice: GroupChoice,
    /// The configuration that contains it; `None` for the command line.
    from: Option<(String, ValueOrigin)>,
    used: bool,
}

pub(super) struct Walk<'a> {
    loader: &'a dyn ConfigLoader,
    /// `None` for a configuration that the trainer has.
    loaded: BTreeMap<String, Option<LoadedConfig>>,
    overrides: BTreeMap<String, Pending>,
    appended: Vec<DefaultsElement>,
    deletions: BTreeMap<String, (Option<String>, bool)>,
    known: BTreeMap<String, GroupChoice>,
    trainers: BTreeSet<String>,
    /// Configurations not found here, each with the error to report if the trainer does not have it.
    unknown: BTreeMap<String, Option<ConfigError>>,
    visited: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(loader: &'a dyn ConfigLoader, overrides: &[GroupOverride]) -> Self {
        let mut walk = Self {
            loader,
            loaded: BTreeMap::new(),
            overrides: BTreeMap::new(),
            appended: Vec::new(),
            deletions: BTreeMap::new(),
            known: BTreeMap::new(),
            trainers: BTreeSet::new(),
            unknown: BTreeMap::new(),
            visited: 0,
        };
        for change in overrides {
            walk.note(change);
        }
        walk
    }

    fn note(&mut self, change: &GroupOverride) {
        match change {
            GroupOverride::Choose { key, choice } => {
                self.overrides.insert(
                    key.clone(),
                    Pending {
                        choice: choice.clone(),
                        from: None,
                        used: false,
                    },
                );
            }
            GroupOverride::Append { group, package, choice } => {
                let target = ElementTarget::Group {
                    group: group.clone(),
                    choice: choice.clone(),
                };
                let mut element = DefaultsElement::new(
                    target,
                    ValueOrigin::Override {
                        text: format!("+{group}"),
                    },
                );
                element.package = package.clone();
                element.appended = true;
                self.appended.push(element);
            }
            GroupOverride::Delete { key, option } => {
                self.deletions.insert(key.clone(), (option.clone(), false));
            }
        }
    }

    /// Returns the flat list of a configuration.
    pub(super) fn expand(&mut self, name: &str) -> Result<Vec<DefaultsElement>, ConfigError> {
        let mut root = DefaultsElement::new(
            ElementTarget::Config(name.to_owned()),
            ValueOrigin::Default { of: name.to_owned() },
        );
        root.primary = true;
        let list = self.visit(root, None, 0, false)?;
        let mut seen = BTreeSet::new();
        for element in list
            .iter()
            .filter(|element| matches!(element.target, ElementTarget::Group { .. }))
        {
            let key = element.override_key();
            if !seen.insert(key.clone()) {
                return Err(refuse(
                    &format!("'{key}' appears more than once in the final defaults list"),
                    &element.origin,
                ));
            }
        }
        Ok(list)
    }

    pub(super) fn choices(&self) -> BTreeMap<String, GroupChoice> {
        self.known.clone()
    }

    /// Loads a configuration once. `None`: the trainer has it.
    pub(super) fn load(&mut self, config: &str) -> Result<Option<LoadedConfig>, ConfigError> {
        match self.find(config)? {
            Some(found) => Ok(found),
            None => Err(ConfigError::new(
                ErrorKind::Compose,
                format!("there is no configuration '{config}'"),
            )),
        }
    }

    /// The outer `None`: not found anywhere.
    fn find(&mut self, config: &str) -> Result<Option<Option<LoadedConfig>>, ConfigError> {
        let config = &collapsed(config);
        if let Some(known) = self.loaded.get(config) {
            return Ok(Some(known.clone()));
        }
        let found = match self.loader.load(config)? {
            LoadResult::Missing => return Ok(None),
            LoadResult::ByTrainer => None,
            LoadResult::Unknown => {
                self.unknown.insert(config.to_owned(), None);
                None
            }
            LoadResult::Text { text, file } => Some(read(config, &text, &file)?),
        };
        if found.is_none() {
            self.trainers.insert(config.to_owned());
        }
        self.loaded.insert(config.to_owned(), found.clone());
        Ok(Some(found))
    }

    /// Returns the entry and everything below it, in order.
    fn visit(
        &mut self,
        mut element: DefaultsElement,
        parent: Option<&str>,
        depth: usize,
        interpolated: bool,
    ) -> Result<Vec<DefaultsElement>, ConfigError> {
        self.visited += 1;
        if depth > MAX_NESTING || self.visited > MAX_ENTRIES {
            return Err(refuse(
                "the defaults lists nest too deeply or go in a circle",
                &element.origin,
            ));
        }
        if matches!(
            element.target,
            ElementTarget::Group {
                choice: GroupChoice::Nothing,
                ..
            }
        ) {
            if !self.delete(&element) {
                self.know(&element)?;
            }
            return Ok(Vec::new());
        }
        let config = element.config_path();
        if config.ends_with("???") {
            let options = self.loader.options(&element.group_path()).join(", ");
            return Err(refuse(
                &format!("an option for '{}' has to be chosen", element.override_key()),
                &element.origin,
            )
            .with_hint(format!(
                "add {}=OPTION to the command; options: {options}",
                element.override_key()
            )));
        }
        let found = self.find(&config)?;
        element.set_header(
            found
                .as_ref()
                .and_then(Option::as_ref)
                .and_then(|loaded| loaded.package.as_deref()),
        );
        if self.delete(&element) {
            return Ok(Vec::new());
        }
        self.know(&element)?;
        match found {
            None if element.optional => Ok(Vec::new()),
            None => Err(self.not_found(&element, parent)),
            Some(None) => {
                self.doubt(&element, parent);
                Ok(vec![element])
            }
            Some(Some(loaded)) => self.visit_list(element, &config, loaded, depth, interpolated),
        }
    }

    fn visit_list(
        &mut self,
        element: DefaultsElement,
        config: &str,
        loaded: LoadedConfig,
        depth: usize,
        interpolated: bool,
    ) -> Result<Vec<DefaultsElement>, ConfigError> {
        let mut list = loaded.defaults;
        let appended = if element.primary {
            std::mem::take(&mut self.appended)
        } else {
            Vec::new()
        };
        if list.is_empty() && appended.is_empty() {
            return Ok(vec![element]);
        }
        complete_self(&mut list, config)?;
        list.extend(appended);
        let group = element.group_path();
        let package = element.final_package();
        for entry in &mut list {
            if entry.target != ElementTarget::Own {
                entry.place(&group, &package);
            }
        }
        self.note_overrides(&list, config, interpolated)?;
        let mut children = self.visit_entries(&list, &element, config, depth, interpolated)?;
        self.resolve_waiting(&list, &mut children, config, depth)?;
        Ok(children.into_iter().rev().flat_map(|(_, elements)| elements).collect())
    }

    /// Visits a list's entries, last first. Entries that wait for an interpolation are marked.
    fn visit_entries(
        &mut self,
        list: &[DefaultsElement],
        element: &DefaultsElement,
        config: &str,
        depth: usize,
        interpolated: bool,
    ) -> Result<Vec<Visited>, ConfigError> {
        let mut children = Vec::new();
        for entry in list.iter().rev().filter(|entry| !entry.overriding) {
            if entry.target == ElementTarget::Own {
                children.push((None, vec![element.clone()]));
                continue;
            }
            let mut entry = entry.clone();
            self.take_override(&mut entry);
            for single in singles(&entry)?.into_iter().rev() {
                if is_interpolated(&single) {
                    children.push((Some(single), Vec::new()));
                } else {
                    children.push((None, self.visit(single, Some(config), depth + 1, interpolated)?));
                }
            }
        }
        Ok(children)
    }

    fn resolve_waiting(
        &mut self,
        list: &[DefaultsElement],
        children: &mut [Visited],
        config: &str,
        depth: usize,
    ) -> Result<(), ConfigError> {
        if children.iter().all(|(waiting, _)| waiting.is_none()) {
            return Ok(());
        }
        let choices = self.choice_tree(list);
        for (waiting, elements) in children {
            let Some(mut element) = waiting.take() else { continue };
            let name = match &mut element.target {
                ElementTarget::Group {
                    choice: GroupChoice::Name(name),
                    ..
                }
                | ElementTarget::Config(name) => name,
                _ => continue,
            };
            *name = resolve_name(&choices, name).map_err(|error| {
                refuse(
                    &format!(
                        "in '{config}', the option '{name}' cannot be determined: {}",
                        error.message
                    ),
                    &element.origin,
                )
            })?;
            *elements = self.visit(element, Some(config), depth + 1, true)?;
        }
        Ok(())
    }

    /// Builds the tree that interpolated names refer to: the choices so far.
    fn choice_tree(&self, list: &[DefaultsElement]) -> ConfigTree {
        let origin = ValueOrigin::Default {
            of: "the defaults list".to_owned(),
        };
        let node = |choice: &GroupChoice| match choice {
            GroupChoice::Nothing => ConfigNode::new(ConfigValue::Null, origin.clone()),
            GroupChoice::Name(name) => ConfigNode::new(ConfigValue::Str(name.clone()), origin.clone()),
            GroupChoice::Options(names) => {
                let names = names
                    .iter()
                    .map(|name| ConfigNode::new(ConfigValue::Str(name.clone()), origin.clone()));
                ConfigNode::new(ConfigValue::List(names.collect()), origin.clone())
            }
        };
        let mut map: ConfigMap = self
            .known
            .iter()
            .map(|(key, choice)| (MapKey::Str(key.clone()), node(choice)))
            .collect();
        let listed = list.iter().filter_map(|entry| match &entry.target {
            ElementTarget::Own => None,
            ElementTarget::Config(_) => Some(ConfigNode::new(ConfigValue::Str(entry.config_path()), origin.clone())),
            ElementTarget::Group { choice, .. } => {
                let map: ConfigMap = [(MapKey::Str(entry.override_key()), node(choice))]
                    .into_iter()
                    .collect();
                Some(ConfigNode::new(ConfigValue::Map(map), origin.clone()))
            }
        });
        let listed = ConfigNode::new(ConfigValue::List(listed.collect()), origin.clone());
        map.insert(MapKey::from("defaults"), listed);
        ConfigTree::new(ConfigNode::new(ConfigValue::Map(map), origin))
    }

    fn note_overrides(
        &mut self,
        list: &[DefaultsElement],
        config: &str,
        interpolated: bool,
    ) -> Result<(), ConfigError> {
        let mut seen = false;
        for entry in list.iter().filter(|entry| entry.target != ElementTarget::Own) {
            if seen && !entry.overriding && !entry.appended {
                let message = format!("in '{config}', '{}' comes after an override", entry.override_key());
                return Err(
                    refuse(&message, &entry.origin).with_hint("move the `override` entries to the end of the list")
                );
            }
            let ElementTarget::Group { choice, .. } = &entry.target else {
                continue;
            };
            if !entry.overriding {
                continue;
            }
            seen = true;
            let key = entry.override_key();
            if interpolated {
                let message =
                    format!("in '{config}', '{key}' is overridden below a group whose option is an interpolation");
                return Err(refuse(&message, &entry.origin));
            }
            let from = Some((config.to_owned(), entry.origin.clone()));
            self.overrides.entry(key).or_insert_with(|| Pending {
                choice: choice.clone(),
                from,
                used: false,
            });
        }
        Ok(())
    }

    fn take_override(&mut self, entry: &mut DefaultsElement) {
        let key = entry.override_key();
        if let (ElementTarget::Group { choice, .. }, Some(pending)) = (&mut entry.target, self.overrides.get_mut(&key))
        {
            choice.clone_from(&pending.choice);
            pending.used = true;
        }
    }

    /// Whether the command line deletes the entry.
    fn delete(&mut self, element: &DefaultsElement) -> bool {
        if !matches!(element.target, ElementTarget::Group { .. }) {
            return false;
        }
        match self.deletions.get_mut(&element.override_key()) {
            Some((option, used)) if option.is_none() || option.as_deref() == element.name() => {
                *used = true;
                true
            }
            _ => false,
        }
    }

    fn know(&mut self, element: &DefaultsElement) -> Result<(), ConfigError> {
        let ElementTarget::Group { choice, .. } = &element.target else {
            return Ok(());
        };
        let key = element.override_key();
        match self.known.get(&key) {
            Some(earlier) if earlier != choice => {
                Err(refuse(&format!("'{key}' is given two options"), &element.origin)
                    .with_hint(format!("to change an earlier choice write `override {key}: option`")))
            }
            _ => {
                self.known.insert(key, choice.clone());
                Ok(())
            }
        }
    }

    /// Checks that every override matched an entry, unless that entry may be in one of the trainer's lists.
    pub(super) fn check_used(&self, composed: &mut ComposedConfig) -> Result<(), ConfigError> {
        for (key, pending) in self.overrides.iter().filter(|(_, pending)| !pending.used) {
            let origin = pending.from.as_ref().map(|(_, origin)| origin.clone());
            if key.starts_with("hydra/") || !self.trainers.is_empty() {
                let message = format!("the choice for '{key}' concerns a list that is not read here");
                composed.findings.push(ConfigFinding {
                    code: "group_of_trainer",
                    message,
                    origin,
                });
                composed.choices.insert(key.clone(), pending.choice.clone());
                continue;
            }
            let origin = origin.unwrap_or(ValueOrigin::Override { text: key.clone() });
            return Err(refuse(
                &format!("Could not override '{key}': no entry of the defaults list has this group"),
                &origin,
            )
            .with_hint(format!("to add the group use +{key}=OPTION")));
        }
        for (key, (_, used)) in &self.deletions {
            if !used && self.trainers.is_empty() {
                let origin = ValueOrigin::Override {
                    text: format!("~{key}"),
                };
                return Err(refuse(
                    &format!("Could not delete '{key}': no entry of the defaults list has this group"),
                    &origin,
                ));
            }
        }
        Ok(())
    }

    /// Records the error to report if the trainer does not have this entry. An optional one may be missing.
    fn doubt(&mut self, element: &DefaultsElement, parent: Option<&str>) {
        let config = collapsed(&element.config_path());
        if self.unknown.contains_key(&config) && !element.optional {
            let error = self.not_found(element, parent);
            self.unknown.insert(config, Some(error));
        }
    }

    /// Returns the errors that apply if the trainer does not have the configurations not found here.
    pub(super) fn take_unknown(&mut self) -> Vec<ConfigError> {
        std::mem::take(&mut self.unknown).into_values().flatten().collect()
    }

    fn not_found(&self, element: &DefaultsElement, parent: Option<&str>) -> ConfigError {
        let inside = parent.map(|parent| format!("in '{parent}': ")).unwrap_or_default();
        let error = refuse(
            &format!("{inside}there is no configuration '{}'", element.config_path()),
            &element.origin,
        );
        let options = self.loader.options(&element.group_path());
        if options.is_empty() {
            error.with_hint("check the name, and that the file lies beside the primary configuration")
        } else {
            error.with_hint(format!("options of '{}': {}", element.group_path(), options.join(", ")))
        }
    }
}
