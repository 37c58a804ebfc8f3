//! Reading AReaL's configuration into a run's specification.
//!
//! AReaL reads one YAML through Hydra and merges it into its own classes, so it exits on an unknown key; overrides
//! come after the script. The location of its only checkpoint follows from `recover`, not from the names at the top
//! level, and from the user's name.

use super::RecoverMode;
use super::backend::{self, Backend};
use super::call::{self, ArealLauncher};
use super::defaults;
use super::engines;
use super::fields::{INT, TEXT, is};
use super::frequency;
use super::jobs;
use super::live::ArealSpec;
use super::older;
use super::ray;
use super::trial_dirs::{names, place};
use crate::adapter::{AdapterPayload, TrainerFacts};
use crate::command;
use crate::hydra;
use crate::kit::{ConfigReader, MetricsTool};
use crate::launch::{self, RayMode};
use crate::read::{MachineCount, ReadInput, ReadOutput};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_config::interpolation::Env;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ErrorKind, ValueOrigin};
use supervise_core::id::Step;
use supervise_core::spec::{GangSpec, InPlaceSpec, LauncherKind, SaveCadence};

/// Reads a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read(input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    let env = |name: &str| call::env(input, name);
    if let Some(release) = older::release(input) {
        return older::read(input, &release, &env);
    }
    let tree = effective(input)?;
    let recovery = input.recovery && (input.recovery_said || !is_switched_off(&tree, &env));
    let mut values = ConfigReader::new(&tree, (), &env, recovery);
    let v = &mut values;
    if input.recovery && !recovery {
        v.warn(
            "recover_switched_off",
            "recover.mode",
            "the command switches recovery off: nothing is resumed after a failure. supervisor.recovery=true switches it on all the same",
        );
    }
    let form = call::form(input);
    check_file(v, input);
    check_form(v, &form);
    check_keys(v, &tree);
    let mode = mode(v);
    let place = place(v, input);
    let name = v.name("experiment_name");
    let name = name.map(|name| {
        v.name("trial_name")
            .map_or(name.clone(), |trial| format!("{name}/{trial}"))
    });
    let cadence = cadence(v);
    let is_rl = v.is_set("rollout") || v.is_set("gconfig");
    let actor = engine(v, "actor");
    let ray = ray::read(v, input, &form);
    let gang = gang(v, input, &form, actor, &ray);
    let world = match (&form, actor) {
        (ArealLauncher::Ranks, _) if gang.launcher == LauncherKind::Gang => Some(gang.workers),
        (ArealLauncher::Torchrun, _) => {
            command::torchrun_world(input.command).or_else(|| actor.and_then(|a| a.world()))
        }
        (_, actor) => actor.and_then(|a| a.world()),
    };
    check_world(v, &form, actor, world);
    let roles = engines::roles(v, actor);
    let spread = engines::spread(v, actor, matches!(form, ArealLauncher::Controller));
    let not_restored = engines::not_restored(v, actor, is_rl);
    engines::check(v, actor, is_rl);
    let last_step = v.get("total_train_steps", INT).and_then(|n| u64::try_from(n).ok());
    let updates = match is_rl {
        true => v
            .needed("actor.ppo_n_minibatches", INT)
            .and_then(|n| u32::try_from(n).ok()),
        false => Some(1),
    };
    let names = place.as_ref().and_then(|place| names(v, input, &place.user));
    let live = place.as_ref().map(|place| ArealSpec {
        user: place.user.clone(),
        names,
        data_ranks: match &form {
            ArealLauncher::Controller => Some(1),
            ArealLauncher::Unknown => None,
            _ => world,
        },
        updates_per_step: updates,
        frequencies: BTreeMap::new(),
        slurm: jobs::known(v, input, &form, &place.user),
        async_save: actor.is_some_and(|a| a.is_megatron()) && is(v, "actor.megatron.async_save"),
    });
    // Its id at Weights & Biases never changes.
    let swanlab = v
        .get("stats_logger.swanlab.mode", TEXT)
        .is_some_and(|mode| mode != "disabled");
    let trackers = swanlab.then_some(MetricsTool::Swanlab).into_iter().collect();
    let must_exist = must_exist(v, input, &form);
    let machines = machines(v, &form);
    let retries = v.needed("recover.retries", INT);
    let (problems, findings) = (std::mem::take(&mut v.problems), std::mem::take(&mut v.findings));
    if !problems.is_empty() {
        return Err(problems);
    }
    // A wrong value is already reported.
    let frequencies = frequency::wanted(v);
    let in_place = place.as_ref().zip(live).map(|(place, live)| InPlaceSpec {
        store: place.store.clone(),
        // If the launcher is unknown, so is who distributes the data.
        spread: if form == ArealLauncher::Unknown {
            BTreeMap::new()
        } else {
            spread
        },
        // They always exit with an error.
        exit_says_nothing: matches!(form, ArealLauncher::Launcher(_)),
        own: ArealSpec { frequencies, ..live }.own(),
    });
    Ok(ReadOutput {
        name,
        root: place.map(|p| p.root),
        cadence,
        last_step: last_step.map(Step),
        world,
        roles,
        gang,
        command: call::with_config(input.command),
        not_restored,
        facts: TrainerFacts {
            settings: input.set.to_vec(),
            retries: retries.and_then(|n| u32::try_from(n).ok()),
            own: AdapterPayload::new(RecoverMode(mode)),
            trackers,
            ray,
            must_exist,
            ..TrainerFacts::default()
        },
        findings,
        saves: in_place.into(),
        tree,
        recovery,
        machines,
        ..ReadOutput::blank(super::AREAL)
    })
}

/// The effective configuration: AReaL's defaults, the file, overrides in the command, `--set`. As in Hydra, a key
/// that neither the file nor `+` introduces is refused.
fn effective(input: &ReadInput<'_>) -> Result<ConfigTree, Vec<ConfigError>> {
    let Some(composed) = input.composed else {
        let nothing = ConfigError::new(
            ErrorKind::MissingKey,
            "AReaL needs a YAML, and neither is one named nor does the command say --config FILE",
        );
        return Err(vec![nothing.with_hint("supervise run x.yaml -- python3 script.py")]);
    };
    let mut theirs = composed.tree.clone();
    let mut problems = Vec::new();
    let written = call::overrides(input.command).into_iter().map(|text| (text, false));
    for (text, from_flag) in written.chain(input.set.iter().map(|text| (text.as_str(), true))) {
        problems.extend(apply(&mut theirs, composed, text, from_flag).err());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut tree = defaults::beneath(&theirs).map_err(|e| vec![e])?;
    tree.merge(theirs).map_err(|e| vec![e])?;
    Ok(tree)
}

fn apply(
    tree: &mut ConfigTree,
    composed: &supervise_config::compose::ComposedConfig,
    text: &str,
    from_flag: bool,
) -> Result<(), ConfigError> {
    let change = hydra::parse(text)?;
    let is_choice = composed.choices.contains_key(&change.key) || change.package.is_some() || change.key.contains('/');
    if is_choice || change.key == "hydra" || change.key.starts_with("hydra.") {
        return Ok(());
    }
    hydra::apply(tree, &change, true)?;
    if from_flag && let Some(node) = tree.get(&change.key) {
        let origin = ValueOrigin::Flag {
            text: format!("--set {text}"),
        };
        let flagged = ConfigNode::new(node.value.clone(), origin);
        tree.set(&change.key, flagged)?;
    }
    Ok(())
}

/// AReaL truncates the file name at its first `.yaml` and appends that again.
fn check_file(v: &mut ConfigReader<'_>, input: &ReadInput<'_>) {
    let Some(file) = input.config_file else { return };
    let name = file.file_name().unwrap_or_default();
    let cut = name.split(".yaml").next().unwrap_or_default();
    if format!("{cut}.yaml") != name {
        v.problem(
            "",
            format!("AReaL would read `{cut}.yaml` beside it in place of `{name}`: it knows files that end in .yaml, and cuts their names there"),
            "rename the file",
        );
    }
}

fn check_form(v: &mut ConfigReader<'_>, form: &ArealLauncher) {
    jobs::check(v, form);
    if *form != ArealLauncher::Controller {
        return;
    }
    let scheduler = v.get("scheduler.type", TEXT);
    if !matches!(scheduler.as_deref(), Some("local" | "ray" | "slurm")) {
        let said = scheduler.map_or_else(|| "null".to_owned(), |s| format!("`{s}`"));
        v.problem(
            "scheduler.type",
            format!("it is {said}, and no launcher is named: AReaL ends with \"Unknown scheduler type\""),
            "add ++scheduler.type=local (or ray, slurm) to the command, start it with `python3 -m areal.infra.launcher.local script.py`, or set supervisor.gang.launcher to gang: then each rank is started here",
        );
    }
}

/// Mistakes on which AReaL exits at once, although nothing here depends on them.
fn check_keys(v: &mut ConfigReader<'_>, tree: &ConfigTree) {
    for key in defaults::unknown(tree) {
        let meant = defaults::nearest(&key).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        v.warn(
            "unknown_key",
            &key,
            format!("AReaL 1.0.4 does not know this key, and ends at its start{meant}"),
        );
    }
    let parts = ["saver", "evaluator", "stats_logger"];
    let named = parts
        .iter()
        .flat_map(|part| ["experiment_name", "trial_name", "fileroot"].map(|key| format!("{part}.{key}")));
    let needed = [
        "experiment_name",
        "trial_name",
        "train_dataset.path",
        "train_dataset.type",
        "actor.experiment_name",
        "actor.trial_name",
    ];
    for key in named.chain(needed.map(str::to_owned)) {
        if tree.get(&key).is_none_or(|n| n.value.is_mandatory_missing()) {
            v.warn(
                "mandatory_missing",
                &key,
                "nothing is said, and AReaL's own classes have no default: it ends at its start where the script adds none",
            );
        }
    }
    for section in ["actor", "teacher"] {
        for key in ["behave_imp_weight_cap", "behave_imp_weight_mode"] {
            let key = format!("{section}.{key}");
            if tree.get(&key).is_some() {
                v.problem(
                    &key,
                    "AReaL has removed this key",
                    "write `rejection_sampling` in its place",
                );
            }
        }
    }
    if v.needed("total_train_epochs", INT).is_some_and(|n| n <= 0) {
        v.problem(
            "total_train_epochs",
            "AReaL refuses a number below 1",
            "give a number above 0",
        );
    }
    let saver = v.needed("saver.mode", TEXT);
    if saver
        .as_deref()
        .is_some_and(|m| !matches!(m, "auto" | "sync" | "async"))
    {
        v.problem("saver.mode", "AReaL knows auto, sync and async", "choose one of them");
    }
}

/// Returns true if the command itself, or `--set`, turns recovery off. A file that does so is often a copied example.
fn is_switched_off(tree: &ConfigTree, env: Env<'_>) -> bool {
    let mut values = ConfigReader::new(tree, (), env, false);
    let by_hand = matches!(
        values.origin("recover.mode"),
        ValueOrigin::Override { .. } | ValueOrigin::Flag { .. }
    );
    let said = values.needed("recover.mode", TEXT);
    by_hand && said.is_some_and(|mode| matches!(mode.as_str(), "off" | "disabled" | "False"))
}

/// Reads `recover.mode`; returns the value to force on AReaL if it is not the file's.
fn mode(v: &mut ConfigReader<'_>) -> Option<&'static str> {
    let said = v.needed("recover.mode", TEXT)?;
    let wants = match said.as_str() {
        "on" | "auto" => true,
        "off" | "disabled" => false,
        "True" | "False" => {
            let (word, wants) = if said == "True" { ("on", true) } else { ("off", false) };
            let text = format!(
                "unquoted, `{word}` is a truth value in YAML, and AReaL refuses \"{said}\"; it is started with {} ",
                if wants || v.resumes() {
                    "recover.mode=auto"
                } else {
                    "recover.mode=disabled"
                }
            );
            v.warn("recover_mode", "recover.mode", text.trim_end());
            wants
        }
        other => {
            v.problem(
                "recover.mode",
                format!("AReaL refuses `{other}`: it knows on, auto, off and disabled (fault and resume were removed)"),
                "write auto",
            );
            return None;
        }
    };
    if v.resumes() && !wants {
        v.warn(
            "recover_switched_on",
            "recover.mode",
            "recovery is off in the configuration; it is switched on (recover.mode=auto), for without it nothing is saved. --no-recovery leaves it off",
        );
    }
    match (v.resumes(), said.as_str()) {
        (true, _) | (false, "True") => Some("auto"),
        (false, "False") => Some("disabled"),
        (false, _) => None,
    }
}

/// Directories that AReaL's schedulers and launchers expect to exist before they start anything.
fn must_exist(v: &mut ConfigReader<'_>, input: &ReadInput<'_>, form: &ArealLauncher) -> Vec<(String, Utf8PathBuf)> {
    let looks = match form {
        ArealLauncher::Controller => v.get("scheduler.type", TEXT).is_some_and(|s| s != "ray"),
        ArealLauncher::Launcher(_) => true,
        ArealLauncher::Torchrun | ArealLauncher::Ranks | ArealLauncher::Unknown => false,
    };
    let root = v
        .needed("cluster.fileroot", TEXT)
        .filter(|root| looks && !root.is_empty());
    root.map(|root| ("cluster.fileroot".to_owned(), input.cwd.join(root)))
        .into_iter()
        .collect()
}

/// When it saves. A frequency of 0 or less applies at every step.
fn cadence(v: &mut ConfigReader<'_>) -> SaveCadence {
    let wrong = v.problems.len();
    let [steps, epochs, secs] =
        ["freq_steps", "freq_epochs", "freq_secs"].map(|key| v.get(&format!("recover.{key}"), INT));
    let always = [steps, epochs, secs].iter().flatten().any(|n| *n <= 0);
    let every = match (always, steps) {
        (true, _) => Some(1),
        (false, steps) => steps.and_then(|n| u64::try_from(n).ok()),
    };
    let all_epochs = v.needed("total_train_epochs", INT).unwrap_or(1);
    let cut = v.get("total_train_steps", INT).is_some();
    let at_end = every == Some(1) || !cut && epochs.is_some_and(|n| n > 0 && all_epochs % n == 0);
    match (every, epochs, secs) {
        // A wrong frequency is already reported.
        _ if v.problems.len() > wrong => {}
        (None, None, None) => v.no_recovery(
            "never_saved",
            "recover.freq_steps",
            "freq_steps, freq_epochs and freq_secs of `recover` are all null: nothing would ever be saved",
            "set recover.freq_steps",
        ),
        (None, epochs, secs) => {
            let epoch = epochs.map(|n| match n {
                1 => "an epoch".to_owned(),
                n => format!("{n} epochs"),
            });
            let time = secs.map(|n| format!("{n} s and the step that they end in"));
            let cost = match (epoch, time) {
                (Some(epoch), Some(time)) => format!("{epoch}, or {time}, whichever is less"),
                (epoch, time) => epoch.or(time).unwrap_or_default(),
            };
            v.warn(
                "cadence_without_steps",
                "recover.freq_steps",
                format!("no number of steps between saves is set: a crash can cost {cost}"),
            );
        }
        (Some(_), ..) => {}
    }
    SaveCadence { every, at_end }
}

fn engine(v: &mut ConfigReader<'_>, name: &str) -> Option<Backend> {
    let key = format!("{name}.backend");
    let text = v.needed(&key, TEXT)?;
    match backend::parse(&text) {
        Ok(found) if found.kind == backend::EngineBackend::Inference => {
            v.problem(
                &key,
                format!("`{text}` generates only, this engine trains"),
                "name fsdp, archon or megatron",
            );
            None
        }
        Ok(found) => Some(found),
        Err(why) => {
            v.problem(
                &key,
                format!("AReaL does not understand `{text}`: {why}"),
                "write it as fsdp:d4",
            );
            None
        }
    }
}

fn gang(
    v: &mut ConfigReader<'_>,
    input: &ReadInput<'_>,
    form: &ArealLauncher,
    actor: Option<Backend>,
    ray: &RayMode,
) -> GangSpec {
    let driver = launch::ray::gang(ray);
    if *form != ArealLauncher::Ranks {
        return driver;
    }
    match input.workers.or_else(|| actor.and_then(|a| a.world())) {
        Some(workers) => GangSpec {
            launcher: LauncherKind::Gang,
            workers,
            ..driver
        },
        None => {
            v.problem(
                "actor.backend",
                "how many ranks have to be started is not known",
                "set supervisor.gang.workers",
            );
            driver
        }
    }
}

/// Machines that it asks for. If its workers become Slurm jobs of their own, it needs none itself.
fn machines(v: &mut ConfigReader<'_>, form: &ArealLauncher) -> Option<MachineCount> {
    if jobs::submits(v, form) {
        return Some(MachineCount { nodes: 1, gpus: 0 });
    }
    let mut number = |key: &str| v.get(key, INT).and_then(|n| u32::try_from(n).ok());
    Some(MachineCount {
        nodes: number("cluster.n_nodes")?,
        gpus: number("cluster.n_gpus_per_node")?,
    })
}

fn check_world(v: &mut ConfigReader<'_>, form: &ArealLauncher, actor: Option<Backend>, world: Option<u32>) {
    let (Some(planned), Some(started)) = (actor.and_then(|a| a.world()), world) else {
        return;
    };
    if form.is_spmd() && planned != started {
        v.problem(
            "actor.backend",
            format!("it is spread over {planned} ranks, and {started} are started"),
            "make both the same number",
        );
    }
}
