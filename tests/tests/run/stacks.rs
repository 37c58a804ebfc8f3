//! Before what hangs is killed, its interpreters say where they stand; that end is taken for nothing else.

use super::SUPERVISE;
use super::evidence::evidence;
use serde_json::Value;
use std::fs;
use supervise_tests::harness::{Scene, eventually};

/// Two ranks and a process of the first: rank 1 sleeps in a function, the other waits for its word.
const TRAIN: &str = r#"
import os, signal, subprocess, sys, time

def looks_at_data():
    time.sleep(3600)

def stands_still():
    time.sleep(3600)

def waits_for_it():
    time.sleep(3600)

def step(number):
    if number == 30 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if os.environ["RANK"] == "1":
            stands_still()
        waits_for_it()

if sys.argv[1:] == ["data"]:
    looks_at_data()
if sys.argv[1:] == ["deaf"]:
    # With a handler of its own it does not end, and says something.
    signal.signal(signal.SIGABRT, lambda *_: print("step", 77, flush=True))
    while True:
        looks_at_data()
if os.environ["RANK"] == "0":
    for kind in ["data"] + 3 * ["deaf"] * ("DEAF" in os.environ):
        subprocess.Popen([sys.executable, __file__, kind])
for number in range(1, 60):
    print("step", number, flush=True)
    step(number)
    time.sleep(0.05)
"#;

/// Runs it in a gang of two ranks, to its end; what was kept of where they stood.
fn stacks(scene: &Scene, command: &[&str]) -> String {
    let settings = [
        "gang.launcher=gang",
        "gang.workers=2",
        "gang.gpus=none",
        "stall.minimum=3s",
        "stall.factor=1",
        "backoff.initial=10ms",
        &format!("run_dir={}", scene.path("run").display()),
    ];
    scene.start_plain(&settings, command).wait_long().expect(0);
    let dir = evidence(&scene.path("")).unwrap();
    eventually("the stacks are kept", || {
        fs::read_to_string(dir.join("stacks.txt"))
            .ok()
            .filter(|t| t.contains("python, process"))
    })
}

/// Three processes do not end at SIGABRT: the tree is gone before all were asked, and the next attempt begins.
#[test]
fn a_tree_that_is_gone_before_all_were_asked_is_not_looked_for() {
    let mut scene = Scene::new(SUPERVISE);
    fs::write(scene.path("train.py"), TRAIN).unwrap();
    scene.env("DEAF", "1");
    let stacks = stacks(&scene, &["python3", scene.path("train.py").to_str().unwrap()]);
    assert!(stacks.contains(" of worker 0 stands in looks_at_data ("), "{stacks}");
    assert!(scene.path("run/attempts/0002").is_dir() && !scene.path("run/attempts/0003").exists());
    let log = fs::read_to_string(scene.path("run/attempts/0001/worker-0.log")).unwrap();
    assert!(log.contains("step 77"), "{log}");
    let told = scene.ask(&["explain", "--attempt", "1"]);
    told.expect(0).says("at step 30");
    assert!(!told.text.contains("step 77"), "it is no progress: {}", told.text);
    scene.assert_alone();
}

#[test]
fn a_hang_names_the_place_at_which_each_rank_stands() {
    let scene = Scene::new(SUPERVISE);
    fs::write(scene.path("train.py"), TRAIN).unwrap();
    // The next command of a script is not begun while its trainer is ended.
    let script = format!(
        "python3 {} ; test $TORCHELASTIC_RESTART_COUNT = 1 || touch {}",
        scene.path("train.py").display(),
        scene.path("went_on").display()
    );
    let stacks = stacks(&scene, &["sh", "-c", &script]);
    let train = scene.path("train.py").display().to_string();
    for line in [
        &format!("  File \"{train}\", line 8, in stands_still"),
        "of worker 0 stands in looks_at_data (",
        "Fatal Python error: Aborted",
    ] {
        assert!(stacks.contains(line), "{line}:\n{stacks}");
    }
    assert!(!scene.path("went_on").exists(), "the script went on");
    let told = scene.ask(&["explain", "--attempt", "1"]);
    told.expect(0).says("[hang.step]").says("stuck");
    assert!(!told.text.contains("native.crash"), "{}", told.text);
    let told = scene.ask(&["explain", "--attempt", "1", "--json"]);
    let told: Value = serde_json::from_str(&told.expect(0).text).unwrap();
    let account = told["attempts"][0]["account"]["evidence"].to_string();
    for place in ["stands in stands_still (", "waits_for_it (", "looks_at_data ("] {
        assert!(account.contains(place), "{place}: {account}");
    }
    scene.assert_alone();
}
