//! Which of verl's configurations a run's own is composed on, and which release of verl runs it.

use super::defaults::VerlBaseConfig;
use super::version::{ReleaseSeries, VerlRelease};
use crate::command::{self, EntryPoint};
use crate::hydra;
use crate::read::ReadInput;
use supervise_config::compose::GroupChoice;
use supervise_config::{ConfigNode, ConfigValue};
use supervise_core::spec::RunSpec;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerlBasis {
    pub(crate) tree: VerlBaseConfig,
    pub(crate) release: Option<VerlRelease>,
    /// The chosen option of the group `engine`.
    pub(crate) engine: Option<String>,
}

impl VerlBasis {
    /// Returns true if the release is this one or newer; an unknown release counts as new.
    pub(crate) fn since(&self, series: ReleaseSeries, patch: u32) -> bool {
        self.release.is_none_or(|r| r.since(series, patch))
    }

    /// Returns true for 0.4.0, which has one list of contents instead of two.
    pub(crate) fn has_one_list(&self) -> bool {
        !self.since(ReleaseSeries::V0_4, 1)
    }
}

pub(crate) fn of(input: &ReadInput<'_>, sft: bool) -> VerlBasis {
    let release = input.version.and_then(VerlRelease::of);
    let engine = engine(input, sft);
    let megatron = match engine.as_deref() {
        Some(engine) => engine == "megatron",
        None => !sft && is_all_of_megatron(input, release),
    };
    let tree = match (sft, megatron) {
        (false, false) => VerlBaseConfig::Ppo,
        (false, true) => VerlBaseConfig::PpoMegatron,
        (true, _) if is_older_sft(input, release) => VerlBaseConfig::SftOld,
        (true, false) => VerlBaseConfig::Sft,
        (true, true) => VerlBaseConfig::SftMegatron,
    };
    VerlBasis { tree, release, engine }
}

/// Returns true if the file has all of Megatron's configuration, like a copy of it from a release without groups.
fn is_all_of_megatron(input: &ReadInput<'_>, release: Option<VerlRelease>) -> bool {
    let get = |key: &str| input.composed.and_then(|c| c.tree.get(key));
    let strategy = get("actor_rollout_ref.actor.strategy").and_then(ConfigNode::as_str);
    strategy == Some("megatron")
        && super::default_keys(VerlBaseConfig::PpoMegatron, release).all(|key| get(key).is_some())
}

/// Returns true for the older SFT trainer: by the command, the keys, or a release that has no other.
fn is_older_sft(input: &ReadInput<'_>, release: Option<VerlRelease>) -> bool {
    match command::entry(input.command) {
        Some((EntryPoint::SftOld, _)) => return true,
        Some((EntryPoint::Sft | EntryPoint::SftRay, _)) => return false,
        _ => {}
    }
    if command::hydra_config(input.command).is_some_and(|c| c.name.as_deref() == Some("sft_trainer")) {
        return true;
    }
    let said = input.composed.is_some_and(|c| {
        c.layers.iter().any(|l| l.config == "sft_trainer")
            || c.tree.get("trainer.checkpoint").is_some()
            || c.tree.get("model.partial_pretrain").is_some()
    });
    said || release.is_some_and(|r| !VerlBaseConfig::Sft.is_in(r))
}

/// The chosen engine: by the file's defaults list or a value in it, by a configuration's name, or by an override.
fn engine(input: &ReadInput<'_>, sft: bool) -> Option<String> {
    let group = if sft { "engine" } else { "model_engine" };
    let megatron = |name: &str| !sft && name.ends_with("ppo_megatron_trainer");
    let mut chosen = None;
    if let Some(composed) = input.composed {
        if let Some(GroupChoice::Name(name)) = composed.choices.get(group) {
            chosen = Some(name.clone());
        }
        if composed.layers.iter().any(|l| megatron(&l.config)) {
            chosen = Some("megatron".to_owned());
        }
        if let Some(name) = composed.tree.get(group).and_then(ConfigNode::as_str) {
            chosen = Some(name.to_owned());
        }
    }
    if command::hydra_config(input.command).is_some_and(|c| c.name.as_deref().is_some_and(megatron)) {
        chosen = Some("megatron".to_owned());
    }
    let written = command::overrides_in(input.command).into_iter();
    for text in written.chain(input.set.iter().map(String::as_str)) {
        if let Ok(change) = hydra::parse(text)
            && change.key == group
            && let Some(ConfigValue::Str(option)) = change.value
        {
            chosen = Some(option);
        }
    }
    chosen
}

/// Whether a run's SFT trainer stores the dataloader state in one file; `None` if neither its command nor its release
/// tells.
pub(crate) fn one_data_file(spec: &RunSpec) -> Option<bool> {
    let release = spec.trainer_version.as_deref().and_then(VerlRelease::of);
    match (spec.trainer, command::entry(spec.trainer_command())) {
        (super::SFT, Some((EntryPoint::SftOld, _))) => Some(true),
        (super::SFT, Some((EntryPoint::Sft | EntryPoint::SftRay, _))) => Some(false),
        (super::SFT, _) => match release {
            Some(release) if !VerlBaseConfig::Sft.is_in(release) => Some(true),
            Some(release) if !VerlBaseConfig::SftOld.is_in(release) => Some(false),
            _ => None,
        },
        _ => None,
    }
}
