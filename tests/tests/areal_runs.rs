//! Runs of a trainer that keeps its checkpoint as AReaL does, under the real program.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "areal_runs/own.rs"]
mod own;

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use supervise_tests::areal_set::{Shape, save, save_until};
use supervise_tests::harness::{Ended, Scene, eventually, names};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

const COMMAND: [&str; 3] = ["--", "python3", "train_sft.py"];

/// A run of eight steps, a save at every second one.
struct Run {
    scene: Scene,
    yaml: Value,
}

impl Run {
    fn new() -> Self {
        let mut scene = Scene::new(SUPERVISE);
        scene.env("USER", "me").env("LOGNAME", "me");
        let files = scene.path("files");
        fs::create_dir(&files).unwrap();
        // A user's script: the words behind it are AReaL's.
        let script = "import os, sys\nos.execvp('areal_trainer', ['areal_trainer', *sys.argv[1:]])\n";
        fs::write(scene.path("train_sft.py"), script).unwrap();
        let names = json!({ "experiment_name": "exp", "trial_name": "trial0", "fileroot": files });
        let mut recover = names.clone();
        recover["mode"] = json!("auto");
        recover["freq_steps"] = json!(2);
        let yaml = json!({
            "experiment_name": "exp", "trial_name": "trial0", "total_train_epochs": 1, "total_train_steps": 8,
            "cluster": { "fileroot": files, "n_nodes": 1, "n_gpus_per_node": 2 },
            "scheduler": { "type": "local" },
            "actor": { "experiment_name": "exp", "trial_name": "trial0", "backend": "fsdp:d2", "path": "-" },
            "train_dataset": { "path": "-", "type": "sft", "batch_size": 4 },
            "saver": names, "evaluator": names, "stats_logger": names,
            "recover": recover,
            "miniature": { "step_ms": 50, "until_kept": true },
            "supervisor": {
                "trainer": "areal", "protect": { "reserve": "0B" },
                "backoff": { "initial": "10ms", "jitter": 0.0 }, "scan_interval": "100ms",
            },
        });
        Self { scene, yaml }
    }

    fn root(&self) -> PathBuf {
        self.scene.path("files/checkpoints/me/exp/trial0")
    }

    fn store(&self) -> PathBuf {
        self.scene.path("files/supervise/me/exp/trial0")
    }

    fn config(&self) -> String {
        let path = self.scene.path("areal.yaml");
        fs::write(&path, serde_yaml::to_string(&self.yaml).unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn run(&self, more: &[&str]) -> Ended {
        let config = self.config();
        let mut words = vec!["run", &config];
        words.extend(more);
        words.extend(COMMAND);
        self.scene.start_with(&words).wait()
    }

    /// Steps that were trained, each with the step whose weights it was trained on.
    fn trained(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(self.scene.path("files/trained.jsonl")).unwrap_or_default();
        let pair = |line: &str| {
            let v: Value = serde_json::from_str(line).unwrap();
            (v["step"].as_u64().unwrap(), v["on"].as_u64().unwrap())
        };
        text.lines().map(pair).collect()
    }
}

/// Every step was trained on the weights of the step before it, whatever happened between.
fn in_order(trained: &[(u64, u64)]) {
    for (step, on) in trained {
        assert_eq!(
            *on,
            step - 1,
            "step {step} was trained on weights of step {on}: {trained:?}"
        );
    }
}

#[test]
fn a_save_that_is_killed_after_any_of_its_operations_costs_no_more_than_the_steps_since_the_one_before() {
    let shape = Shape {
        data_ranks: 1,
        ..Shape::default()
    };
    let whole = save_until(&tempfile::tempdir().unwrap().path().join("x"), 6, &shape, usize::MAX).unwrap();
    for operations in [0, 1, 3, 4, 5, 6, 7, 8, 10, whole - 1] {
        let mut run = Run::new();
        run.yaml["miniature"]["fault"] = json!({ "step": 6, "operations": operations });
        let ended = run.run(&[]);
        ended.expect(0).says("step 8 is proven");
        let trained = run.trained();
        in_order(&trained);
        let steps: Vec<u64> = trained.iter().map(|(s, _)| *s).collect();
        assert_eq!(
            steps,
            [1, 2, 3, 4, 5, 6, 5, 6, 7, 8],
            "after {operations} operations:\n{}",
            ended.text
        );
    }
}

#[test]
fn killed_in_a_step_it_goes_on_from_the_live_set_and_nothing_is_moved() {
    let mut run = Run::new();
    run.yaml["miniature"]["fault"] = json!({ "step": 6 });
    run.run(&[]).expect(0).says("resume from live.");
    in_order(&run.trained());
    assert!(!run.store().join("aside").exists());
    let generations = fs::read_dir(run.store().join("protected")).unwrap().count();
    assert!((2..=3).contains(&generations), "{generations}");
}

#[test]
fn a_torn_checkpoint_of_nobody_known_is_no_ground_to_begin_anew() {
    let run = Run::new();
    let shape = Shape {
        data_ranks: 1,
        ..Shape::default()
    };
    save(&run.root(), 4, &shape).unwrap();
    save_until(&run.root(), 6, &shape, 3).unwrap();
    run.run(&[]).expect(4).says("the only checkpoint is not provable");
    assert!(run.trained().is_empty());
}

#[test]
fn fresh_moves_everything_aside_and_deletes_nothing() {
    let mut run = Run::new();
    run.run(&[]).expect(0);
    run.yaml["total_train_steps"] = json!(4);
    run.run(&["--fresh", "--yes"]).expect(0).says("start from scratch");
    let steps: Vec<u64> = run.trained().iter().map(|(s, _)| *s).collect();
    assert_eq!(steps[8..], [1, 2, 3, 4]);
    let aside: Vec<String> = fs::read_dir(run.store().join("aside/foreign"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| !n.ends_with(".json"))
        .collect();
    assert!(aside.iter().any(|n| n.starts_with("live.")), "{aside:?}");
    assert!(aside.iter().any(|n| n.starts_with("step_")), "{aside:?}");
}

/// What a killed attempt wrote down of its workers leads nobody to them any more.
#[test]
fn records_of_killed_workers_are_gone_before_the_next_attempt() {
    let mut run = Run::new();
    let names = run.scene.path("names");
    run.yaml["cluster"]["name_resolve"] = json!({ "type": "nfs", "nfs_record_root": names });
    run.yaml["miniature"]["fault"] = json!({ "step": 4 });
    for trial in ["trial0", "other"] {
        let folder = names.join("me/exp").join(trial).join("workers/actor/0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("ENTRY"), "127.0.0.1:1").unwrap();
    }
    let script = run.scene.path("train_sft.py");
    let text = fs::read_to_string(&script).unwrap();
    let list = "import glob\nopen('seen', 'a').write('%d ' % len(glob.glob('names/me/exp/trial0/**/ENTRY', recursive=True)))\n";
    fs::write(script, format!("{list}{text}")).unwrap();
    run.run(&[]).expect(0).says("2 attempts");
    // Those that were there before are AReaL's own to clear: they may be of a run that nothing is known of.
    assert_eq!(fs::read_to_string(run.scene.path("seen")).unwrap(), "1 0 ");
    assert!(names.join("me/exp/other/workers/actor/0/ENTRY").exists());
}

/// Through a link, what somebody else keeps elsewhere would be moved, and written to.
#[test]
fn a_link_in_the_place_of_the_checkpoint_is_left_alone() {
    for place in ["default", "recover_info", "default/recover_checkpoint"] {
        let mut run = Run::new();
        run.run(&[]).expect(0);
        run.yaml["total_train_steps"] = json!(12);
        let elsewhere = run.scene.path("elsewhere");
        fs::rename(run.root().join(place), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, run.root().join(place)).unwrap();
        let before = (names(&elsewhere), names(&run.store().join("protected")));
        for wish in [&[][..], &["--fresh", "--yes"], &["--from", "8"], &["--again"]] {
            let ended = run.run(wish);
            ended
                .expect(4)
                .says(place)
                .says("symbolic link")
                .says("remove the link");
        }
        assert_eq!((names(&elsewhere), names(&run.store().join("protected"))), before);
        fs::remove_file(run.root().join(place)).unwrap();
        run.run(&["--again"])
            .expect(0)
            .says("put back")
            .says("step 12 is proven");
        in_order(&run.trained());
    }
}

#[test]
fn a_trainer_that_begins_anew_is_ended_before_its_first_save() {
    let mut run = Run::new();
    run.yaml["miniature"]["step_ms"] = json!(3000);
    let shape = Shape {
        data_ranks: 1,
        ..Shape::default()
    };
    save(&run.root(), 4, &shape).unwrap();
    // The trainer looks elsewhere: as AReaL does when its user is another one.
    let script = run.scene.path("train_sft.py");
    let text = fs::read_to_string(&script).unwrap();
    fs::write(
        script,
        text.replace("os.exec", "os.environ['LOGNAME'] = 'somebody-else'; os.exec"),
    )
    .unwrap();
    let ended = run.run(&[]);
    ended.expect(3).says("starts from scratch");
    let elsewhere = run.scene.path("files/checkpoints/somebody-else");
    assert!(!elsewhere.join("exp/trial0/default").exists(), "{:?}", run.trained());
}

#[test]
fn what_is_on_disk_is_listed_also_when_nobody_runs() {
    let run = Run::new();
    run.run(&[]).expect(0);
    let root = run.root();
    let ended = run.scene.ask(&["checkpoints", root.to_str().unwrap(), "-v"]);
    ended.expect(0).says("live").says("kept");
    let shard = root.join("default/recover_checkpoint/__0_0.distcp");
    let bytes = fs::read(&shard).unwrap();
    let saved_at = fs::metadata(&shard).unwrap().modified().unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let ended = run.scene.ask(&["checkpoints", root.to_str().unwrap(), "-v"]);
    let live = ended.text.lines().find(|line| line.contains("live")).unwrap();
    assert!(live.contains("incomplete") && !live.contains("exact"), "{live}");
    fs::write(&shard, bytes).unwrap();
    fs::File::open(&shard).unwrap().set_modified(saved_at).unwrap();
    let seen = run.scene.ask(&["status", root.to_str().unwrap()]);
    seen.expect(0).says("finished");
    let ended = run.scene.ask(&["verify", root.to_str().unwrap()]);
    ended.expect(0);
}

#[test]
fn the_supervisor_is_killed_while_it_keeps_a_copy_and_the_next_goes_on() {
    let mut run = Run::new();
    run.yaml["miniature"]["step_ms"] = json!(400);
    run.yaml["supervisor"]["grace"] = json!({ "orphan": "1s" });
    let config = run.config();
    let supervisor = run.scene.start_with(&[&["run", &config], &COMMAND[..]].concat());
    eventually("a generation, or the beginning of one", || {
        let there = |dir: &str| fs::read_dir(run.store().join(dir)).is_ok_and(|d| d.count() > 0);
        (there("staging") || there("protected")).then_some(())
    });
    supervisor.kill();
    let ended = run.run(&[]);
    ended.expect(0).says("step 8 is proven");
    in_order(&run.trained());
}

/// Beyond the first epoch every save loses the order of the data: it counts all the same.
#[test]
fn in_the_second_epoch_a_killed_save_is_answered_by_the_save_before_it() {
    let mut run = Run::new();
    run.yaml["miniature"]["epoch"] = json!(3);
    run.yaml["miniature"]["fault"] = json!({ "step": 8, "operations": 3 });
    run.yaml["total_train_steps"] = json!(10);
    let ended = run.run(&[]);
    ended.expect(0).says("step 10 is proven").says("data order");
    in_order(&run.trained());
    let steps: Vec<u64> = run.trained().iter().map(|(s, _)| *s).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10], "{}", ended.text);
}

/// The trial's directory is another one under the same name: emptied, restored, moved to another disk. What was kept is this run's.
#[test]
fn a_trial_directory_that_was_replaced_is_no_ground_to_begin_anew() {
    let mut run = Run::new();
    run.run(&[]).expect(0);
    fs::rename(run.root(), run.scene.path("files/gone")).unwrap();
    fs::create_dir(run.root()).unwrap();
    run.yaml["total_train_steps"] = json!(12);
    let ended = run.run(&[]);
    ended.expect(0).says("step 12 is proven").says("put back");
    in_order(&run.trained());
    assert_eq!(
        run.trained().iter().filter(|(s, _)| *s == 1).count(),
        1,
        "{}",
        ended.text
    );
}

#[test]
fn a_plan_says_what_a_run_would_do() {
    let mut run = Run::new();
    run.run(&[]).expect(0);
    run.yaml["total_train_steps"] = json!(12);
    let config = run.config();
    let words = [&["plan", &config], &COMMAND[..]].concat();
    run.scene.ask(&words).expect(0).says("(step 8)");
    fs::write(run.root().join("recover_info/step_info.json"), "").unwrap();
    run.scene.ask(&words).expect(0).says("put back");
}
