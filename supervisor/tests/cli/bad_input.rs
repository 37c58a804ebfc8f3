//! Wrong input is told with its place, its reason and the next step, and with the right exit code.

use crate::world::{Said, World, copy_fixture};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// A PPO configuration that is right, for a command that exists.
pub(crate) const PPO: &str = "\
algorithm:
  adv_estimator: grpo
trainer:
  default_local_dir: ckpt
  total_training_steps: 10
  save_freq: 2
  n_gpus_per_node: 2
supervisor:
  trainer: verl
  command: [/bin/true, '{overrides}']
";

fn plan(yaml: &str) -> Said {
    let world = World::new();
    world.write("ppo.yaml", yaml);
    world.run(&["plan", "ppo.yaml"])
}

#[test]
fn the_configuration_that_is_varied_here_is_right() {
    plan(PPO).tells(0, &["would start from scratch", "default_local_dir"]);
}

#[test]
fn no_such_file() {
    for command in ["run", "plan"] {
        World::new()
            .run(&[command, "none.yaml"])
            .refuses(64, &["none.yaml", "no such file", "hint:"]);
    }
}

#[test]
fn an_empty_word_is_named() {
    for command in [
        &["status", ""][..],
        &["explain", ""],
        &["checkpoints", ""],
        &["verify", ""],
        &["merge", "", "--target", "model"],
    ] {
        World::new().run(command).refuses(64, &["argument 2 is empty", "hint:"]);
    }
    let world = World::new();
    world.write("ppo.yaml", PPO);
    for (command, what) in [
        (&["plan", "ppo.yaml", "--settings", ""][..], "--settings is empty"),
        (&["plan", "ppo.yaml", "--set="], "--set is empty"),
        (&["stop", "ppo.yaml", "--timeout", ""], "--timeout is empty"),
        (&["diagnose", ""], "argument 2 is empty"),
        (
            &["plan", "--set", "supervisor.trainer=plain", "--", ""],
            "the command is empty",
        ),
    ] {
        world.run(command).refuses(64, &[what, "hint:"]);
    }
    world
        .run(&["plan", "ppo.yaml", "--set", "trainer.project_name="])
        .tells(0, &["would start"]);
}

#[test]
fn a_file_instead_of_a_run() {
    let world = World::new();
    world.write("notes.txt", "x");
    for command in [&["checkpoints", "/dev/null"][..], &["status", "notes.txt"]] {
        world.run(command).refuses(64, &["expected a run", "hint:"]);
    }
}

#[test]
fn a_directory_instead_of_a_file() {
    let world = World::new();
    fs::create_dir(world.path("dir.yaml")).unwrap();
    world
        .run(&["run", "dir.yaml"])
        .refuses(64, &["dir.yaml", "directory", "supervise checkpoints"]);
}

#[test]
fn standard_input_and_nothing_at_all() {
    let world = World::new();
    world.run(&["run", "-"]).refuses(64, &["standard input"]);
    world.run(&["run"]).refuses(64, &["neither", "supervise run ppo.yaml"]);
    world.run(&["run", "--no-such-flag"]).refuses(64, &["--no-such-flag"]);
    world.run(&["run", "a.yaml", "--set"]).refuses(64, &["--set"]);
}

#[test]
fn broken_yaml_names_its_line() {
    plan("trainer:\n  save_freq: [1, 2\n  x: 3\n").refuses(78, &["ppo.yaml:", "configuration"]);
    plan("a: 1\nb: 2\nc: @x\n").refuses(78, &["ppo.yaml:3"]);
}

#[test]
fn a_duplicate_key_names_its_second_place() {
    let yaml = PPO.replace("  save_freq: 2\n", "  save_freq: 2\n  save_freq: 3\n");
    plan(&yaml).refuses(78, &["ppo.yaml:7", "save_freq"]);
}

#[test]
fn an_unknown_resume_mode() {
    let yaml = PPO.replace("  save_freq: 2\n", "  save_freq: 2\n  resume_mode: sometimes\n");
    plan(&yaml).refuses(
        78,
        &[
            "ppo.yaml:7",
            "trainer.resume_mode",
            "sometimes",
            "auto, disable or resume_path",
        ],
    );
}

fn resume_path(path: &str) -> Said {
    let add = format!("  save_freq: 2\n  resume_mode: resume_path\n  resume_from_path: {path}\n");
    plan(&PPO.replace("  save_freq: 2\n", &add))
}

#[test]
fn a_resume_path_that_verl_would_misread() {
    let key = "trainer.resume_from_path";
    resume_path("/ckpt/global_step_4/").refuses(78, &["ppo.yaml:8", key, "trailing slash", "global_step_N"]);
    resume_path("/ckpt/global_step_4/actor").refuses(78, &["ppo.yaml:8", key, "`actor`", "a part of a step"]);
    resume_path("/ckpt/step4").refuses(78, &["ppo.yaml:8", key, "not a step directory"]);
}

#[test]
fn a_resume_path_where_no_step_is() {
    resume_path("/ckpt/none/global_step_4").refuses(
        78,
        &[
            "ppo.yaml:8",
            "trainer.resume_from_path",
            "no such step",
            "/ckpt/none/global_step_4",
            "supervise checkpoints /ckpt/none",
        ],
    );
}

#[test]
fn interpolations_in_a_circle() {
    let yaml = PPO.replace(
        "default_local_dir: ckpt",
        "default_local_dir: ${trainer.a}\n  a: ${trainer.default_local_dir}",
    );
    plan(&yaml).refuses(78, &["ppo.yaml:", "trainer."]);
}

#[test]
fn unknown_settings_suggest_the_nearest() {
    plan(&format!("{PPO}  retrys: 3\n")).refuses(78, &["ppo.yaml:11", "retrys", "no such setting", "`retries`"]);
    let world = World::new();
    world.write("ppo.yaml", PPO);
    let flag = world.run(&["plan", "ppo.yaml", "--set", "supervisor.grace.stopp=3s"]);
    flag.refuses(
        78,
        &["--set supervisor.grace.stopp:", "no such setting", "`grace.stop`"],
    );
    let env = world.run_with(&["plan", "ppo.yaml"], &[("SUPERVISE_RETRYS", "3")]);
    env.refuses(78, &["SUPERVISE_RETRYS", "`retries`"]);
    world.write("supervise.yaml", "proof: {depth: deep}\n");
    world
        .run(&["plan", "ppo.yaml"])
        .refuses(78, &["supervise.yaml:1", "proof.depth", "deep", "structure, full"]);
    world
        .run(&["plan", "ppo.yaml", "--set", "supervisor.retries"])
        .refuses(64, &["supervisor.retries", "a value is missing"]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let yaml = format!("{PPO}  retries: many\n  proof: {{depth: deep}}\n");
    plan(&yaml).refuses(78, &["2 things", "ppo.yaml:11", "ppo.yaml:12"]);
}

#[test]
fn a_command_that_is_not_there() {
    let command = |words: &str| plan(&PPO.replace("[/bin/true, '{overrides}']", words));
    command("[no-such-program]").refuses(78, &["`no-such-program`", "not found in PATH", "/usr/bin", "hint:"]);
    command("[/no/such/program]").refuses(78, &["/no/such/program", "not there"]);
    command("[/etc/passwd]").refuses(78, &["/etc/passwd", "cannot be executed", "chmod"]);
    World::new()
        .run(&["plan", "--", "no-such-program"])
        .refuses(78, &["no-such-program"]);
}

#[test]
fn a_checkpoint_root_that_cannot_be_written_to() {
    let world = World::new();
    let root = |dir: &str| PPO.replace("default_local_dir: ckpt", &format!("default_local_dir: {dir}"));
    // Nobody may create directories there, not even root.
    world.write("proc.yaml", &root("/proc/supervise/ckpt"));
    world
        .run(&["run", "proc.yaml"])
        .refuses(69, &["checkpoint root /proc/supervise/ckpt", "not writable", "hint:"]);
    world.write("file", "");
    world.write("file.yaml", &root("file/ckpt"));
    world
        .run(&["plan", "file.yaml"])
        .refuses(69, &["checkpoint root", "file is a file, not a directory"]);
    let closed = world.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    world.write("closed.yaml", &root("closed/ckpt"));
    let said = world.run(&["run", "closed.yaml"]);
    if supervise_host::system::effective_user() == 0 {
        // Permissions do not hold root back; /bin/true ends well, and nothing is wrong.
        assert!(closed.join("ckpt").is_dir(), "{said:#?}");
    } else {
        said.refuses(69, &["not writable"]);
    }
}

#[test]
fn a_checkpoint_root_that_links_lead_astray() {
    let world = World::new();
    symlink(world.path("loop"), world.path("loop")).unwrap();
    symlink(world.path("nowhere"), world.path("dangling")).unwrap();
    let root = |dir: &str| PPO.replace("default_local_dir: ckpt", &format!("default_local_dir: {dir}"));
    world.write("loop.yaml", &root("loop/ckpt"));
    world
        .run(&["plan", "loop.yaml"])
        .refuses(69, &["checkpoint root", "loop", "leads in a circle", "hint:"]);
    world.write("dangling.yaml", &root("dangling"));
    world
        .run(&["plan", "dangling.yaml"])
        .refuses(69, &["dangling is a symbolic link to", "nowhere", "does not exist"]);
}

#[test]
fn a_link_to_a_root_is_the_root_itself() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("real"));
    symlink(world.path("real"), world.path("link")).unwrap();
    let at = |dir: &str| {
        let yaml = PPO.replace("default_local_dir: ckpt", &format!("default_local_dir: {dir}"));
        world.write("ppo.yaml", &yaml);
        world.run(&["plan", "ppo.yaml", "--json"]).json()
    };
    let (real, link) = (at("real"), at("link"));
    assert_eq!(real["run"], link["run"]);
    assert_eq!(link["root"], world.path("real").as_str());
    assert!(link["notes"].to_string().contains("link"), "{link}");
}

#[test]
fn a_run_that_never_saves() {
    let yaml = PPO.replace("save_freq: 2", "save_freq: -1");
    plan(&yaml).refuses(
        78,
        &[
            "ppo.yaml:6",
            "trainer.save_freq",
            "no checkpoint at all",
            "--no-recovery",
        ],
    );
    let world = World::new();
    world.write("ppo.yaml", &yaml);
    world
        .run(&["plan", "ppo.yaml", "--no-recovery"])
        .tells(0, &["would run the command as written", "crash costs the whole run"]);
}

#[test]
fn flags_that_contradict_each_other() {
    let world = World::new();
    world.write("ppo.yaml", PPO);
    world
        .run(&["run", "ppo.yaml", "--fresh", "--allow-fresh"])
        .refuses(64, &["--fresh", "--allow-fresh"]);
    world
        .run(&["stop", "x", "--now", "--after-save"])
        .refuses(64, &["--now", "--after-save"]);
}

#[test]
fn text_that_is_none_and_overrides_that_are_none() {
    let world = World::new();
    fs::write(world.path("latin.yaml"), b"a: \xe9\n").unwrap();
    world.run(&["plan", "latin.yaml"]).refuses(78, &["latin.yaml", "UTF-8"]);
    world.write("ppo.yaml", PPO);
    world.run(&["plan", "ppo.yaml", "--set", "trainer.save_freq"]).refuses(
        64,
        &[
            "trainer.save_freq",
            "a value is missing",
            "--set trainer.save_freq=VALUE",
        ],
    );
    for text in ["=3", "+=3", "~", "supervisor.=3", "supervisor."] {
        world
            .run(&["plan", "ppo.yaml", "--set", text])
            .refuses(64, &[text, "the key is empty"]);
    }
    world
        .run(&["plan", "ppo.yaml", "--set", ""])
        .refuses(64, &["--set is empty"]);
    world
        .run(&["plan", "ppo.yaml", "--set", "trainer.save_freq=1,2"])
        .refuses(78, &["trainer.save_freq=1,2", "sweep"]);
}

#[test]
fn runs_and_paths_that_are_not_there() {
    let world = World::new();
    for args in [
        ["status", "nothing"],
        ["stop", "nothing"],
        ["logs", "nothing"],
        ["explain", "0123456789abcdef"],
    ] {
        world
            .run(&args)
            .refuses(64, &[args[1], "no run named", "supervise status"]);
    }
    world.run(&["stop"]).refuses(64, &["name a run"]);
    world
        .run(&["verify", "nothing"])
        .refuses(64, &["nothing", "no such file or directory"]);
    world
        .run(&["checkpoints", "nothing"])
        .refuses(64, &["nothing", "no such directory"]);
}

#[test]
fn a_journal_that_cannot_be_read_is_no_run() {
    let world = World::new();
    fs::create_dir_all(world.path("root/.supervise")).unwrap();
    world.write("root/.supervise/journal", "no directory");
    world
        .run(&["status", "root"])
        .refuses(69, &["reading the journals in", "root/.supervise"]);
}

#[test]
fn a_block_that_is_left_to_the_trainer_is_told() {
    let yaml = format!("{PPO}supervizor:\n  retries: 3\n");
    plan(&yaml).tells(0, &["ppo.yaml:", "`supervizor` is left to the trainer", "`supervisor`"]);
}

#[test]
fn no_space_for_the_journal() {
    let world = World::new();
    fs::create_dir(world.path("full")).unwrap();
    let yaml = PPO.replace("default_local_dir: ckpt", "default_local_dir: full/ckpt");
    world.write("ppo.yaml", &yaml);
    let script = "mount -t tmpfs -o size=64k none full && exec \"$0\" run ppo.yaml";
    let mut command = world.command();
    let program = command.get_program().to_owned();
    let envs: Vec<_> = command
        .get_envs()
        .filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())))
        .collect();
    command = std::process::Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", script])
        .arg(program)
        .env_clear()
        .envs(envs)
        .current_dir(world.dir());
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    if err.starts_with("unshare:") {
        // Where no name space can be made, the numbers are still tested beside the code.
        return;
    }
    assert_eq!(output.status.code(), Some(69), "{err}");
    assert!(
        err.contains("no space for the journal")
            && err.contains("65536 bytes left")
            && err.contains("supervisor.run_dir"),
        "{err}"
    );
}

#[test]
fn several_machines_need_a_ray_cluster() {
    let world = World::new();
    world.write(
        "ppo.yaml",
        &PPO.replace("  n_gpus_per_node: 2", "  n_gpus_per_node: 2\n  nnodes: 2"),
    );
    world
        .run(&["run", "ppo.yaml"])
        .refuses(69, &["trainer.nnodes", "2 machines", "Ray", "hint:"]);
    // A plan may be made on another machine than the run's.
    world.run(&["plan", "ppo.yaml"]).tells(
        69,
        &[
            "would be refused here",
            "trainer.nnodes",
            "2 machines",
            "supervise sbatch",
        ],
    );
}

#[test]
fn a_relative_root_does_not_begin_anew_from_another_directory() {
    let world = World::new();
    world.write("ppo.yaml", PPO);
    fs::create_dir_all(world.path("ckpt/global_step_2")).unwrap();
    let listed = serde_json::json!({ "run": "0", "run_dir": world.path("ckpt/.supervise"), "root": world.path("ckpt"), "config": world.path("ppo.yaml") });
    world.write("state/supervise/runs/0.json", &listed.to_string());
    fs::create_dir(world.path("elsewhere")).unwrap();
    let from_elsewhere = |more: &[&str]| {
        let mut args = vec!["plan", "../ppo.yaml"];
        args.extend(more);
        world.run_in("elsewhere", &args)
    };
    from_elsewhere(&[]).refuses(78, &["was run before", "holds steps", "--fresh"]);
    from_elsewhere(&["--fresh"]).tells(0, &["would start from scratch"]);
    let other = ["--set", "trainer.default_local_dir=other"];
    from_elsewhere(&other).tells(0, &["would start from scratch"]);
}

#[test]
fn an_override_that_is_a_setting_of_ours_is_no_override_of_the_trainers() {
    let world = World::new();
    world.write("ppo.yaml", PPO);
    for key in ["policy.mem.*=stop", "retries=7", "grace.stop=3s", "env.A=b"] {
        let said = world.run(&["plan", "ppo.yaml", "--set", key]);
        said.refuses(64, &["is a setting of supervise", &format!("--set supervisor.{key}")]);
    }
    world
        .run(&["plan", "ppo.yaml", "--set", "+retries=7"])
        .tells(0, &["retries=7"]);
    world
        .run(&["plan", "ppo.yaml", "--set", "trainer.save_freq=3"])
        .tells(0, &["trainer.save_freq=3"]);
}

#[test]
fn a_pipe_is_no_settings_file_and_is_read_where_it_is_named() {
    let make = |path: &camino::Utf8PathBuf| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let world = World::new();
    world.write("ppo.yaml", PPO);
    make(&world.path("supervise.yaml"));
    world
        .run(&["plan", "ppo.yaml"])
        .refuses(78, &["supervise.yaml", "expected a file, found a pipe"]);
    fs::remove_file(world.path("supervise.yaml")).unwrap();
    // A pipe, as a shell makes it of `<(…)`.
    let named = world.path("named");
    make(&named);
    let yaml = fs::read(world.path("ppo.yaml")).unwrap();
    let to = named.clone();
    let writer = std::thread::spawn(move || fs::write(to, yaml).unwrap());
    world.run(&["plan", named.as_str()]).tells(0, &["checkpoints"]);
    writer.join().unwrap();
}

#[test]
fn a_name_that_is_no_text_is_named_and_nothing_is_begun() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.py");
    let mut command = world.command();
    command
        .args(["run", "--set", "supervisor.trainer=plain", "--", "python3"])
        .arg(name);
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{err}");
    for part in ["argument 6", r"`caf\xe9.py`", "no UTF-8", "ln -s"] {
        assert!(err.contains(part), "{part}: {err}");
    }
}
