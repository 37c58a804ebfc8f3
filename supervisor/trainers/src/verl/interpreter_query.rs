//! The limits of our verl tables, and asking verl itself instead.
//!
//! If a release, a configuration or an entry point is in no table, the interpreter that would run it is asked. The
//! values are verl's; the user's file and overrides only show where each was set.

use super::{VerlBasis, VerlConfigReader, read};
use crate::adapter::Asks;
use crate::command::{self, EntryPoint};
use crate::hydra;
use crate::read::ReadInput;
use crate::rehearsal::composes;
use supervise_config::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, ValueOrigin};

const ROOT: &str = "trainer.default_local_dir";
/// Keys of verl modules that train and save like PPO.
const PPOS: [&str; 2] = [ROOT, "actor_rollout_ref"];

/// The question for verl, if our tables leave one open.
pub(super) fn asks(input: &ReadInput<'_>, sft: bool) -> Option<Asks> {
    if super::easyr1::refused(input).is_some() || super::untrained::refused(input).is_some() {
        return None;
    }
    let basis = super::basis(input, sft);
    let why = open(input, &basis)?;
    let command = call(input, &basis)?;
    let words = composes(&command)?.into_iter().map(elsewhere).collect();
    let foreign = command::entry(input.command).filter(|(entry, _)| *entry == EntryPoint::Foreign);
    let only_if = foreign.map(|(_, at)| (input.command[at - 1].clone(), "hydra.main"));
    Some(Asks {
        why,
        command,
        words,
        only_if,
    })
}

fn call(input: &ReadInput<'_>, basis: &VerlBasis) -> Option<Vec<String>> {
    let config = input.config_file.map(|file| file.as_str());
    let (command, _) = read::launch(input, basis).ok()?;
    Some(command::fill(&command, input.set, config))
}

/// A program that trains instead of answering must have nowhere to save.
fn elsewhere(word: String) -> String {
    match word.split_once('=') {
        Some((key, _)) if command::override_key(&word) == ROOT => format!("{key}=/dev/null/nowhere"),
        _ => word,
    }
}

fn open(input: &ReadInput<'_>, basis: &VerlBasis) -> Option<String> {
    let found = command::entry(input.command);
    match found {
        Some((EntryPoint::Foreign, at)) => {
            return Some(format!(
                "`{}` is no module of verl that is known",
                input.command[at - 1]
            ));
        }
        Some((EntryPoint::Other, at)) if super::call::is_call(input.command) => {
            return Some(format!("what `{}` saves is not known", input.command[at - 1]));
        }
        None if !input.command.is_empty() => return None,
        _ => {}
    }
    let overrides = command::overrides_in(input.command);
    let mut said = overrides.iter().copied().chain(input.set.iter().map(String::as_str));
    let searches = said.any(|text| command::override_key(text) == "hydra.searchpath") && input.config_file.is_none();
    let is_said = |key: &str| overrides.iter().any(|text| command::override_key(text) == key);
    let is_unknown = input.composed.is_some_and(|c| !c.unknown.is_empty());
    if is_unknown {
        return Some("its defaults list names a configuration that is not known here".to_owned());
    }
    if read::names_unread(input) || searches || read::is_recipe_without_place(input, is_said) {
        return Some("the command's configuration is not read here".to_owned());
    }
    let version = input.version.filter(|_| basis.release.is_none())?;
    Some(format!("verl {version} is not known here"))
}

/// verl's composed configuration with the origin of each user value, and with the user's own root.
pub(super) fn with_origins(printed: &ConfigTree, input: &ReadInput<'_>, basis: &VerlBasis) -> ConfigTree {
    let by = ValueOrigin::Composed { by: "verl".to_owned() };
    let mut tree = ConfigTree::new(placed(&printed.root, &by));
    let call = call(input, basis).unwrap_or_default();
    let roots = call
        .iter()
        .filter(|word| command::override_key(word) == ROOT && command::is_override(word));
    if let Some(root) = roots.filter_map(|text| hydra::parse(text).ok()?.value).next_back() {
        // Nothing is added if the trainer does not have the key.
        let _ = tree.set(ROOT, ConfigNode::new(root, by));
    }
    let mut said: Vec<(String, ValueOrigin)> = Vec::new();
    if let Some(composed) = input.composed {
        said.extend(
            composed
                .tree
                .leaves()
                .into_iter()
                .map(|(key, n)| (key, n.origin.clone())),
        );
    }
    let written = command::overrides_in(input.command).into_iter();
    let changes = written.filter_map(|text| hydra::parse(text).ok());
    said.extend(changes.map(|change| (change.key.clone(), change.origin())));
    said.extend(input.set.iter().map(|text| {
        let origin = ValueOrigin::Flag {
            text: format!("--set {text}"),
        };
        (command::override_key(text).to_owned(), origin)
    }));
    for (key, origin) in said {
        if let Some(node) = tree.get(&key).map(|node| placed(node, &origin)) {
            // The key exists: nothing is added.
            let _ = tree.set(&key, node);
        }
    }
    tree
}

fn placed(node: &ConfigNode, origin: &ValueOrigin) -> ConfigNode {
    let value = match &node.value {
        ConfigValue::Map(map) => {
            let mut out = ConfigMap::new();
            for (key, child) in map.iter() {
                out.insert(key.clone(), placed(child, origin));
            }
            ConfigValue::Map(out)
        }
        ConfigValue::List(items) => ConfigValue::List(items.iter().map(|item| placed(item, origin)).collect()),
        value => value.clone(),
    };
    ConfigNode::new(value, origin.clone())
}

/// Checks that the result is a verl configuration, and notes assumptions about an unknown trainer.
pub(super) fn check(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>, sft: bool) {
    let (entry, at) = command::entry(input.command).unzip();
    let module = at
        .and_then(|at: usize| input.command.get(at - 1))
        .map_or("", String::as_str);
    if !matches!(entry, Some(EntryPoint::Foreign | EntryPoint::Other)) {
        return;
    }
    match PPOS.iter().find(|key| sft || !reader.has(key)) {
        Some(key) => reader.no_recovery(
            "layout_unknown",
            "command",
            format!("the configuration of `{module}` has no {key}: it is none of verl's PPO, and what it saves is not known"),
            "supervise it as it is (--set supervisor.trainer=plain)",
        ),
        None => reader.warn(
            "entry_assumed",
            "command",
            format!("`{module}` is not known, and its configuration is verl's: it is taken for a trainer built on RayPPOTrainer, which saves global_step_N there and resumes by trainer.resume_mode; `auto` stays as it is written, and the tracker names the step"),
        ),
    }
}
