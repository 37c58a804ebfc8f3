//! Prints what is read of verl's configurations and given to a relaunch, for comparison with the configurations inside verl's wheels.
//!
//! Reads one JSON request per line and prints one JSON answer per line. Types are told apart as in `dump_yaml`.

#[path = "../../../config/examples/shared/files.rs"]
mod files;

use camino::Utf8Path;
use files::ExampleFiles;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use supervise_config::compose::{ComposedConfig, GroupOverride, LoadResult, compose};
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ConfigValue, join_path};
use supervise_core::checkpoint::{CkptId, PinsHash};
use supervise_core::id::{AttemptNo, RunId, Step};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{Numbering, RunSpec, SavePolicy};
use supervise_trainers::{
    HostFacts, ReadInput, ReadOutput, VerlBaseConfig, VerlRelease, adapter, hydra, read, verl_defaults,
};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Json = serde_json::from_str(&line?)?;
        let answer = match request["files"].is_object() {
            true => configured(&request),
            false => json!({ "keys": flat(&defaults(&request), None) }),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

/// The defaults of a tree in a release; of an unknown one without a version.
fn defaults(request: &Json) -> ConfigTree {
    let tree = match request["tree"].as_str() {
        Some("ppo") => VerlBaseConfig::Ppo,
        Some("ppo_megatron") => VerlBaseConfig::PpoMegatron,
        Some("sft") => VerlBaseConfig::Sft,
        Some("sft_megatron") => VerlBaseConfig::SftMegatron,
        _ => VerlBaseConfig::SftOld,
    };
    verl_defaults(tree, request["version"].as_str().and_then(VerlRelease::of))
}

/// Every key that is no mapping, with its value as written; resolved in `whole` where that is given.
fn flat(tree: &ConfigTree, whole: Option<&ConfigTree>) -> Map<String, Json> {
    let mut out = Map::new();
    let mut waiting = vec![(String::new(), &tree.root)];
    while let Some((path, node)) = waiting.pop() {
        if let ConfigValue::Map(map) = &node.value {
            waiting.extend(
                map.iter()
                    .map(|(key, child)| (join_path(&path, &key.to_string()), child)),
            );
            continue;
        }
        let value = match whole {
            None => tagged(node),
            Some(whole) => match InterpolationResolver::new(whole, &|_| None).get(&path) {
                Ok(Some(node)) => tagged(&node),
                Ok(None) => json!("missing"),
                Err(error) => json!({ "error": error.to_string() }),
            },
        };
        out.insert(path, value);
    }
    out
}

fn tagged(node: &ConfigNode) -> Json {
    match &node.value {
        ConfigValue::Null => Json::Null,
        ConfigValue::Bool(value) => json!({ "b": value }),
        ConfigValue::Int(number) => json!({ "i": number.to_string() }),
        ConfigValue::Float(number) => json!({ "f": format!("{:016x}", number.to_bits()) }),
        ConfigValue::Str(text) => json!({ "s": text }),
        ConfigValue::List(items) => Json::Array(items.iter().map(tagged).collect()),
        ConfigValue::Map(map) => {
            let entries = map.iter().map(|(key, node)| (key.to_string(), tagged(node)));
            Json::Object(entries.collect())
        }
    }
}

fn strings(json: &Json) -> Vec<String> {
    serde_json::from_value(json.clone()).unwrap_or_default()
}

/// A run's configuration: what counts for it, and what a relaunch from step 5 is given.
fn configured(request: &Json) -> Json {
    let version = request["version"].as_str();
    let (command, set) = (strings(&request["command"]), strings(&request["set"]));
    let composed = match request["config"].as_str().map(|name| composed(request, name, &command)) {
        None => None,
        Some(Ok(composed)) => Some(composed),
        Some(Err(error)) => return json!({ "error": error.to_string() }),
    };
    let answer = read(&ReadInput {
        composed: composed.as_ref(),
        config_file: composed.as_ref().map(|_| Utf8Path::new("/conf/my.yaml")),
        set: &set,
        command: &command,
        cwd: Utf8Path::new("/data"),
        env: &|_| None,
        file: &|_| None,
        workers: None,
        launcher: None,
        user: None,
        kind: None,
        starts_ray: false,
        may_start_ray: false,
        recovery: true,
        recovery_said: false,
        version,
        printed: None,
    });
    match answer {
        Err(errors) => json!({ "error": errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") }),
        Ok(out) => {
            let keys = flat(&defaults(request), Some(&out.tree));
            json!({ "keys": keys, "relaunch": relaunch(out, version) })
        }
    }
}

fn composed(request: &Json, name: &str, command: &[String]) -> Result<ComposedConfig, ConfigError> {
    // What is not among the user's files is verl's.
    let files = ExampleFiles::of(request, LoadResult::ByTrainer);
    let mut groups: Vec<GroupOverride> = Vec::new();
    for text in command.iter().filter(|w| !w.starts_with('-') && w.contains('=')) {
        groups.extend(hydra::parse(text)?.as_group(|group| files.is_group(group))?);
    }
    compose(&files, name, &groups)
}

/// Words that a relaunch from step 5 adds to the command.
fn relaunch(out: ReadOutput, version: Option<&str>) -> Json {
    let load = out
        .roles
        .first()
        .map(|role| role.load_contents.clone())
        .unwrap_or_default();
    let spec = RunSpec {
        run: RunId("r".into()),
        name: None,
        trainer: out.kind,
        trainer_version: version.map(str::to_owned),
        declared: None,
        learnt: None,
        config_hash: 0,
        root: out.root,
        run_dir: "/data/.supervise".into(),
        config_file: None,
        command: out.command,
        cwd: "/data".into(),
        env: BTreeMap::new(),
        gang: out.gang,
        cadence: out.cadence,
        last_step: out.last_step,
        world: out.world,
        indivisible: Vec::new(),
        roles: out.roles,
        resume: out.resume,
        keep: out.keep,
        policy: Policy::default(),
        not_restored: out.not_restored,
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        saves_at_stop: false,
        has_tail: false,
        save_door: false,
    };
    let order = LaunchOrder {
        attempt: AttemptNo(2),
        from: StartPoint::Step {
            ckpt: CkptId("global_step_5".into()),
            step: Step(5),
            pins: PinsHash(1),
            load,
            roles: BTreeMap::new(),
        },
        lost: Vec::new(),
        nodes: 1,
    };
    let host = HostFacts {
        env: BTreeMap::new(),
        trainer: out.facts,
        began: 1,
    };
    match adapter(spec.trainer).arrange(&spec, &order, &host) {
        Ok(plan) => json!({ "overrides": plan.overrides, "argv": plan.argv }),
        Err(reason) => json!({ "error": reason.text }),
    }
}
