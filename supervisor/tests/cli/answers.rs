//! Each command gives what it is asked for: exit codes, JSON, one error for one mistake, and a place for runs without a home.

use crate::world::{Said, World, copy_fixture};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PLAIN: [&str; 4] = ["--set", "supervisor.trainer=plain", "--", "/bin/sh"];

fn plain<'a>(first: &[&'a str], script: &'a str) -> Vec<&'a str> {
    first.iter().copied().chain(PLAIN).chain(["-c", script]).collect()
}

/// A supervisor in the background that does not outlive the test.
struct Background(Child);

impl Background {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.command();
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn end(&mut self, signal: i32) -> Option<i32> {
        let args = [format!("-{signal}"), self.0.id().to_string()];
        assert!(Command::new("kill").args(args).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn wait_until_it_runs(world: &World) {
    for _ in 0..1200 {
        let said = world.run(&["status", "--json"]);
        if said.code == 0 && said.json()[0]["mode"] == "running" {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{:#?}", world.run(&["status"]));
}

/// Every command that answers, in the world of a run that has ended.
const ANSWERS: [&[&str]; 18] = [
    &["status"],
    &["status", "--json"],
    &["explain"],
    &["explain", "--json"],
    &["checkpoints", "ckpt"],
    &["checkpoints", "ckpt", "--json"],
    &["verify", "ckpt"],
    &["verify", "ckpt", "--json"],
    &["plan", "--set", "supervisor.trainer=plain", "--", "/bin/true"],
    &["plan", "--json", "--set", "supervisor.trainer=plain", "--", "/bin/true"],
    &["config", "show"],
    &["config", "schema"],
    &["logs"],
    &["logs", "--json"],
    &["stop"],
    &["gc", "--dry-run"],
    &["completions", "bash"],
    &["--help"],
];

#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world.run(&plain(&["run"], "echo working")).tells(0, &["finished"]);
    for answer in ANSWERS {
        let usual = world.run(answer);
        assert!(!usual.out.is_empty(), "{answer:?}: {usual:#?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let said = world.command().args(answer).stdout(full).output().unwrap();
        let err = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(69), "{answer:?}: {err}");
        assert!(err.contains("No space left on device"), "{answer:?}: {err}");
        // Other remarks are not the answer.
        let errors = err.lines().filter(|line| line.contains("error"));
        assert_eq!(errors.count(), 1, "{answer:?}: {err}");

        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        let said = world.command().args(answer).stdout(gone).output().unwrap();
        let err = String::from_utf8(said.stderr).unwrap();
        assert_eq!((said.status.code(), &err), (Some(usual.code), &usual.err), "{answer:?}");
    }
    // A run is no answer: it goes on, whatever becomes of its words.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut run = world.command();
    let run = run.args(plain(&["run"], "echo working > done")).stdout(full);
    assert_eq!(run.output().unwrap().status.code(), Some(0));
    assert!(world.path("done").exists());
}

#[test]
fn the_code_that_is_told_is_the_one_that_run_ended_with() {
    for (signal, code) in [(None, 7), (Some(2), 130), (Some(15), 143)] {
        let world = World::new();
        let mut run = Background::start(&world, &plain(&["run"], "exec sleep 300"));
        wait_until_it_runs(&world);
        let really = match signal {
            Some(signal) => run.end(signal),
            None => {
                let said = world.run(&["stop", "--json"]);
                assert_eq!(
                    (said.code, said.json()["exit_code"].as_i64()),
                    (0, Some(7)),
                    "{said:#?}"
                );
                assert_eq!(said.json()["outcome"], "stopped");
                run.0.wait().unwrap().code()
            }
        };
        assert_eq!(really, Some(code));
        let told = format!("(exit code {code})");
        let status = world.run(&["status", "--json"]).json();
        assert_eq!(status[0]["outcome"]["exit_code"], code);
        assert_eq!(world.run(&["explain", "--json"]).json()["exit_code"], code);
        for command in ["status", "explain", "stop"] {
            world.run(&[command]).tells(0, &[&told]);
        }
        assert_eq!(world.run(&["stop", "--json"]).json()["exit_code"], code);
    }
}

#[test]
fn the_examples_of_the_help_fit_the_program() {
    let world = World::new();
    let run = plain(&["run"], "exit 0");
    assert_eq!(world.run(&run).code, 0);
    let help = world.run(&["help", "status"]);
    help.tells(0, &["--json | jq -r '.[0].mode'", "Exit codes:"]);
    assert_eq!(world.run(&["status", "--json"]).json()[0]["mode"], "finished");
    world
        .run(&["help", "run"])
        .tells(0, &["supervise run ppo.yaml", "--detach"]);
    world.run(&["help"]).tells(0, &["2^53", "standard error"]);
}

#[test]
fn quiet_is_quiet() {
    let world = World::new();
    let said = world.run(&plain(&["run", "-q", "--set", "supervisor.stall.save=1h"], "exit 0"));
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(!said.out.contains("note:") && !said.err.contains("note:"), "{said:#?}");
    assert!(said.out.contains("exit code 0"), "{said:#?}");
}

#[test]
fn large_numbers_are_strings_in_json() {
    fn check(value: &Value) {
        match value {
            Value::Number(n) => assert!(n.as_f64().is_some_and(|n| n.abs() <= 9_007_199_254_740_992.0), "{n}"),
            Value::Array(items) => items.iter().for_each(check),
            Value::Object(fields) => fields.values().for_each(check),
            _ => {}
        }
    }
    let world = World::new();
    let said = world.run(&plain(&["run", "--json"], "exit 0"));
    assert_eq!(said.code, 0, "{said:#?}");
    let lines: Vec<Value> = said.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    lines.iter().for_each(check);
    // One number there is nearly always larger: the hash of the configuration.
    assert!(said.out.contains("\"config\":"), "{said:#?}");
}

#[test]
fn a_detached_run_says_whether_it_goes_on() {
    let world = World::new();
    let said = world.run(&plain(&["run", "--detach", "--json"], "exec sleep 300"));
    let view = said.json();
    assert_eq!((said.code, view["goes_on"].as_bool()), (0, Some(true)), "{said:#?}");
    assert!(
        view["pid"].as_u64().is_some() && view["run"].as_str().is_some(),
        "{view}"
    );
    world.run(&["stop", "--now"]).tells(0, &["(exit code 7)"]);
    let world = World::new();
    for json in [false, true] {
        let first: &[&str] = if json {
            &["run", "--detach", "--json"]
        } else {
            &["run", "--detach"]
        };
        let said = world.run(&plain(first, "exit 0"));
        assert_eq!(said.code, 0, "{said:#?}");
        assert!(!said.out.contains("goes on"), "{said:#?}");
        match json {
            true => assert_eq!(
                (&said.json()["goes_on"], &said.json()["exit_code"]),
                (&false.into(), &0.into())
            ),
            false => said.refuses(0, &["has ended already, with exit code 0"]),
        }
    }
}

fn verl(save: &str) -> Said {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    let yaml = format!(
        "algorithm: {{adv_estimator: grpo}}
trainer: {{default_local_dir: ckpt, {save}, n_gpus_per_node: 2, total_training_steps: 2}}
supervisor: {{trainer: verl, command: [/bin/true, '{{overrides}}']}}
"
    );
    world.write("ppo.yaml", &yaml);
    world.run(&["plan", "ppo.yaml"])
}

#[test]
fn one_mistake_is_one_error_and_a_slip_of_the_hand_is_recognized() {
    for bad in [
        "save_freq: abc",
        "save_freq: 1, resume_mode: 3",
        "save_freq: 1, max_actor_ckpt_to_keep: x",
    ] {
        let said = verl(bad);
        assert_eq!(said.code, 78, "{said:#?}");
        assert_eq!(said.err.matches("ppo.yaml:2").count(), 1, "{said:#?}");
        assert!(!said.err.contains("things are wrong"), "{said:#?}");
    }
    let world = World::new();
    world.write("sft.yaml", "trainer: {save_freq: abc, default_local_dir: ck}\n");
    let said = world.run(&[
        "plan",
        "sft.yaml",
        "--",
        "python3",
        "-m",
        "verl.trainer.fsdp_sft_trainer",
    ]);
    assert_eq!((said.code, said.err.matches("trainer.").count()), (78, 1), "{said:#?}");
    verl("save_frq: 1").refuses(
        78,
        &["trainer.save_freq", "ppo.yaml:2", "did you mean `trainer.save_freq`?"],
    );
    verl("save_freq: 1, max_actor_ckpt_to_kep: 3")
        .tells(0, &["did you mean `trainer.max_actor_ckpt_to_keep`?", "mistyped_key"]);
    let right = verl("save_freq: 1, max_actor_ckpt_to_keep: 3, test_freq: 5");
    assert!(!right.out.contains("mistyped_key"), "{right:#?}");
}

#[test]
fn durations_and_ends_that_nobody_can_wait_for_are_refused() {
    let world = World::new();
    for (setting, part) in [
        ("backoff.max=9999999d", "longer than a year"),
        ("grace.stop=18446744073709551615ms", "longer than a year"),
        ("deadline=9223372036854775807", "out of range"),
    ] {
        let set = format!("supervisor.{setting}");
        world.run(&["plan", "--set", &set, "--", "true"]).refuses(78, &[part]);
    }
}

#[test]
fn a_plain_command_says_which_settings_mean_nothing_to_it() {
    let world = World::new();
    world.write("supervise.yaml", "proof: {depth: full}\nroot: /ckpt\n");
    for command in ["plan", "run"] {
        let said = world.run(&plain(&[command, "--set", "supervisor.stall.minimum=10m"], "exit 0"));
        said.tells(
            0,
            &[
                "ignored: root (",
                "proof.depth (",
                "supervise.yaml:1",
                "stall.minimum says here, too",
            ],
        );
    }
    let said = world.run(&plain(&["plan", "--set", "supervisor.retries=3"], "exit 0"));
    assert!(
        world.path("supervise.yaml").exists() && said.out.contains("ignored: root"),
        "{said:#?}"
    );
    fs::remove_file(world.path("supervise.yaml")).unwrap();
    let said = world.run(&plain(&["plan", "--set", "supervisor.retries=3"], "exit 0"));
    assert!(!said.out.contains("ignored:"), "{said:#?}");
    for command in ["plan", "run"] {
        let said = world.run(&plain(&[command, "--from", "5"], "touch launched"));
        said.refuses(64, &["--from 5: nothing is known of this command's steps"]);
        let said = world.run(&plain(&[command, "--fresh"], "exit 0"));
        said.tells(0, &["ignored: --fresh: nothing is known of this command's checkpoints"]);
    }
    assert!(!world.path("launched").exists());
}

/// Nobody of this machine; as another user than root the test is run as that one.
const NOBODY: u32 = 54_321;

#[test]
fn a_run_without_a_home_is_listed_all_the_same() {
    let world = World::new();
    let is_root = supervise_host::system::effective_user() == 0;
    let uid = if is_root {
        NOBODY
    } else {
        supervise_host::system::effective_user()
    };
    let runtime = world.path("runtime");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&runtime, Some(uid), None).unwrap();
    let program = world.path("supervise");
    fs::copy(env!("CARGO_BIN_EXE_supervise"), &program).unwrap();
    let homeless = |args: &[&str], runtime: Option<&str>| {
        let mut command = std::process::Command::new(&program);
        command
            .current_dir(world.dir())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(args)
            .stdin(Stdio::null());
        command.envs(runtime.map(|dir| ("XDG_RUNTIME_DIR", dir)));
        if is_root {
            command.uid(uid).gid(uid);
        }
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let run = plain(&["run"], "exit 0");
    let (code, said) = homeless(&run, Some(runtime.as_str()));
    assert_eq!(code, Some(0), "{said}");
    assert!(runtime.join("supervise/runs").is_dir());
    let (code, said) = homeless(&["status"], Some(runtime.as_str()));
    assert!(code == Some(0) && said.contains("finished"), "{said}");
    if !is_root {
        return crate::skipped("only root can run as a user whose place in /tmp is not there yet");
    }
    let tmp = std::path::PathBuf::from(format!("/tmp/supervise-{uid}"));
    let _ = fs::remove_dir_all(&tmp);
    let run = plain(&["run"], "exit 0 # in tmp");
    let (code, said) = homeless(&run, None);
    let made = fs::symlink_metadata(&tmp).map(|m| (m.uid(), m.mode() & 0o777));
    let (_, listed) = homeless(&["status"], None);
    let _ = fs::remove_dir_all(&tmp);
    // Somebody else was there first: it is not used.
    fs::create_dir(&tmp).unwrap();
    let (refused, why) = homeless(&run, None);
    let _ = fs::remove_dir_all(&tmp);
    assert_eq!((code, made.ok()), (Some(0), Some((uid, 0o700))), "{said}");
    assert!(listed.contains("finished"), "{listed}");
    assert_eq!(refused, Some(69), "{why}");
    assert!(why.contains("somebody else's"), "{why}");
}

#[test]
fn a_run_of_another_user_is_not_called_dead() {
    if supervise_host::system::effective_user() != 0 {
        return crate::skipped("only root can ask as another user");
    }
    let world = World::new();
    let set = ["run", "--set", "supervisor.run_dir=theirs/.supervise"];
    world.run(&plain(&set, "exit 0")).tells(0, &[]);
    fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.path("theirs"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = world.path("supervise");
    fs::copy(env!("CARGO_BIN_EXE_supervise"), &program).unwrap();
    for command in [
        &["stop"][..],
        &["stop", "--after-save"],
        &["hold"],
        &["status"],
        &["explain"],
        &["metrics"],
    ] {
        let mut asked = std::process::Command::new(&program);
        asked
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(command)
            .arg(world.path("theirs"));
        let output = asked.uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(69), "{command:?}: {said}");
        assert!(
            said.contains("the run is of user 0") && !said.contains("dead"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn a_journal_that_was_emptied_is_told_wherever_it_is_read() {
    let world = World::new();
    let set = [
        "run",
        "--set",
        "supervisor.run_dir=kept",
        "--set",
        "supervisor.retries=0",
    ];
    for _ in 0..2 {
        world.run(&plain(&set, "exit 3"));
    }
    fs::write(world.path("kept/journal/2.jsonl"), "").unwrap();
    for command in ["explain", "history", "journal"] {
        let said = world.run(&[command, "kept"]);
        said.refuses(0, &["2.jsonl is empty: what happened in term 2 is not known"]);
        assert!(!said.out.is_empty(), "{said:?}");
    }
}
