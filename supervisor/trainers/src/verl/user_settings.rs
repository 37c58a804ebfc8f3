//! What the user's configuration requests: where to resume, what to save and load, and where.

use super::VerlConfigReader;
use super::defaults::VerlBaseConfig;
use super::names::{self, VerlRootName};
use super::strategy::RoleKeys;
use super::version::ReleaseSeries;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::StateKind;
use supervise_core::spec::{MegatronSpec, ResumeIntent, RoleSpec};

const ROOT: &str = "trainer.default_local_dir";
const MODE: &str = "trainer.resume_mode";
const FROM: &str = "trainer.resume_from_path";
const KNOWN: [&str; 4] = ["model", "optimizer", "extra", "hf_model"];

/// The checkpoint root as an absolute path without `.`, doubled or trailing slashes.
pub(crate) fn root(reader: &mut VerlConfigReader<'_>, cwd: &Utf8Path) -> Option<Utf8PathBuf> {
    let text = reader.string(ROOT)?;
    if text.contains("://") {
        reader.problem(
            ROOT,
            format!("{text} is no path of a file system"),
            "give an absolute path that all machines share",
        );
        return None;
    }
    if text.starts_with('~') {
        reader.problem(
            ROOT,
            "verl does not expand `~`: it would create a directory of that name",
            "give an absolute path",
        );
        return None;
    }
    let root = absolute(cwd, &text);
    if !Utf8Path::new(&text).is_absolute() {
        reader.note(
            "relative_root",
            ROOT,
            format!("a relative path means another directory in each Ray process; the trainer is given {root}"),
        );
    }
    Some(root)
}

pub(crate) fn absolute(cwd: &Utf8Path, text: &str) -> Utf8PathBuf {
    cwd.join(text).components().collect()
}

/// Reads `resume_mode` and `resume_from_path`. `auto_path`: this trainer also uses the path with `auto`.
pub(crate) fn resume(reader: &mut VerlConfigReader<'_>, cwd: &Utf8Path, auto_path: bool) -> ResumeIntent {
    let mode = reader.string(MODE);
    let path = reader.value(FROM).is_some();
    match mode.as_deref() {
        // Not the user's error if the defaults have none: it is asked for once the rest is right.
        None if reader.has_problems() => {}
        None => reader.problem(MODE, "no mode is given", "use auto, disable or resume_path"),
        Some("disable") => return ResumeIntent::Disabled,
        Some("auto") if path && auto_path => return resume_path(reader, cwd),
        Some("auto") => {
            if path {
                reader.note(
                    "resume_from_path_ignored",
                    FROM,
                    "this trainer reads it only with resume_mode=resume_path",
                );
            }
        }
        Some("resume_path") if path => return resume_path(reader, cwd),
        Some("resume_path") => {
            reader.problem(
                FROM,
                "resume_mode is resume_path and no path is given",
                "name a directory …/global_step_N",
            );
        }
        Some(other) => {
            reader.problem(
                MODE,
                format!("verl knows no mode `{other}`"),
                "use auto, disable or resume_path",
            );
        }
    }
    ResumeIntent::Auto
}

fn resume_path(reader: &mut VerlConfigReader<'_>, cwd: &Utf8Path) -> ResumeIntent {
    let Some(text) = reader.string(FROM) else {
        return ResumeIntent::Auto;
    };
    let wanted = "name the step's own directory, …/global_step_N, without a slash after it";
    if text.ends_with('/') {
        reader.problem(
            FROM,
            "a trailing slash: verl takes the step from the end of this text and finds no number",
            wanted,
        );
        return ResumeIntent::Auto;
    }
    let path = absolute(cwd, &text);
    let name = path.file_name().unwrap_or_default();
    match names::root_name(name) {
        VerlRootName::Step(step) => return ResumeIntent::Path { path, step },
        VerlRootName::Padded | VerlRootName::TooLarge => {
            reader.problem(FROM, format!("`{name}` is not how verl writes a step's number"), wanted);
        }
        _ if is_in_step(&path) => {
            reader.problem(FROM, format!("`{name}` is a part of a step, not a step"), wanted);
        }
        _ => reader.problem(FROM, format!("`{name}` is not a step directory"), wanted),
    }
    ResumeIntent::Auto
}

fn is_in_step(path: &Utf8Path) -> bool {
    path.parent()
        .and_then(Utf8Path::file_name)
        .is_some_and(|n| matches!(names::root_name(n), VerlRootName::Step(_)))
}

pub(crate) fn role(reader: &mut VerlConfigReader<'_>, name: &str, megatron: Option<MegatronSpec>) -> RoleSpec {
    let prefix = RoleKeys::in_tree(name, reader.basis.tree).checkpoint;
    let one_list = reader.basis.has_one_list();
    let (save, load) = if one_list {
        ("contents", "contents")
    } else {
        ("save_contents", "load_contents")
    };
    let (save_key, load_key) = (format!("{prefix}.{save}"), format!("{prefix}.{load}"));
    let all = || KNOWN[..3].iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    // With null, verl saves and loads these three.
    let save = reader.strings(&save_key).unwrap_or_else(all);
    let load = match reader.has(&load_key) {
        true => reader.strings(&load_key).unwrap_or_else(all),
        // For a release whose default is unknown, assume that what is saved is loaded.
        false => save.clone(),
    };
    if one_list && megatron.is_none() && !all().iter().all(|c| save.contains(c)) {
        reader.problem(
            &save_key,
            "verl 0.4.0 refuses to start without model, optimizer and extra",
            "name all three",
        );
    }
    let load_wish = reader.is_said(&load_key) && load != save;
    for (key, list) in [(&save_key, &save), (&load_key, &load)] {
        if let Some(odd) = list.iter().find(|c| !KNOWN.contains(&c.as_str())) {
            reader.problem(
                key,
                format!("verl knows no contents `{odd}`"),
                "use model, optimizer, extra, hf_model",
            );
        }
    }
    // If weights are only exported, Megatron's own writer does not apply to them.
    let megatron = megatron.map(|m| MegatronSpec {
        dist: m.dist && save.iter().any(|c| c == "model"),
        ..m
    });
    let bridge = megatron.is_some_and(|m| m.bridge);
    check_weights(reader, (&save_key, &save), (&load_key, &load), megatron.is_some());
    if megatron.is_some() && !bridge && load_wish && load.iter().any(|c| c == "hf_model") {
        let message = "hf_model goes through a bridge, and there is none (use_mbridge=False): verl refuses to start";
        reader.no_recovery(
            "hf_model_without_bridge",
            &load_key,
            message,
            "leave it out, or set use_mbridge=True",
        );
    }
    let load = if megatron.is_some() { as_model(load) } else { load };
    let saved = |c: &String| save.contains(c) || bridge && c == "model" && save.iter().any(|s| s == "hf_model");
    if let Some(extra) = load.iter().find(|c| *c != "hf_model" && !saved(c)) {
        reader.warn(
            "loads_what_is_not_saved",
            &load_key,
            format!("`{extra}` is loaded and never saved: a resume would not find it"),
        );
    }
    let fsdp_size = megatron.is_none().then(|| fsdp_size(reader, name));
    if megatron.is_none() && reader.flag(&format!("{prefix}.save_lora_only")) {
        reader.warn(
            "base_model_not_saved",
            &format!("{prefix}.save_lora_only"),
            "with adapters their weights alone are saved, in no step the model below them: a resume takes that from the model's own path, which must hold what it held at the start",
        );
    }
    RoleSpec {
        name: name.to_owned(),
        save_contents: save,
        load_contents: load,
        load_wish,
        megatron,
        fsdp_size,
        sequence: None,
        keep: None,
    }
}

/// Ranks that share one copy of the model. The key differs between releases; the default is all ranks.
fn fsdp_size(reader: &mut VerlConfigReader<'_>, role: &str) -> i64 {
    let keys: &[&str] = match (role, reader.basis.tree) {
        (_, VerlBaseConfig::SftOld) => &["model.fsdp_config.fsdp_size"],
        ("", _) => &["engine.fsdp_size"],
        ("critic", _) => &["critic.fsdp.fsdp_size", "critic.model.fsdp_config.fsdp_size"],
        _ => &["actor_rollout_ref.actor.fsdp_config.fsdp_size"],
    };
    keys.iter().find_map(|key| reader.int(key)).unwrap_or(-1)
}

/// Releases before 0.7 resume with another order of the data, or in another epoch.
pub(crate) fn loses_data_order(reader: &mut VerlConfigReader<'_>) -> bool {
    let loses = reader.basis.release.is_some_and(|r| !r.since(ReleaseSeries::V0_7, 0));
    if loses {
        reader.warn(
            "data_order",
            "trainer.resume_mode",
            "a release before 0.7 may resume with another order of the data, or in another epoch, than it was interrupted in; 0.7 mends that",
        );
    }
    loses
}

/// Checks that there are weights to resume from, and that they are loaded. Megatron loads exported ones through its
/// bridge; FSDP never does.
fn check_weights(reader: &mut VerlConfigReader<'_>, save: (&str, &[String]), load: (&str, &[String]), megatron: bool) {
    let weights = |list: &[String]| list.iter().any(|c| c == "model" || megatron && c == "hf_model");
    let hint = "add `model`";
    if !weights(save.1) {
        let message = if megatron {
            "no weights are saved, so there is nothing to resume from"
        } else {
            "no model shards are saved, so there is nothing to resume from: FSDP loads weights only from shards"
        };
        reader.no_recovery("weights_not_saved", save.0, message, hint);
    } else if load.1.is_empty() {
        reader.no_recovery(
            "nothing_loaded",
            load.0,
            "nothing would be loaded, and the step would count on all the same",
            hint,
        );
    } else if !weights(load.1) {
        let message = if megatron {
            "no weights would be loaded, and the step would count on with fresh ones"
        } else {
            "no model shards would be loaded: FSDP ignores hf_model at a resume and counts on with fresh weights"
        };
        reader.no_recovery("weights_not_loaded", load.0, message, hint);
    }
}

/// For Megatron, `model` means the weights wherever they were saved; exported ones need no separate name.
fn as_model(mut load: Vec<String>) -> Vec<String> {
    let exported = load.iter().position(|c| c == "hf_model");
    if let Some(at) = exported.filter(|_| !load.iter().any(|c| c == "model")) {
        load[at] = "model".to_owned();
    }
    load
}

/// State that no resume restores: it is never saved, or Megatron restarts it.
pub(crate) fn not_restored(roles: &[RoleSpec]) -> Vec<StateKind> {
    let mut out = Vec::new();
    for role in roles {
        let lacks = |content: &str| !role.save_contents.iter().any(|c| c == content);
        let schedule = match role.megatron {
            // Its schedule is saved with the optimizer.
            Some(run) => !run.schedule || lacks("optimizer"),
            None => lacks("extra"),
        };
        out.extend(lacks("optimizer").then_some(StateKind::Optimizer));
        out.extend(schedule.then_some(StateKind::LrSchedule));
        out.extend(lacks("extra").then_some(StateKind::Rng));
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Metrics tools: one name, or a list.
pub(crate) fn loggers(reader: &mut VerlConfigReader<'_>) -> Vec<String> {
    let Some(node) = reader.value("trainer.logger") else {
        return Vec::new();
    };
    let one = node.as_str().map(|name| vec![name.to_owned()]);
    let names = || {
        Some(
            node.as_list()?
                .iter()
                .filter_map(|i| i.as_str().map(str::to_owned))
                .collect(),
        )
    };
    one.or_else(names).unwrap_or_default()
}

/// Returns true if metrics go to a file, which verl truncates at each start.
pub(crate) fn logs_to_file(reader: &mut VerlConfigReader<'_>) -> bool {
    loggers(reader).iter().any(|name| name == "file")
}

/// Every launch disables `async_save`. Returns the keys that enable it.
pub(crate) fn async_saves(reader: &mut VerlConfigReader<'_>, keys: &[String]) -> Vec<String> {
    let on: Vec<String> = keys.iter().filter(|key| reader.flag(key)).cloned().collect();
    for key in &on {
        reader.warn(
            "async_save",
            key,
            "asynchronous saves are not finished by every release of verl, and never by 0.9; launches switch them off",
        );
    }
    on
}
