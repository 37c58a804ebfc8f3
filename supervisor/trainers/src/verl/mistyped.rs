//! Keys that are almost one of verl's: most likely typos.
//!
//! We do not know verl's whole configuration, so a key is doubted only if it is very close to a known one that is not
//! also set, and no release knows it.

use super::defaults::{VerlBaseConfig, default_keys};
use super::version::VerlRelease;
use std::collections::BTreeSet;
use supervise_config::{ConfigError, ConfigTree, ValueOrigin, edit_distance};
use supervise_core::checkpoint::Finding;

/// Shorter names are close to too many others.
const SHORTEST: usize = 5;
/// Letters that may differ.
const SLIPS: usize = 2;

/// Suggests the probable key for each typo: in the error that it caused, else as a finding.
pub(crate) fn check(tree: &ConfigTree, problems: &mut [ConfigError], findings: &mut Vec<Finding>) {
    let known: BTreeSet<&str> = VerlBaseConfig::ALL
        .into_iter()
        .flat_map(|tree| {
            let releases = VerlRelease::KNOWN.into_iter().map(Some);
            releases.flat_map(move |release| default_keys(tree, release))
        })
        .collect();
    let said = |key: &str| {
        tree.get(key)
            .is_some_and(|n| !matches!(n.origin, ValueOrigin::Default { .. }))
    };
    for (path, node) in tree.leaves() {
        if !said(&path) || known.contains(path.as_str()) {
            continue;
        }
        // Hydra takes a new key only with `+`.
        let is_refused = is_override_without_plus(&node.origin);
        let Some(meant) = nearest(&path, &known).filter(|meant| is_refused || !said(meant)) else {
            continue;
        };
        let hint = format!("{}: there is no `{path}` in verl; did you mean `{meant}`?", node.origin);
        match problems.iter_mut().find(|p| p.key.as_deref() == Some(meant)) {
            Some(problem) => problem.hint = Some(hint),
            None => findings.push(Finding::warning("mistyped_key", hint)),
        }
    }
}

/// `--set trainer.sav_freq=20`, `trainer.sav_freq=20` in the command.
fn is_override_without_plus(origin: &ValueOrigin) -> bool {
    match origin {
        ValueOrigin::Flag { text } | ValueOrigin::Override { text } => {
            !text.trim_start_matches("--set ").starts_with('+')
        }
        _ => false,
    }
}

fn nearest<'a>(path: &str, known: &BTreeSet<&'a str>) -> Option<&'a str> {
    let (above, name) = path.rsplit_once('.')?;
    if name.len() < SHORTEST {
        return None;
    }
    let beside = known.iter().filter_map(|key| {
        key.rsplit_once('.')
            .filter(|(parent, _)| *parent == above)
            .map(|(_, name)| (*key, name))
    });
    let scored = beside.map(|(key, other)| (edit_distance(name, other), key));
    let (slips, key) = scored.min()?;
    (slips <= SLIPS && slips * 3 <= name.len()).then_some(key)
}
