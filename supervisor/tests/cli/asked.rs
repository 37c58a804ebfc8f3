//! If our tables end, the interpreter that would run the trainer composes its configuration.

use crate::world::World;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Configuration of a package of recipes: some of it is said nowhere but in its own files.
const COMPOSED: &str = "\
actor_rollout_ref:
  actor:
    strategy: fsdp2
    checkpoint: {save_contents: [model, optimizer, extra], load_contents: '${.save_contents}', async_save: false}
  hybrid_engine: true
algorithm: {adv_estimator: grpo}
critic: {enable: null}
trainer:
  default_local_dir: mine/${trainer.experiment_name}
  experiment_name: cake
  save_freq: 7
  resume_mode: auto
  resume_from_path: null
  default_hdfs_dir: null
  total_training_steps: 70
  nnodes: 1
  n_gpus_per_node: 4
  max_actor_ckpt_to_keep: null
  val_before_train: false
  logger: [console]
  api_key: mine
  port_token: 7
  api_keys: [hush1, hush2]
";
/// A recipe's entry point, a configuration of its own, and a release that nobody here has seen.
const RECIPE: [&str; 3] = ["-m", "mine.main_cake", "trainer.n_gpus_per_node=4"];
const NAMED: [&str; 3] = ["-m", "verl.trainer.main_ppo", "--config-name=cake"];
const RELEASE: [&str; 2] = ["-m", "verl.trainer.main_ppo"];

/// An interpreter with this release of verl, which does this where it is to compose, and counts how often.
fn python(world: &World, verl: &str, does: &str) -> String {
    world.write("composed.yaml", COMPOSED);
    world.write("source", "@hydra.main()");
    let answer = format!(
        r#"{{"program":"/fake/python","python":"3.11.9","packages":{{}},"verl":{{"at":"/fake/verl","version":"{verl}"}}}}"#
    );
    let asked = world.path("asked");
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *'--cfg job') echo \"$*\" >>{asked}; {does};; *'read(1 << 20)'*) cat source;; *) echo 'supervise-interpreter:{answer}';; esac\n"
    );
    let path = world.write("venv/bin/python3", &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.into_string()
}

fn plan<'a>(python: &'a str, more: &[&'a str], call: &[&'a str]) -> Vec<&'a str> {
    [&["plan", "--json"], more, &["--", python], call].concat()
}

fn finding<'a>(view: &'a Value, code: &str) -> &'a str {
    let all = view["findings"].as_array().unwrap().iter();
    let mut found = all.filter(|f| f["code"] == code);
    found.next().and_then(|f| f["detail"].as_str()).unwrap_or_default()
}

fn times(world: &World) -> usize {
    fs::read_to_string(world.path("asked"))
        .unwrap_or_default()
        .lines()
        .count()
}

#[test]
fn what_no_table_knows_is_composed_by_the_trainer_itself() {
    for (verl, call, why) in [
        (
            "0.9.1",
            RECIPE.as_slice(),
            "`mine.main_cake` is no module of verl that is known",
        ),
        (
            "0.9.1",
            NAMED.as_slice(),
            "the command's configuration is not read here",
        ),
        ("0.11.0", RELEASE.as_slice(), "verl 0.11.0 is not known here"),
    ] {
        let world = World::new();
        let python = python(&world, verl, "echo noise; cat composed.yaml");
        let view = world.run(&plan(&python, &["--learn"], call)).json();
        assert!(finding(&view, "composed_by_trainer").starts_with(why), "{view:#}");
        assert_eq!(finding(&view, "version_unknown"), "");
        assert_eq!(view["root"], world.path("mine/cake").as_str(), "{view:#}");
        assert!(finding(&view, "cadence").contains("every 7 steps"), "{view:#}");
        let assumed = finding(&view, "entry_assumed");
        assert_eq!(assumed.contains("RayPPOTrainer"), call == RECIPE, "{assumed}");
        // What looks on later does not run the trainer's code again, and nothing that is kept holds a secret.
        let again = world.run(&plan(&python, &[], call)).json();
        assert_eq!((&again["root"], times(&world)), (&view["root"], 1), "{again:#}");
        let place = world.path("state/supervise/composed");
        let kept = place.read_dir_utf8().unwrap().next().unwrap().unwrap().into_path();
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(kept).unwrap();
        assert!(
            text.contains(r#""api_key": "***""#) && !text.contains("noise"),
            "{text}"
        );
        assert!(!text.contains("hush") && text.contains(r#""save_freq": 7"#), "{text}");
    }
}

#[test]
fn an_answer_that_names_another_run_without_its_secrets_is_not_kept() {
    let world = World::new();
    let python = python(&world, "0.9.1", "sed s,mine/,api_key=abcdef12345/, composed.yaml");
    let view = world.run(&plan(&python, &["--learn"], &RECIPE)).json();
    assert!(finding(&view, "cadence").contains("every 7 steps"), "{view:#}");
    world
        .run(&plan(&python, &[], &RECIPE))
        .refuses(78, &["is not known until it is asked itself"]);
}

#[test]
fn what_was_kept_is_read_only_where_it_is_a_small_file_of_ours() {
    let world = World::new();
    let python = python(&world, "0.9.1", "cat composed.yaml");
    world.run(&plan(&python, &["--learn"], &RECIPE)).json();
    let place = world.path("state/supervise/composed");
    let kept = place.read_dir_utf8().unwrap().next().unwrap().unwrap().into_path();
    let text = fs::read_to_string(&kept).unwrap();
    let looks = |code: i32| assert_eq!(world.run(&plan(&python, &[], &RECIPE)).code, code);
    looks(0);
    let elsewhere = world.write("elsewhere.yaml", &text);
    fs::remove_file(&kept).unwrap();
    std::os::unix::fs::symlink(elsewhere, &kept).unwrap();
    looks(78);
    fs::remove_file(&kept).unwrap();
    fs::write(&kept, text + &"# long\n".repeat(1 << 20)).unwrap();
    looks(78);
    fs::remove_file(&kept).unwrap();
    assert!(Command::new("mkfifo").arg(&kept).status().unwrap().success());
    looks(78);
}

#[test]
fn a_plan_alone_runs_nothing_of_the_trainers_and_says_who_asks() {
    let world = World::new();
    let python = python(&world, "0.9.1", "cat composed.yaml");
    for call in [RECIPE, NAMED] {
        let told = format!("supervise plan --learn -- {python} {}", call.join(" "));
        world
            .run(&plan(&python, &[], &call))
            .refuses(78, &["supervise plan --learn` asks the trainer itself", &told]);
    }
    assert_eq!(times(&world), 0);
    // What is guessed at is no reason of its own.
    let said = world.run(&plan(&python, &[], &RECIPE));
    said.refuses(78, &["is not known until it is asked itself"]);
    assert!(
        !said.err.contains("things are wrong") && !said.err.contains("use main_ppo"),
        "{said:#?}"
    );
}

#[test]
fn a_program_that_might_train_instead_of_answering_is_not_asked() {
    let world = World::new();
    let python = python(&world, "0.9.1", "cat composed.yaml");
    world.write("source", "import argparse # and not hydra");
    let told = world.run(&plan(&python, &["--learn"], &RECIPE));
    told.refuses(78, &["its file does not name hydra.main", "trainer=plain"]);
    assert_eq!(times(&world), 0);
}

#[test]
fn what_the_trainer_refuses_or_does_not_say_is_told() {
    for (does, told) in [
        (
            "echo \"Could not override 'trainer.n_gpus'.\" >&2; exit 1",
            "itself does not take the override of trainer.n_gpus",
        ),
        (
            "echo 'ModuleNotFoundError: no mine' >&2; exit 1",
            "does not compose its configuration: exit code 1: ModuleNotFoundError: no mine",
        ),
        (
            "cat composed.yaml; echo 'and then'; echo 'Warning: x' >&2",
            "what it printed is no configuration: Warning: x; and then",
        ),
        (
            "echo 'ValueError: why' >&2",
            "what it printed is no configuration: ValueError: why",
        ),
        ("exit 3", "exit code 3, and it says nothing"),
        (
            "echo 'trainer: {devices: 8}'",
            "has no trainer.default_local_dir: it is none of verl's PPO",
        ),
    ] {
        let world = World::new();
        let python = python(&world, "0.9.1", does);
        let said = world.run(&plan(&python, &["--learn"], &RECIPE));
        said.refuses(78, &[told, "--set supervisor.trainer=plain"]);
        if !told.contains("none of verl") {
            let by_hand = format!(
                "to try it: cd {} && {python} {} --cfg job",
                world.dir(),
                RECIPE.join(" ")
            );
            said.refuses(78, &[&by_hand]);
        }
    }
}

#[test]
fn what_is_told_of_a_complaint_holds_no_secret() {
    let world = World::new();
    let does = r#"echo "ValueError: hush one, $MY_TOKEN" >&2; exit 1"#;
    let python = python(&world, "0.9.1", does);
    let call = [&RECIPE[..], &["trainer.api_key='hush one'"]].concat();
    let said = world.run_with(&plan(&python, &["--learn"], &call), &[("MY_TOKEN", "quiet")]);
    said.refuses(78, &["ValueError: ***, ***", "with your own value for each ***"]);
    assert!(!said.err.contains("hush") && !said.err.contains("quiet"), "{said:#?}");
}

#[test]
fn one_that_trains_instead_of_answering_finds_no_root_and_no_device() {
    let world = World::new();
    let does = r#"echo "$CUDA_VISIBLE_DEVICES.$PYTHONDONTWRITEBYTECODE" >env; cat composed.yaml"#;
    let python = python(&world, "0.9.1", does);
    let root = format!("trainer.default_local_dir='{}'", world.path("my run"));
    let call = [&RECIPE[..], &[&root]].concat();
    for (more, asked) in [(["--learn"].as_slice(), 1), (&[], 1)] {
        let view = world.run(&plan(&python, more, &call)).json();
        assert_eq!(
            (view["root"].as_str().unwrap(), times(&world)),
            (world.path("my run").as_str(), asked)
        );
    }
    let words = fs::read_to_string(world.path("asked")).unwrap();
    assert!(
        words.contains("trainer.default_local_dir=/dev/null/") && !words.contains("my run"),
        "{words}"
    );
    assert_eq!(fs::read_to_string(world.path("env")).unwrap(), ".1\n");
}

#[test]
fn what_was_asked_ends_with_whoever_asked() {
    for signal in ["-TERM", "-INT", "-KILL"] {
        let world = World::new();
        let python = python(
            &world,
            "0.9.1",
            "sleep 1000 & echo $! >child.new; mv child.new child; wait",
        );
        let mut asks = world
            .command()
            .args(plan(&python, &["--learn"], &RECIPE))
            .spawn()
            .unwrap();
        let child = wait_for(|| fs::read_to_string(world.path("child")).ok());
        let lives = || fs::read(format!("/proc/{}/cmdline", child.trim())).is_ok_and(|words| !words.is_empty());
        // It may still be about to become what it is.
        wait_for(|| lives().then_some(()));
        let told = Command::new("kill").args([signal, &asks.id().to_string()]).status();
        assert!(told.unwrap().success());
        asks.wait().unwrap();
        wait_for(|| (!lives()).then_some(()));
    }
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match found() {
            Some(it) => return it,
            None => assert!(Instant::now() < end, "in vain"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_that_would_save_nothing_is_told_the_command_that_saves() {
    let world = World::new();
    world.write("composed.yaml", COMPOSED);
    let python = python(&world, "0.9.1", "sed 's/save_freq: 7/save_freq: -1/' composed.yaml");
    let said = world.run(&[
        "plan",
        "--learn",
        "--set",
        "trainer.nnodes=1",
        "--",
        &python,
        RECIPE[0],
        RECIPE[1],
        RECIPE[2],
    ]);
    let command = format!(
        "supervise run --set trainer.nnodes=1 --set trainer.save_freq=10 -- {python} {}",
        RECIPE.join(" ")
    );
    said.refuses(78, &["with a save every 10 steps", &command]);
}
