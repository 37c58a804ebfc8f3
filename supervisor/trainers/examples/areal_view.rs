//! Prints what is read of AReaL's configurations and given to a launch, for comparison with AReaL's own loader.
//!
//! Reads one JSON request per line (`yaml`, `file`, `command`, `user`) and prints one JSON answer per line: what was read, or `error`.

use camino::Utf8Path;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use supervise_config::ConfigError;
use supervise_config::compose::{ConfigLoader, LoadResult, compose};
use supervise_core::id::{AttemptNo, RunId};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{LauncherKind, RunSpec};
use supervise_trainers::areal::ArealSpec;
use supervise_trainers::{HostFacts, ReadInput, ReadOutput, adapter, read};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Json = serde_json::from_str(&line?)?;
        let answer = match configured(&request) {
            Ok(read) => shown(read, request["file"].as_str().unwrap_or_default()),
            Err(problems) => {
                let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                json!({ "error": texts.join("\n") })
            }
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

/// The one file that there is.
struct One(String);

impl ConfigLoader for One {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        Ok(match config {
            "x" => LoadResult::Text {
                text: self.0.clone(),
                file: "x.yaml".to_owned(),
            },
            _ => LoadResult::Missing,
        })
    }
}

fn configured(request: &Json) -> Result<ReadOutput, Vec<ConfigError>> {
    let text = |key: &str| request[key].as_str().unwrap_or_default().to_owned();
    let composed = compose(&One(text("yaml")), "x", &[]).map_err(|e| vec![e])?;
    let command: Vec<String> = serde_json::from_value(request["command"].clone()).unwrap_or_default();
    read(&ReadInput {
        composed: Some(&composed),
        config_file: Some(Utf8Path::new(&text("file"))),
        set: &[],
        command: &command,
        cwd: Utf8Path::new("/"),
        env: &|_| None,
        file: &|_| None,
        workers: None,
        launcher: Some(LauncherKind::Gang),
        user: Some(&text("user")),
        kind: Some(supervise_trainers::areal::AREAL),
        starts_ray: false,
        may_start_ray: false,
        recovery: true,
        recovery_said: false,
        version: None,
        printed: None,
    })
}

fn shown(out: ReadOutput, file: &str) -> Json {
    let live = ArealSpec::of(&out.saves);
    let frequencies = live.iter().flat_map(|l| &l.frequencies);
    let frequencies: BTreeMap<_, _> = frequencies
        .map(|(file, f)| (file.clone(), [f.epochs, f.steps, f.secs]))
        .collect();
    let contents: BTreeMap<_, _> = out
        .roles
        .iter()
        .map(|r| (r.name.clone(), (r.save_contents.len(), r.load_contents.len())))
        .collect();
    let warnings: Vec<_> = out.findings.iter().map(|f| f.code.clone()).collect();
    json!({
        "root": out.root,
        "frequencies": frequencies,
        "last_step": out.last_step,
        "retries": out.facts.retries,
        "world": out.world,
        "updates": live.as_ref().and_then(|l| l.updates_per_step),
        "async_save": live.as_ref().is_some_and(|l| l.async_save),
        "contents": contents,
        "warnings": warnings,
        "argv": launched(out, file),
    })
}

/// The words of a launch from scratch.
fn launched(out: ReadOutput, file: &str) -> Vec<String> {
    let host = HostFacts {
        trainer: out.facts.clone(),
        ..HostFacts::default()
    };
    let spec = RunSpec {
        run: RunId(String::new()),
        name: None,
        trainer: out.kind,
        trainer_version: None,
        config_hash: 0,
        root: out.root,
        run_dir: "/".into(),
        config_file: Some(file.into()),
        command: out.command,
        declared: None,
        learnt: None,
        cwd: "/".into(),
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
        saves: out.saves,
        numbering: out.numbering,
        may_end_early: out.may_end_early,
        saves_at_stop: out.saves_at_stop,
        has_tail: out.has_tail,
        save_door: false,
    };
    let order = LaunchOrder {
        attempt: AttemptNo(1),
        from: StartPoint::Fresh,
        lost: Vec::new(),
        nodes: 1,
    };
    adapter(spec.trainer)
        .arrange(&spec, &order, &host)
        .map_or_else(|reason| vec![reason.text], |plan| plan.argv)
}
