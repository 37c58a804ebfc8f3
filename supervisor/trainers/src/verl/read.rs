//! Reading verl's configuration into a run's specification.
//!
//! Sources, lowest precedence first: verl's own defaults, the user's YAML after composition, overrides in the
//! command, `--set`. Values keep their origin throughout, so that an error names the file and line, or the flag, to
//! change.

use super::{PPO, SFT, VerlBaseConfig, VerlBasis, VerlConfigReader};
use crate::command::{self, EntryPoint};
use crate::hydra;
use crate::read::{ReadInput, ReadOutput};
use camino::Utf8Path;
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ConfigValue, ValueOrigin};
use supervise_core::checkpoint::Finding;
use supervise_core::spec::TrainerKind;

/// Groups of verl's configuration: a plain name assigned to one selects a file instead of setting a value.
pub(crate) const GROUPS: [&str; 5] = ["model_engine", "engine", "optim", "model", "profiler"];

/// Configurations at the top of the folder that verl installs.
pub(super) const OWN_CONFIGS: [&str; 12] = [
    "ppo_trainer",
    "ppo_megatron_trainer",
    "one_step_off_ppo_trainer",
    "one_step_off_ppo_megatron_trainer",
    "fully_async_ppo_trainer",
    "fully_async_ppo_megatron_trainer",
    "sft_trainer_engine",
    "sft_trainer",
    "evaluation",
    "generation",
    "legacy_reward_impl",
    "reward_manager",
];

/// verl's own configurations whose content is known.
const VERLS_OWN: [&str; 8] = [
    "ppo_trainer",
    "ppo_megatron_trainer",
    "sft_trainer_engine",
    "sft_trainer",
    "one_step_off_ppo_trainer",
    "one_step_off_ppo_megatron_trainer",
    "fully_async_ppo_trainer",
    "fully_async_ppo_megatron_trainer",
];

/// Keys of the configurations of verl's other trainers, with their entry points.
const OTHER_ENTRIES: [(&str, &str); 3] = [
    (
        "async_training",
        "verl.experimental.fully_async_policy.fully_async_main",
    ),
    (
        "rollout.n_gpus_per_node",
        "verl.experimental.one_step_off_policy.main_ppo",
    ),
    ("env.rollout", "verl.experimental.vla.main_ppo"),
];

/// Hydra's search path for verl's own configurations.
const VERLS_PLACE: &str = "pkg://verl.trainer.config";

/// Reads a configuration.
///
/// # Errors
/// Everything that is wrong with it, each with its key, its location and a hint.
pub(super) fn read(input: &ReadInput<'_>, sft: bool) -> Result<ReadOutput, Vec<ConfigError>> {
    if let Some(error) = super::easyr1::refused(input).or_else(|| super::untrained::refused(input)) {
        return Err(vec![error]);
    }
    let basis = super::basis(input, sft);
    let tree = effective(input, &basis)?;
    let mut reader = VerlConfigReader::new(&tree, &basis, input.env, input.recovery);
    check_version(&mut reader, input.version);
    check_composed(&mut reader, input);
    check_order(&mut reader, input.composed);
    check_other_entry(&mut reader, input);
    match input.printed {
        Some(_) => super::interpreter_query::check(&mut reader, input, sft),
        None => check_command(&mut reader, input),
    }
    let mut out = if sft {
        super::read_sft(&mut reader, input)
    } else {
        super::read_ppo(&mut reader, input)
    };
    out.name = reader.name("trainer.experiment_name");
    let mut problems = std::mem::take(&mut reader.problems);
    out.findings = std::mem::take(&mut reader.findings);
    match launch(input, &basis) {
        Ok((command, finding)) => {
            out.command = command;
            out.facts.settings = input.set.to_vec();
            out.findings.extend(finding);
        }
        Err(more) => problems.extend(more),
    }
    if input.printed.is_none() {
        super::check_mistyped(&tree, &mut problems, &mut out.findings);
    }
    out.tree = tree;
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

/// Warns that defaults of an unknown release cannot be assumed.
fn check_version(reader: &mut VerlConfigReader<'_>, version: Option<&str>) {
    if reader.basis.release.is_some() || !reader.resumes() || reader.is_composed() {
        return;
    }
    let who = version.map_or("verl version unknown".to_owned(), |v| {
        format!("verl {v} is not known to this supervise")
    });
    reader.findings.push(Finding::warning(
        "version_unknown",
        format!("{who}; assuming only the defaults common to 0.4–0.9"),
    ));
}

/// A named configuration that is neither here nor in our tables of verl: verl may have it, or fail at start.
fn check_composed(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) {
    let unknown = input.composed.filter(|_| input.printed.is_none());
    for error in unknown.into_iter().flat_map(|c| &c.unknown) {
        if reader.resumes() {
            reader.problems.push(error.clone());
        } else {
            let detail = format!("{error}: verl may have it; what it says is not read here");
            reader.findings.push(Finding::warning("config_not_read", detail));
        }
    }
}

/// Values of a file below verl's own configuration have no effect if verl sets them.
fn check_order(reader: &mut VerlConfigReader<'_>, composed: Option<&ComposedConfig>) {
    if composed.is_some_and(is_beneath) {
        reader.findings.push(Finding::warning(
            "overruled_by_verl",
            "defaults: verl's own configuration is listed after values of this file and overrules them; list it before `_self_`",
        ));
    }
}

/// Without a command the entry point is PPO's: a file for another verl trainer would train something else.
fn check_other_entry(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) {
    let (Some(composed), Some(file), true) = (input.composed, input.config_file, input.command.is_empty()) else {
        return;
    };
    let said = OTHER_ENTRIES.iter().find(|(key, _)| composed.tree.get(key).is_some());
    if let Some((key, module)) = said {
        reader.problem(
            key,
            format!(
                "{file} is a configuration of `{module}`, and without a command verl.trainer.main_ppo would be started"
            ),
            &format!("name the entry point: supervise run {file} -- python3 -m {module}"),
        );
    }
}

fn check_command(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) {
    if let Some((EntryPoint::Other | EntryPoint::Foreign, at)) = command::entry(input.command) {
        let module = input.command.get(at - 1).map_or("", String::as_str);
        let message = format!("the checkpoints of `{module}` are not known yet");
        reader.no_recovery("layout_unknown", "command", message, "use main_ppo or sft_trainer");
    }
    if is_recipe_without_place(input, |key| reader.is_said(key)) {
        reader.no_recovery(
            "config_not_read",
            "trainer.default_local_dir",
            "the trainer's own configuration is not read: where it saves by itself is not known",
            "say where",
        );
    }
    if names_unread(input) {
        let message = "the command names a configuration that is not read: where it saves cannot be known";
        reader.no_recovery(
            "config_not_read",
            "command",
            message,
            "name that YAML as the argument as well",
        );
    } else if let Some(read) = input.config_file.and_then(Utf8Path::file_stem)
        && let Some(name) = command::hydra_config(input.command).and_then(|c| c.name)
        && name != read
    {
        reader.warn(
            "config_differs",
            "command",
            format!("it starts from `{name}`, and `{read}` is read here"),
        );
    }
}

/// verl's own variants save where PPO does by default; recipes need not.
pub(super) fn is_recipe_without_place(input: &ReadInput<'_>, is_said: impl Fn(&str) -> bool) -> bool {
    let recipe = match command::entry(input.command) {
        Some((EntryPoint::Relative | EntryPoint::FullyAsync, at)) => input.command[at - 1].contains("recipe"),
        _ => false,
    };
    recipe && !is_said("trainer.default_local_dir") && !is_said("trainer.project_name")
}

/// Returns true if the command names a configuration that is neither verl's own nor given as a file.
pub(super) fn names_unread(input: &ReadInput<'_>) -> bool {
    let config = command::hydra_config(input.command).filter(|_| input.config_file.is_none());
    config.is_some_and(|c| c.elsewhere || c.name.is_some_and(|n| !VERLS_OWN.contains(&n.as_str())))
}

pub(super) fn called(command: &[String]) -> Option<TrainerKind> {
    let (entry, _) = command::entry(command)?;
    Some(match entry {
        EntryPoint::Ppo | EntryPoint::Relative | EntryPoint::FullyAsync | EntryPoint::Other | EntryPoint::Foreign => {
            PPO
        }
        EntryPoint::Sft | EntryPoint::SftRay | EntryPoint::SftOld => SFT,
    })
}

pub(super) fn meant(composed: &ComposedConfig) -> Option<TrainerKind> {
    if super::easyr1::is_meant(composed) || super::untrained::is_meant(composed) {
        return Some(PPO);
    }
    let layer = |name: &str| composed.layers.iter().any(|l| l.config == name);
    let has = |key: &str| composed.tree.get(key).is_some();
    if layer("sft_trainer_engine") || layer("sft_trainer") {
        Some(SFT)
    } else if layer("ppo_trainer") || layer("ppo_megatron_trainer") || has("actor_rollout_ref") || has("algorithm") {
        Some(PPO)
    } else if has("trainer") && (has("data") || has("engine") || has("optim") || has("checkpoint") || has("model")) {
        Some(SFT)
    } else {
        None
    }
}

fn effective(input: &ReadInput<'_>, basis: &VerlBasis) -> Result<ConfigTree, Vec<ConfigError>> {
    if let Some(printed) = input.printed {
        return Ok(super::interpreter_query::with_origins(printed, input, basis));
    }
    let mut tree = super::verl_defaults(basis.tree, basis.release);
    if let Some(composed) = input.composed {
        let mut theirs = composed.tree.clone();
        if is_beneath(composed) {
            std::mem::swap(&mut tree, &mut theirs);
        }
        tree.merge(theirs).map_err(|e| vec![e])?;
    }
    let mut problems = Vec::new();
    let written = command::overrides_in(input.command)
        .into_iter()
        .map(|text| (text, false));
    for (text, from_flag) in written.chain(input.set.iter().map(|text| (text.as_str(), true))) {
        problems.extend(apply(&mut tree, text, from_flag).err());
    }
    if problems.is_empty() { Ok(tree) } else { Err(problems) }
}

/// Returns true if verl's own configuration lies above the user's files: listed after `_self_`, it overrides them.
fn is_beneath(composed: &ComposedConfig) -> bool {
    let mut layers = composed.layers.iter().filter(|l| l.package.is_empty());
    layers.any(|l| !l.by_trainer) && layers.next_back().is_some_and(|l| l.by_trainer)
}

/// Applies one override. Selecting from a group sets no value; we do not know all of verl's keys, so a key may be
/// new.
fn apply(tree: &mut ConfigTree, text: &str, from_flag: bool) -> Result<(), ConfigError> {
    let change = hydra::parse(text)?;
    let group = change.package.is_some() || change.key.contains('/') || GROUPS.contains(&change.key.as_str());
    let chooses = group && matches!(change.value, Some(ConfigValue::Str(_)));
    let hydras = change.key == "hydra" || change.key.starts_with("hydra.");
    let nothing = change.action == hydra::OverrideAction::Delete && tree.get(&change.key).is_none();
    if chooses || hydras || nothing {
        return Ok(());
    }
    hydra::apply(tree, &change, false)?;
    if from_flag && let Some(node) = tree.get(&change.key) {
        let flagged = ConfigNode::new(
            node.value.clone(),
            ValueOrigin::Flag {
                text: format!("--set {text}"),
            },
        );
        tree.set(&change.key, flagged)?;
    }
    Ok(())
}

/// The command. What the trainer needs of the user's file goes right after the entry point, so that overrides in the
/// command still win.
pub(super) fn launch(
    input: &ReadInput<'_>,
    basis: &VerlBasis,
) -> Result<(Vec<String>, Option<Finding>), Vec<ConfigError>> {
    let takes_config =
        input.command.iter().any(|w| w.contains(command::CONFIG)) || command::hydra_config(input.command).is_some();
    let ours = input.command.is_empty() || command::entry(input.command).is_some();
    let (mut from_file, mut finding) = (Vec::new(), None);
    match (input.composed, input.config_file) {
        (Some(composed), Some(file)) if ours && !takes_config => {
            from_file = if is_whole(composed, basis) {
                by_path(composed, file)
            } else {
                super::as_overrides(&composed.tree)?
            };
        }
        (Some(_), Some(file)) if !takes_config => {
            let detail = format!(
                "the command does not mention {{config}}: {file} is read here, and reaches the trainer only if the command itself passes it on"
            );
            finding = Some(Finding::warning("config_not_passed", detail));
        }
        _ => {}
    }
    let mut words = input.command.to_vec();
    if words.is_empty() {
        let module = match basis.tree {
            VerlBaseConfig::Ppo | VerlBaseConfig::PpoMegatron => "verl.trainer.main_ppo",
            VerlBaseConfig::Sft | VerlBaseConfig::SftMegatron => "verl.trainer.sft_trainer",
            VerlBaseConfig::SftOld => "verl.trainer.fsdp_sft_trainer",
        };
        words = ["python3", "-m", module, command::OVERRIDES]
            .map(str::to_owned)
            .to_vec();
    }
    if let Some((_, at)) = command::entry(&words) {
        words.splice(at..at, from_file);
    }
    Ok((words, finding))
}

/// Returns true if Hydra can start from the file: it has a defaults list, or contains everything.
fn is_whole(composed: &ComposedConfig, basis: &VerlBasis) -> bool {
    let has = |key: &str| composed.tree.get(key).is_some();
    let target = match basis.tree {
        VerlBaseConfig::Ppo | VerlBaseConfig::PpoMegatron => has("actor_rollout_ref.actor._target_"),
        VerlBaseConfig::Sft | VerlBaseConfig::SftMegatron => has("checkpoint._target_"),
        VerlBaseConfig::SftOld => false,
    };
    // Configurations of older releases have no targets.
    let everything = || super::default_keys(basis.tree, basis.release).all(has);
    composed.layers.len() > 1 || target || everything()
}

/// Makes the file Hydra's primary configuration. Without a search path, Hydra would not find verl's own from there.
fn by_path(composed: &ComposedConfig, file: &Utf8Path) -> Vec<String> {
    let dir = file.parent().map_or("/", Utf8Path::as_str);
    let name = file.file_stem().unwrap_or_default();
    let mut out = vec![format!("--config-path={dir}"), format!("--config-name={name}")];
    let mut places = composed.search_path.clone();
    let is_there = places.iter().any(|place| place == VERLS_PLACE);
    if composed.layers.iter().any(|l| l.by_trainer) && !is_there && places.iter().all(|place| is_plain(place)) {
        places.push(VERLS_PLACE.to_owned());
        out.push(format!("hydra.searchpath=[{}]", places.join(",")));
    }
    out
}

/// Returns true if a path can be in a Hydra list unquoted.
fn is_plain(place: &str) -> bool {
    place.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:".contains(c))
}
