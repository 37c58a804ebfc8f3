//! Runs of AReaL from their YAML to the trainer's words, with a stand-in for the trainer.

use crate::world::{Said, World};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const BASE: &str = "\
experiment_name: exp
trial_name: t0
total_train_steps: 1
cluster: {fileroot: TOP/share}
train_dataset: {path: p, type: sft}
actor: {experiment_name: exp, trial_name: t0, backend: 'fsdp:d1'}
saver: {experiment_name: exp, trial_name: t0, fileroot: TOP/share}
evaluator: {experiment_name: exp, trial_name: t0, fileroot: TOP/share}
stats_logger: {experiment_name: exp, trial_name: t0, fileroot: TOP/share}
recover: {mode: on, experiment_name: exp, trial_name: t0, fileroot: TOP/share, freq_steps: 2}
";

const BLOCK: &str = "\
supervisor:
  retries: 1
  gang: {launcher: gang}
# a remark
seed: 1
";

/// It says what it was given, and trains one step.
const TRAINER: &str = "\
while [ \"$1\" != --config ]; do shift; done
cat \"$2\" > given.yaml
echo \"$LOGNAME $AREAL_SPMD_MODE $*\" > given.txt
echo '(AReaL) 20260101-00:00:00.000 StatsLogger INFO: Epoch 1/1 Step 1/1 Train step 1/1 done.'
";

fn world(more: &str) -> World {
    let world = World::new();
    fs::create_dir(world.path("share")).unwrap();
    world.write(
        "x.yaml",
        &format!("{}{more}", BASE.replace("TOP", world.dir().as_str())),
    );
    world.write("train.py", TRAINER);
    world
}

/// As `ann`.
fn run(world: &World, args: &[&str]) -> Said {
    world.run_with(args, &[("LOGNAME", "ann")])
}

#[test]
fn areal_gets_a_copy_without_our_block() {
    let world = world(BLOCK);
    let before = fs::read_to_string(world.path("x.yaml")).unwrap();
    run(&world, &["run", "x.yaml", "--", "sh", "train.py"]).tells(0, &[]);
    assert_eq!(
        fs::read_to_string(world.path("x.yaml")).unwrap(),
        before,
        "the user's file is not edited"
    );
    let given = fs::read_to_string(world.path("given.yaml")).unwrap();
    assert_eq!(
        given,
        before.replace("supervisor:\n  retries: 1\n  gang: {launcher: gang}\n", "\n\n\n")
    );
    let store = world.path("share/supervise/ann/exp/t0");
    let copy = store
        .join("config")
        .read_dir_utf8()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .into_path();
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let words = fs::read_to_string(world.path("given.txt")).unwrap();
    assert_eq!(words, format!("ann 1 --config {copy} ++recover.mode=auto\n"));
    // Nothing of ours is in the root, and the lease stands beside it.
    assert!(store.join("lease").is_dir() && store.join("journal").is_dir());
    assert!(!world.path("share/checkpoints/ann/exp/t0/.supervise").exists());
}

#[test]
fn the_users_own_file_is_passed_where_nothing_of_ours_is_in_it() {
    let world = world("scheduler: {type: local}\n");
    run(&world, &["run", "--", "sh", "train.py", "--config", "x.yaml"]).tells(0, &[]);
    let words = fs::read_to_string(world.path("given.txt")).unwrap();
    assert_eq!(
        words,
        format!("ann  --config {} ++recover.mode=auto\n", world.path("x.yaml"))
    );
}

#[test]
fn a_run_is_found_by_its_file_its_root_and_its_store() {
    let world = world(BLOCK);
    run(&world, &["run", "x.yaml", "--", "sh", "train.py"]).tells(0, &[]);
    for name in ["x.yaml", "share/checkpoints/ann/exp/t0", "share/supervise/ann/exp/t0"] {
        run(&world, &["status", name]).tells(0, &["finished", "areal"]);
    }
}

/// AReaL 0.5 has no `actor.backend`; what it had is `allocation_mode`.
#[test]
fn a_release_before_the_first_known_is_named_and_runs_without_recovery() {
    let world = world("scheduler: {type: local}\n");
    let command = ["--", "sh", "train.py"];
    let plan = |more: &[&str]| run(&world, &[&["plan", "x.yaml"], more, &command].concat());
    let old = ["--set", "supervisor.trainer_version=0.5.3"];
    plan(&old).refuses(
        78,
        &["AReaL 0.5.3 is not known here: known from 1.0 on", "--no-recovery"],
    );
    plan(&["--set", "supervisor.trainer_version=1.0.4"]).tells(0, &["would start from scratch"]);
    let started = run(
        &world,
        &[&["run", "x.yaml", "--no-recovery"], &old[..], &command].concat(),
    );
    started.tells(0, &["AReaL 0.5.3 is not known here", "nothing that it saves is proven"]);
    let given = fs::read_to_string(world.path("given.txt")).unwrap();
    assert!(given.trim_end().ends_with("x.yaml"), "no word of ours: {given}");
    let yaml = fs::read_to_string(world.path("x.yaml")).unwrap();
    let yaml = yaml.replace("backend: 'fsdp:d1'", "path: p");
    world.write("x.yaml", &format!("allocation_mode: fsdp:d1\n{yaml}"));
    plan(&[]).refuses(78, &["allocation_mode, and no actor.backend"]);
    plan(&["--no-recovery"]).tells(0, &["would run the command as written"]);
    // Without a command, the one that starts it; what it says can be followed.
    run(&world, &["plan", "x.yaml", "--no-recovery"]).refuses(
        78,
        &["supervise run x.yaml --no-recovery -- python3 -m areal.launcher.local YOUR_SCRIPT.py"],
    );
    let launched = [
        "--no-recovery",
        "--",
        "python3",
        "-m",
        "areal.launcher.local",
        "train.py",
    ];
    run(&world, &[&["plan", "x.yaml"], &old[..], &launched].concat()).tells(0, &["would run the command as written"]);
    // Older still: nothing says where it saves.
    world.write(
        "old.yaml",
        "experiment_name: e\ntrial_name: t\nallocation_mode: d1\nactor: {type: {_class: qwen3}}\n",
    );
    let call = [
        "--no-recovery",
        "--set",
        "supervisor.trainer_version=0.3.0",
        "--",
        "sh",
        "train.py",
    ];
    let plan = |more: &[&str]| {
        run(
            &world,
            &[&["plan", "old.yaml", "--set", "supervisor.trainer=areal"], more, &call].concat(),
        )
    };
    plan(&[]).refuses(78, &["names no checkpoint root", "--set supervisor.trainer=plain"]);
    plan(&["--set", "supervisor.trainer=plain"]).tells(0, &["would run the command as written"]);
}

/// The two files of AReaL 1.0 for a rollout alone set one of both.
#[test]
fn the_version_of_a_controller_is_blamed_on_the_key_that_the_file_has() {
    let world = world("scheduler: {type: local}\nrollout: {_version: v2}\n");
    let yaml = fs::read_to_string(world.path("x.yaml"))
        .unwrap()
        .replace("type: sft", "type: rl");
    world.write("x.yaml", &yaml);
    run(&world, &["plan", "x.yaml", "--", "sh", "train.py"])
        .refuses(78, &["rollout._version", "remove `_version` from actor and rollout"]);
}

#[test]
fn what_areal_would_end_at_is_told_before() {
    let plain = world("");
    run(&plain, &["plan", "x.yaml", "--", "sh", "train.py"]).refuses(78, &["scheduler.type", "scheduler.type=local"]);
    run(&plain, &["plan", "x.yaml"]).refuses(
        78,
        &[
            "a configuration of AReaL",
            "supervise run x.yaml -- python3 YOUR_SCRIPT.py +scheduler.type=local",
        ],
    );
    let local = world("scheduler: {type: local}\n");
    fs::remove_dir(local.path("share")).unwrap();
    run(&local, &["run", "x.yaml", "--", "sh", "train.py"]).refuses(78, &["cluster.fileroot", "mkdir -p"]);
    let other = world("scheduler: {type: local}\n");
    other.write("y.yaml", "a: 1\n");
    let named = ["plan", "x.yaml", "--", "sh", "train.py", "--config", "y.yaml"];
    run(&other, &named).refuses(78, &["--config y.yaml", "x.yaml is read here"]);
    fs::rename(other.path("x.yaml"), other.path("x.yml")).unwrap();
    run(&other, &["plan", "x.yml", "--", "sh", "train.py"]).refuses(78, &["rename the file"]);
}

#[test]
fn a_block_that_cannot_be_cut_out_is_refused() {
    let world = world("supervisor: {gang: &gang {launcher: gang}}\nshared: *gang\n");
    run(&world, &["plan", "x.yaml", "--", "sh", "train.py"]).refuses(78, &["supervise.yaml"]);
}

#[test]
fn the_users_retries_count_unless_ours_are_said() {
    let say = |more: &str, line: &str| {
        let world = world(&format!("{more}scheduler: {{type: local}}\n"));
        let file = world.path("x.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("freq_steps: 2}", "freq_steps: 2, retries: 9}")).unwrap();
        run(&world, &["plan", "x.yaml", "--", "sh", "train.py"]).tells(0, &[line]);
    };
    say("", "recover.retries=9 counts as retries");
    say("supervisor: {retries: 3}\n", "counts, not recover.retries=9");
}

#[test]
fn another_name_of_the_user_does_not_begin_anew_in_silence() {
    let world = world("scheduler: {type: local}\n");
    let start = ["run", "x.yaml", "--", "sh", "train.py"];
    run(&world, &start).tells(0, &[]);
    fs::create_dir_all(world.path("share/checkpoints/ann/exp/t0/recover_info")).unwrap();
    world
        .run_with(&start, &[("LOGNAME", "bob")])
        .refuses(78, &["by `ann`", "LOGNAME=ann"]);
}

#[test]
fn recovery_that_the_command_switches_off_is_said_as_that() {
    let world = world("scheduler: {type: local}\n");
    let off = ["x.yaml", "--", "sh", "train.py", "recover.mode=off"];
    for verb in ["plan", "run"] {
        let said = run(&world, &[&[verb], off.as_slice()].concat());
        said.tells(0, &["the command switches recovery off: it starts as it was written"]);
        assert!(!format!("{said:?}").contains("nothing is known"), "{verb}: {said:?}");
    }
}
