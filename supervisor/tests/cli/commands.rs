//! Whole runs of a trainer that is a shell script, and what every command says of them.

use crate::world::{Said, World, copy_fixture};
use camino::Utf8Path;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Saves two genuine steps, then does what `$END` says.
const TRAINER: &str = r#"
for n in 1 2; do
  [ -d ckpt/global_step_$n ] && continue
  cp -r steps/global_step_$n ckpt/.part && mv ckpt/.part ckpt/global_step_$n
  printf %s $n > ckpt/latest_checkpointed_iteration.txt
  echo "step:$n - train/loss:0.5"
done
echo "asked with: $*"
eval "$END"
"#;

fn world(end: &str, more: &str) -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("steps"));
    world.write("trainer.sh", TRAINER);
    let yaml = format!(
        "algorithm: {{adv_estimator: grpo}}
trainer: {{default_local_dir: ckpt, save_freq: 1, n_gpus_per_node: 2, total_training_steps: 2}}
supervisor:
  command: [/bin/sh, trainer.sh, '{{overrides}}']
  env: {{END: \"{end}\", WANDB_API_KEY: hush-hush}}
  backoff: {{initial: 10ms, max: 20ms}}
  scan_interval: 50ms
{more}"
    );
    world.write("ppo.yaml", &yaml);
    world
}

/// The status of the only run, again and again until it is as wanted.
#[track_caller]
fn wait_for(world: &World, what: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..600 {
        let said = world.run(&["status", "ppo.yaml", "--json"]);
        if said.code == 0 {
            let view = said.json()[0].clone();
            if what(&view) {
                return view;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{:#?}", world.run(&["status", "ppo.yaml"]));
}

fn is_running(view: &Value) -> bool {
    view["mode"] == "running" && view["attempt"]["workers"].as_array().is_some_and(|w| !w.is_empty())
}

/// A supervisor in the background that does not outlive the test.
struct Background(Child);

impl Background {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command: Command = world.command();
        Self(
            command
                .args(args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn alive(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn no_secret(said: &Said) {
    assert!(
        !said.out.contains("hush-hush") && !said.err.contains("hush-hush"),
        "{said:#?}"
    );
}

#[test]
fn a_run_from_its_start_to_its_end_and_all_that_can_be_asked_about_it() {
    let world = world("exit 0", "");
    let said = world.run(&["run", "ppo.yaml"]);
    said.tells(
        0,
        &[
            "start from scratch",
            "1 worker started",
            "step 2 is proven",
            "finished: step 2 is proven (exit code 0)",
        ],
    );
    no_secret(&said);
    let view = world.run(&["status", "--json"]).json()[0].clone();
    assert_eq!(view["outcome"]["word"], "finished");
    assert_eq!((view["mark"].as_u64(), view["last_step"].as_u64()), (Some(2), Some(2)));
    assert_eq!(view["supervisor"]["alive"], false);
    assert_eq!(view["checkpoints"]["whole"], 2);
    for field in [
        "run", "root", "run_dir", "trainer", "term", "mode", "guard", "attempts", "attempt", "charged", "retries",
        "reasons", "since",
    ] {
        assert!(!view[field].is_null(), "{field} in {view}");
    }
    let id = view["run"].as_str().unwrap();
    for name in ["ppo.yaml", "ckpt", "ckpt/.supervise", id] {
        let said = world.run(&["status", name]);
        said.tells(0, &[id, "finished (exit code 0)", "step 2 of 2 is proven", "verl-ppo"]);
        no_secret(&said);
    }
    world
        .run(&["status", "--curves"])
        .tells(0, &["loss         ▁▁ 0.5000, 0.5000 to 0.5000 in 2 steps"]);
    assert!(!world.run(&["status"]).out.contains('▁'));
    let listed = world.run(&["status", "--color", "always"]);
    listed.tells(0, &["finished (exit code 0)"]);
    let told = world.run(&["explain", id]);
    assert!(told.out.lines().count() <= 4, "{told:#?}");
    told.tells(
        0,
        &[
            "attempt 1: start from scratch",
            "worker 0 exited with code 0",
            "finished: step 2",
        ],
    );
    no_secret(&told);
    let json = world.run(&["explain", "--json", "--attempt", "1"]).json();
    assert_eq!(json["attempts"][0]["attempt"], 1);
    assert_eq!(json["exit_code"], 0);
    world
        .run(&["explain", "--attempt", "7"])
        .refuses(64, &["there is no attempt 7"]);
    world
        .run(&["logs", "ckpt"])
        .tells(0, &["step:1 - train/loss", "asked with: ", "resume_mode=disable"]);
    world.run(&["logs", "--attempt", "9"]).refuses(64, &["no attempt 9"]);
    world
        .run(&["logs", "--worker", "5"])
        .refuses(64, &["worker 5", "workers with output: 0"]);
    world.run(&["plan", "ppo.yaml"]).tells(0, &["the run is finished"]);
    world.run(&["stop", id]).tells(0, &["nothing of it lives"]);
}

#[test]
fn the_trainers_output_stands_between_the_lines_where_it_is_asked_for() {
    let world = world("sleep 2; exit 0", "");
    let said = world.run(&["run", "ppo.yaml", "--tee"]);
    said.tells(
        0,
        &["step:1 - train/loss", "step 2 is proven", "the trainer's output: "],
    );
    // A command that is over at once has printed its line as well.
    let short = world.run(&[
        "run",
        "--tee",
        "--set",
        "supervisor.trainer=plain",
        "--",
        "/bin/echo",
        "short-words",
    ]);
    short.tells(0, &["short-words\n"]);
    // A quiet one does not have it.
    assert!(
        !world
            .run(&["run", "ppo.yaml", "--again", "--fresh", "--yes"])
            .out
            .contains("train/loss")
    );
}

#[test]
fn a_failure_that_repeats_is_told_with_its_evidence() {
    let world = world("echo 'CUDA out of memory'; exit 3", "  retries: 1\n");
    fs::create_dir(world.path("ckpt")).unwrap();
    let yaml = fs::read_to_string(world.path("ppo.yaml")).unwrap();
    world.write(
        "ppo.yaml",
        &yaml.replace("total_training_steps: 2", "total_training_steps: 5"),
    );
    let said = world.run(&["run", "ppo.yaml", "--quiet"]);
    assert!(said.code == 3 || said.code == 6, "{said:#?}");
    assert!(!said.out.contains("attempt 2:"), "{said:#?}");
    let told = world.run(&["explain", "ppo.yaml"]);
    told.tells(
        0,
        &[
            "worker 0",
            "CUDA out of memory",
            "supervise logs",
            &format!("(exit code {})", said.code),
        ],
    );
    // How long each attempt ran is one fact: the pause after it is none of it.
    let history = world.run(&["history", "ppo.yaml"]);
    let ran = |line: &str| {
        Some(
            line.split_once(", ran ")?
                .1
                .split([';', '\n'])
                .next()?
                .split(" to ")
                .next()?
                .to_owned(),
        )
    };
    let each: Vec<String> = told
        .out
        .lines()
        .filter(|l| l.starts_with("attempt "))
        .filter_map(ran)
        .collect();
    assert!(!each.is_empty(), "{told:#?}");
    for (n, ran) in (1..).zip(&each) {
        let mut rows = history.out.lines().filter(|row| row.starts_with(&format!("{n} ")));
        assert!(
            rows.any(|row| row.contains(&format!("  {ran}  "))),
            "{ran}: {told:#?} {history:#?}"
        );
    }
    let again = world.run(&["run", "ppo.yaml"]);
    assert_eq!(again.code, said.code, "{again:#?}");
    assert!(again.out.contains("--again"), "{again:#?}");
    world
        .run(&["plan", "ppo.yaml"])
        .tells(said.code, &["needs attention", "with --again", "it ended before"]);
}

#[test]
fn a_living_run_is_asked_refuses_a_second_supervisor_and_is_stopped() {
    let world = world("sleep 1000", "");
    let said = world.run(&["run", "--detach", "ppo.yaml"]);
    said.tells(0, &["goes on in the background", "supervise status"]);
    let view = wait_for(&world, is_running);
    assert_eq!(view["supervisor"]["alive"], true);
    assert!(view["supervisor"]["pid"].as_i64().is_some_and(alive));
    assert_eq!(view["guard"]["alive"], true);
    let worker = view["attempt"]["workers"][0].as_i64().unwrap();
    assert!(alive(worker));
    world.run(&["run", "ppo.yaml"]).refuses(5, &["is already running"]);
    world.run(&["status"]).tells(0, &["alive, pid", "attempt"]);
    let mut follower = world
        .command()
        .args(["logs", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(followed.any(|line| line.unwrap().contains("step:2")));
    let stopped = world.run(&["stop"]);
    stopped.tells(0, &["stopped"]);
    assert!(!alive(worker));
    // It ends with the run.
    followed.for_each(|line| drop(line.unwrap()));
    assert!(follower.wait().unwrap().success());
    let view = wait_for(&world, |v| v["outcome"]["exit_code"] == 7);
    assert_eq!(view["supervisor"]["alive"], false);
    let log = fs::read_dir(world.path("state/supervise/detached"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(
        log.contains("start from scratch") && !log.contains("hush-hush"),
        "{log}"
    );
}

#[test]
fn a_guard_without_a_supervisor_is_seen_and_its_workers_are_ended() {
    let world = world("sleep 1000", "");
    let mut supervisor = Background::start(&world, &["run", "ppo.yaml"]);
    let worker = wait_for(&world, is_running)["attempt"]["workers"][0].as_i64().unwrap();
    supervisor.0.kill().unwrap();
    supervisor.0.wait().unwrap();
    let view = wait_for(&world, |v| v["supervisor"]["alive"] == false);
    assert_eq!(view["guard"]["alive"], true);
    assert!(alive(worker));
    let said = world.run(&["stop", "ppo.yaml"]);
    said.tells(0, &["no supervisor was running; its workers are ended"]);
    assert!(!alive(worker));
    let view = wait_for(&world, |v| v["guard"]["alive"] == false);
    assert_eq!(view["outcome"]["exit_code"], 7);
    world.run(&["status", "ppo.yaml"]).tells(0, &["stopped"]);
}

#[test]
fn a_run_is_found_from_elsewhere_and_its_directory_is_its_own() {
    let world = world("exit 0", "  run_dir: journals\n");
    world.run(&["run", "ppo.yaml"]).tells(0, &["finished"]);
    assert!(world.path("journals/run.id").exists());
    fs::create_dir(world.path("elsewhere")).unwrap();
    let mut command = world.command();
    let output = command
        .args(["status", "../ppo.yaml"])
        .current_dir(world.path("elsewhere"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("finished (exit code 0)"), "{output:?}");
    let yaml = fs::read_to_string(world.path("ppo.yaml")).unwrap();
    world.write(
        "other.yaml",
        &yaml.replace("default_local_dir: ckpt", "default_local_dir: other"),
    );
    world
        .run(&["run", "other.yaml"])
        .refuses(78, &["journals", "belongs to another run", "supervisor.run_dir"]);
}

#[test]
fn any_command_is_supervised_and_found_again() {
    let world = World::new();
    let said = world.run(&[
        "run",
        "--set",
        "supervisor.trainer=plain",
        "--",
        "/bin/sh",
        "-c",
        "echo working; exit 0",
    ]);
    said.tells(
        0,
        &[
            "plain",
            "run the command as written",
            "finished: the command ended with exit code 0",
        ],
    );
    let view = world.run(&["status", "--json"]).json()[0].clone();
    assert_eq!(view["trainer"], "plain");
    assert!(view["root"].is_null());
    world.run(&["logs"]).tells(0, &["working"]);
    let dir = view["run_dir"].as_str().unwrap();
    assert!(Utf8Path::new(dir).starts_with(world.path("state/supervise/plain")));
    world.run(&["status", dir]).tells(0, &["finished"]);
}

#[test]
fn settings_are_shown_with_their_origin_and_without_secrets() {
    let world = world("exit 0", "  retries: 2\n");
    world.write("config/supervise/config.yaml", "step_backs: 7\n");
    world.write("supervise.yaml", "grace: {stop: 9s}\n");
    let args = [
        "config",
        "show",
        "ppo.yaml",
        "--set",
        "supervisor.lease.ttl=90s",
        "--set",
        "trainer.save_freq=3",
    ];
    let said = world.run_with(&args, &[("SUPERVISE_STALL__FACTOR", "9")]);
    said.tells(
        0,
        &[
            "ppo.yaml:",
            "config/supervise/config.yaml:1",
            "supervise.yaml:1",
            "environment SUPERVISE_STALL__FACTOR",
            "default of supervise",
            "--set trainer.save_freq=3",
        ],
    );
    no_secret(&said);
    let json = world.run(&["config", "show", "ppo.yaml", "--json"]).json();
    let find = |key: &str| {
        json["settings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|l| l["key"] == key)
            .cloned()
            .unwrap()
    };
    assert_eq!(find("retries")["value"], "2");
    assert_eq!(find("env.WANDB_API_KEY")["value"], "***");
    assert!(
        json["trainer"]
            .as_array()
            .unwrap()
            .iter()
            .any(|l| l["key"] == "trainer.default_local_dir")
    );
    no_secret(&world.run(&["plan", "ppo.yaml"]));
    no_secret(&world.run(&["plan", "ppo.yaml", "--json"]));
}

#[test]
fn the_machine_is_looked_at() {
    let world = world("exit 0", "");
    let yaml = fs::read_to_string(world.path("ppo.yaml")).unwrap();
    world.write("ppo.yaml", &format!("{yaml}x:\n  timeout: 1:30:00\n"));
    let said = world.run(&["doctor", "ppo.yaml"]);
    said.tells(
        0,
        &[
            "memory",
            "/dev/shm",
            "kernel",
            "cgroup",
            "inotify",
            "checkpoints",
            "interpreter",
            "is read as the number 5400",
        ],
    );
    let json = world.run(&["doctor", "--json"]).json();
    assert!(json.as_array().unwrap().iter().all(|c| c["health"].is_string()));
}

#[test]
fn every_command_explains_itself() {
    let world = World::new();
    for command in [
        "run",
        "plan",
        "status",
        "explain",
        "checkpoints",
        "verify",
        "stop",
        "logs",
        "config",
        "doctor",
        "completions",
    ] {
        world
            .run(&[command, "--help"])
            .tells(0, &["Usage: supervise", "Examples:", "Exit codes:"]);
    }
    world
        .run(&["--help"])
        .tells(0, &["run", "verify", "130", "internal error"]);
    world.run(&["--version"]).tells(0, &[env!("CARGO_PKG_VERSION")]);
    let build = world.run(&["--version", "--json"]).json();
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    assert!(build["build"]["target"].as_str().unwrap().contains("linux"), "{build}");
    assert!(build["features"].is_array() && build.get("commit").is_some(), "{build}");
    for shell in ["bash", "zsh", "fish"] {
        world
            .run(&["completions", shell])
            .tells(0, &["_SUPERVISE_COMPLETE", "supervise"]);
    }
    world.run(&[]).tells(0, &["supervise run ppo.yaml", "supervise --help"]);
}
