//! Release of verl that would run: asked of the interpreter that the command starts.

use crate::world::World;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const YAML: &str = "algorithm: {adv_estimator: grpo}
trainer: {default_local_dir: ckpt, save_freq: 1, n_gpus_per_node: 2, total_training_steps: 2}
";
const MODULE: [&str; 2] = ["-m", "verl.trainer.main_ppo"];

fn world() -> World {
    let world = World::new();
    world.write("ppo.yaml", YAML);
    world
}

/// A program of this world.
fn program(world: &World, name: &str, text: &str) -> String {
    let path = world.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.into_string()
}

/// An interpreter that answers with these versions, whatever it is asked, after some noise.
fn interpreter(world: &World, name: &str, verl: &str) -> String {
    let answer = format!(
        r#"{{"program":"/fake/python","python":"3.11.9","packages":{{"torch":"2.11.0","verl":"0.1"}},"verl":{{"at":"/fake/verl","version":"{verl}"}}}}"#
    );
    program(
        world,
        name,
        &format!("#!/bin/sh\necho noise\necho 'supervise-interpreter:{answer}'\n"),
    )
}

fn plan(world: &World, more: &[&str], command: &[&str]) -> serde_json::Value {
    let mut args = vec!["plan", "ppo.yaml", "--json"];
    args.extend(more);
    args.push("--");
    args.extend(command);
    world.run(&args).json()
}

#[test]
fn the_interpreter_of_the_command_says_which_release_would_run() {
    let world = world();
    let python = interpreter(&world, "venv/bin/python3", "0.8.0");
    let view = plan(&world, &[], &[&python, MODULE[0], MODULE[1]]);
    assert_eq!(view["trainer_version"], "0.8.0");
    assert_eq!(view["interpreter"]["packages"]["torch"], "2.11.0");
    // torchrun's first line names it, by its path or through PATH.
    let direct = program(&world, "venv/bin/torchrun", &format!("#!{python}\nimport sys\n"));
    assert_eq!(
        plan(&world, &[], &[&direct, MODULE[0], "verl.trainer.sft_trainer"])["trainer_version"],
        "0.8.0"
    );
    let by_path = program(&world, "bin/torchrun", "#!/usr/bin/env python3\nimport sys\n");
    let path = format!("supervisor.env.PATH={}:/usr/bin:/bin", world.path("venv/bin"));
    let view = plan(&world, &["--set", &path], &[&by_path, MODULE[0], MODULE[1]]);
    assert_eq!(view["trainer_version"], "0.8.0");

    let text = ["plan", "ppo.yaml", "--", &python, MODULE[0], MODULE[1]];
    world
        .run(&text)
        .tells(0, &["verl         0.8.0 in /fake/verl; Python 3.11.9, torch 2.11.0"]);
}

#[test]
fn an_interpreter_that_cannot_be_asked_is_a_note_and_the_settings_can_say_it() {
    let world = world();
    let mute = program(&world, "mute/python3", "#!/bin/sh\necho no such thing >&2\nexit 3\n");
    let liar = program(
        &world,
        "liar/python3",
        "#!/bin/sh\necho 'supervise-interpreter:{\"program\": 1}'\n",
    );
    let flood = program(&world, "flood/python3", "#!/bin/sh\nexec yes\n");
    let srun = program(&world, "bin/srun", "#!/bin/sh\nexec elsewhere\n");
    for (python, why) in [
        (mute.as_str(), "ended with exit code 3"),
        (liar.as_str(), "did not answer"),
        (flood.as_str(), "printed more than"),
        (srun.as_str(), "is a script of `/bin/sh`"),
    ] {
        let view = plan(&world, &[], &[python, MODULE[0], MODULE[1]]);
        let said = view["version_unknown"].as_str().unwrap_or_default();
        assert!(said.contains(why), "{python}: {view:#}");
        assert_eq!(
            (&view["trainer_version"], &view["interpreter"]),
            (&Value::Null, &Value::Null)
        );
    }
    world.write("run.sh", "exit 1\n");
    let view = plan(&world, &[], &["/bin/sh", "run.sh", "{overrides}"]);
    assert!(
        view["version_unknown"]
            .as_str()
            .unwrap()
            .contains("not a Python script"),
        "{view:#}"
    );
    let said = ["--set", "supervisor.trainer_version=0.7.1"];
    let view = plan(&world, &said, &[&mute, MODULE[0], MODULE[1]]);
    assert_eq!(
        (&view["trainer_version"], &view["version_unknown"]),
        (&"0.7.1".into(), &Value::Null)
    );
    let other = plan(&world, &[], &["/bin/sh", "run.sh", "{overrides}"]);
    assert_eq!(other["trainer_version"], Value::Null);
    world
        .run(&["plan", "ppo.yaml", "--set", "supervisor.trainer_version=newest"])
        .refuses(78, &["trainer_version: 'newest' is not a version", "\"0.9.1\""]);
}

#[test]
fn a_source_checkout_is_found_and_nothing_of_it_is_imported() {
    let world = world();
    world.write("verl/__init__.py", "open('imported', 'w')\n");
    world.write("verl/version/version", "0.6.1\n");
    world.write("verl/trainer/main_ppo.py", "open('imported', 'w')\n");
    // Names that the question itself imports.
    for name in ["json.py", "os.py", "importlib.py"] {
        world.write(name, "open('imported', 'w')\n");
    }
    let view = plan(&world, &[], &["python3", MODULE[0], MODULE[1]]);
    assert_eq!(view["trainer_version"], "0.6.1", "{view:#}");
    assert_eq!(view["interpreter"]["verl"]["at"], world.path("verl").as_str());
    assert!(!world.path("imported").exists());
    // Started as a script, it looks beside the script and not here.
    world.write("other/verl/__init__.py", "");
    world.write("other/verl/version/version", "0.5.0\n");
    world.write("other/train.py", "");
    let view = plan(
        &world,
        &["--set", "supervisor.trainer=verl"],
        &["python3", "-u", "other/train.py"],
    );
    assert_eq!(view["trainer_version"], "0.5.0", "{view:#}");
    // A version file that never ends is no version, and keeps nobody waiting.
    fs::remove_file(world.path("verl/version/version")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", world.path("verl/version/version")).unwrap();
    let view = plan(&world, &[], &["python3", MODULE[0], MODULE[1]]);
    assert_eq!(view["trainer_version"], Value::Null, "{view:#}");
}

#[test]
fn doctor_says_what_is_installed() {
    let world = world();
    let python = interpreter(&world, "venv/bin/python3", "0.9.1");
    let said = world.run(&["doctor", "ppo.yaml", "--", &python, MODULE[0], MODULE[1]]);
    said.tells(
        0,
        &["/fake/python is Python 3.11.9, torch 2.11.0", "0.9.1 in /fake/verl"],
    );
}

/// An interpreter that says its version, and whose trainer prints or complains of a configuration.
fn trainer(world: &World, name: &str, does: &str) -> String {
    let told = interpreter(world, &format!("{name}/told"), "0.9.1");
    let text = format!("#!/bin/sh\ncase \"$*\" in *--cfg*) {does};; *) exec {told};; esac\n");
    program(world, &format!("{name}/python3"), &text)
}

#[test]
fn a_relaunch_is_rehearsed_and_what_it_would_not_get_is_told() {
    let world = world();
    let codes = |python: &str| {
        let view = plan(&world, &["--rehearse"], &[python, MODULE[0], MODULE[1]]);
        let findings = view["findings"].as_array().unwrap().clone();
        let of = |f: &Value| Some((f["code"].as_str()?.to_owned(), f["detail"].as_str()?.to_owned()));
        let told: Vec<(String, String)> = findings.iter().filter_map(of).collect();
        told.into_iter()
            .filter(|(code, _)| ["override_unknown", "not_rehearsed"].contains(&code.as_str()))
            .collect::<Vec<_>>()
    };
    let refuses = trainer(
        &world,
        "refuses",
        "echo \"Could not override 'trainer.resume_from_path'.\" >&2; exit 1",
    );
    let told = codes(&refuses);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].0 == "override_unknown" && told[0].1.contains("trainer.resume_from_path"),
        "{told:?}"
    );

    let forgets = trainer(&world, "forgets", "echo noise; echo 'trainer: {resume_mode: auto}'");
    let told = codes(&forgets);
    assert!(
        told.iter()
            .any(|(_, text)| text.contains("resume_mode=resume_path`: the composed configuration has auto")),
        "{told:?}"
    );
    assert!(told.iter().all(|(code, _)| code == "override_unknown"), "{told:?}");

    let broken = trainer(&world, "broken", "echo no module named verl >&2; exit 1");
    let told = codes(&broken);
    assert!(
        told[0].0 == "not_rehearsed" && told[0].1.contains("no module named verl"),
        "{told:?}"
    );
    // Nothing is tried where it is not asked for.
    let view = plan(&world, &[], &[&refuses, MODULE[0], MODULE[1]]);
    assert!(!view.to_string().contains("override_unknown"), "{view:#}");
}
