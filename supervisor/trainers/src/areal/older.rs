//! AReaL releases older than we support: recognized, and supervised as they are if recovery is off.
//!
//! Until 0.5.3 keys, defaults and resuming differ: what is read here would be wrong for them.

use super::call::{self, ArealLauncher};
use super::live::ArealSpec;
use super::trial_dirs::place;
use crate::kit::ConfigReader;
use crate::read::{ReadInput, ReadOutput};
use supervise_config::interpolation::Env;
use supervise_config::{ConfigError, ConfigTree, ErrorKind, ValueOrigin};
use supervise_core::checkpoint::Finding;
use supervise_core::spec::{GangSpec, InPlaceSpec, LauncherKind};

const KNOWN: &str = "1.0";

/// The release as text, if it is too old.
pub(super) fn release(input: &ReadInput<'_>) -> Option<String> {
    match input.version {
        Some(version) => is_older(version).then(|| format!("AReaL {version}")),
        None => has_its_keys(input).then(|| "this release of AReaL (allocation_mode, and no actor.backend)".to_owned()),
    }
}

fn is_older(version: &str) -> bool {
    let first = version.trim().trim_start_matches('v').split('.').next();
    first == Some("0")
}

/// Since 1.0 each engine names its own backend.
fn has_its_keys(input: &ReadInput<'_>) -> bool {
    let written = call::overrides(input.command).into_iter();
    let mut said = written.chain(input.set.iter().map(String::as_str));
    input.composed.is_some_and(|c| is_configured(&c.tree)) && !said.any(|text| text.contains("actor.backend"))
}

/// Returns true if the file sets `allocation_mode` and no backend of an engine.
pub(super) fn is_configured(tree: &ConfigTree) -> bool {
    let is_written = |key: &str| {
        let node = tree.get(key);
        node.is_some_and(|node| !matches!(node.origin, ValueOrigin::Default { .. }))
    };
    is_written("allocation_mode") && !is_written("actor.backend")
}

pub(super) fn proposal() -> Vec<String> {
    let words = ["python3", "-m", "areal.launcher.local", "YOUR_SCRIPT.py"];
    words.map(str::to_owned).into()
}

/// Reads a run without any protection.
///
/// # Errors
/// Recovery is on, but how it saves and resumes is unknown.
pub(super) fn read(input: &ReadInput<'_>, release: &str, env: Env<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    if input.recovery {
        let text = format!(
            "{release} is not known here: known from {KNOWN} on. Before, keys and resumes are others, so nothing of this configuration was read"
        );
        let hint = "--no-recovery supervises it as it is: it is started again after a failure, and AReaL resumes by its own recover.mode; nothing that it saves is proven or kept. If another release runs, supervisor.trainer_version says which";
        return Err(vec![ConfigError::new(ErrorKind::BadValue, text).with_hint(hint)]);
    }
    let form = call::form(input);
    let tree = input.composed.map(|c| c.tree.clone());
    let mut out = ReadOutput::blank(super::AREAL);
    let place = tree
        .as_ref()
        .and_then(|tree| place(&mut ConfigReader::new(tree, (), env, false), input));
    out.root = place.as_ref().map(|place| place.root.clone());
    let kept = place.map(|place| InPlaceSpec {
        exit_says_nothing: matches!(form, ArealLauncher::Launcher(_)),
        spread: std::collections::BTreeMap::new(),
        store: place.store,
        own: ArealSpec {
            user: place.user,
            ..ArealSpec::default()
        }
        .own(),
    });
    out.saves = kept.into();
    out.tree = tree.unwrap_or(out.tree);
    if let Some(workers) = input.workers.filter(|_| form == ArealLauncher::Ranks) {
        out.gang = GangSpec {
            launcher: LauncherKind::Gang,
            workers,
            ..out.gang
        };
    }
    out.command = call::with_config(input.command);
    out.facts.settings = input.set.to_vec();
    out.recovery = false;
    out.findings.push(Finding::warning(
        "version_unknown",
        format!("{release} is not known here (known from {KNOWN} on): it is started as it is, and nothing that it saves is proven or kept"),
    ));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_before_the_first_known_are_told() {
        for (version, older) in [
            ("0.5.3", true),
            ("0.3.0.post2", true),
            ("1.0.4", false),
            ("1.0.0rc1", false),
            ("2.0.0", false),
            ("10.0", false),
        ] {
            assert_eq!(is_older(version), older, "{version}");
        }
    }
}
