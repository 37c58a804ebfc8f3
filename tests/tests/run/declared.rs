//! A trainer that a TOML file declares: killed in a step and in a save, with a damaged step, and in a root where nothing of ours may be.

use super::scene;
use std::fs;
use std::path::Path;
use supervise_tests::harness::{Ended, Scene};

/// Saves every second step of eight; a step is its number in JSON, then a mark, then the tracker.
const TRAINER: &str = r#"#!/bin/sh
root=$1; shift; n=0
while [ $# -gt 0 ]; do
  case $1 in --begin) n=$2; shift;; esac; shift
done
if [ $n -gt 0 ]; then
  echo "resuming from step $n"
  if [ -e faults/forget ]; then echo "no optimizer here"; sleep 1000; fi
else echo "from scratch"; fi
for entry in "$root"/* "$root"/.[a-z]*; do
  case ${entry##*/} in save-[0-9]*|last.txt|'*'|'.[a-z]*') ;; *) echo "cannot read ${entry##*/}"; exit 9;; esac
done
dies() { [ -e faults/$1 ] && rm faults/$1 && kill -9 $$; }
while [ $n -lt 8 ]; do
  dies step-$n
  [ -e faults/hang-$n ] && rm faults/hang-$n && sleep 1000
  n=$((n + 1)); echo "trained $n of 8"
  if [ $((n % 2)) = 0 ]; then
    echo "saving $n"
    mkdir -p "$root/save-$n"; echo "{\"step\": $n}" >"$root/save-$n/state.json"
    dies save-$n
    touch "$root/save-$n/done"; echo "last $n" >"$root/last.txt"
  fi
done
echo "all trained"
"#;

const DECLARATION: &str = r#"format = 1
[trainer]
name = "mine"
title = "My trainer"
[command]
any = ["*trainer.sh"]
[settings]
store = "outside"
[steps]
dir = "save-{step}"
pick = "given"
[[part]]
name = "state"
files = "state.json"
format = "json"
[finish]
by = "file:done"
[tracker]
file = "last.txt"
text = "last {step}"
missing = "fresh"
[resume]
at = ["--begin", "{step}"]
confirmed_by = "first_step"
[[line]]
means = "step"
match = '^trained (\d+) of (\d+)'
[[line]]
means = "resumed"
match = '^resuming from step (\d+)'
[[line]]
means = "fresh"
match = '^from scratch'
[[line]]
means = "lost:optimizer"
match = '^no optimizer here'
[[line]]
means = "end"
match = '^all trained'
"#;

fn mine() -> Scene {
    let scene = scene();
    fs::write(scene.path("trainer.sh"), TRAINER).unwrap();
    fs::create_dir(scene.path("supervise.trainers")).unwrap();
    fs::write(scene.path("supervise.trainers/mine.toml"), DECLARATION).unwrap();
    fs::create_dir(scene.path("faults")).unwrap();
    fs::create_dir(scene.path("out")).unwrap();
    scene
}

/// The words of `supervise` for this trainer.
fn words(scene: &Scene, verb: &str, more: &[&str]) -> Vec<String> {
    let root = scene.path("out").display().to_string();
    let sets = [
        format!("supervisor.root={root}"),
        "supervisor.backoff.initial=10ms".to_owned(),
        "supervisor.scan_interval=200ms".to_owned(),
    ];
    let sets = sets.into_iter().flat_map(|set| ["--set".to_owned(), set]);
    let more = more.iter().map(|word| (*word).to_owned());
    let command = ["--", "sh", "trainer.sh", &root].map(str::to_owned);
    [verb.to_owned()]
        .into_iter()
        .chain(sets)
        .chain(more)
        .chain(command)
        .collect()
}

fn ask(scene: &Scene, verb: &str, more: &[&str]) -> Ended {
    let words = words(scene, verb, more);
    scene.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

const ALL: [&str; 5] = ["last.txt", "save-2", "save-4", "save-6", "save-8"];

#[test]
fn a_kill_in_a_step_and_one_in_a_save_are_resumed() {
    for (fault, from) in [("step-5", "step 4"), ("save-6", "step 4")] {
        let scene = mine();
        fs::write(scene.path("faults").join(fault), "").unwrap();
        let run = ask(&scene, "run", &[]);
        run.expect(0).says("2 attempts").says(from);
        // The trainer refuses every other name in its root.
        assert_eq!(names(&scene.path("out")), ALL, "{fault}");
        assert!(scene.path(".supervise.out/journal").is_dir());
        ask(&scene, "plan", &[]).expect(0).says("save-8");
        let root = scene.path("out").display().to_string();
        scene
            .ask(&["checkpoints", &root, "-v"])
            .expect(0)
            .says("the tracker file names step 8");
        scene.ask(&["explain", &root]).says("SIGKILL");
    }
}

#[test]
fn a_damaged_step_goes_aside_outside_of_the_root() {
    let scene = mine();
    ask(&scene, "run", &[]).expect(0);
    fs::write(scene.path("out/save-8/state.json"), "{\"step\": ").unwrap();
    ask(&scene, "plan", &[]).expect(0).says("--begin 6");
    ask(&scene, "run", &["--again"]).expect(0).says("step 6");
    assert_eq!(names(&scene.path("out")), ALL);
    let aside = names(&scene.path(".supervise.out/aside"));
    assert!(aside.iter().any(|name| name.starts_with("save-8")), "{aside:?}");
    assert_eq!(fs::read_to_string(scene.path("out/last.txt")).unwrap().trim(), "last 8");
}

#[test]
fn a_declaration_that_judges_otherwise_is_accepted_first() {
    let scene = mine();
    ask(&scene, "run", &[]).expect(0);
    let file = scene.path("supervise.trainers/mine.toml");
    // Lines decide nothing about steps.
    fs::write(&file, DECLARATION.replace("^all trained", "^all trained$")).unwrap();
    ask(&scene, "run", &[])
        .expect(0)
        .says("it takes the same steps for whole");
    fs::write(&file, DECLARATION.replace("file:done", "all")).unwrap();
    ask(&scene, "run", &[]).expect(78).says("--accept");
    ask(&scene, "run", &["--accept"]).expect(0);
    fs::write(&file, "format = 1\n[trainer]\nname = \"mine\"\nnmae = 1\n").unwrap();
    ask(&scene, "run", &[]).expect(78).says("mine.toml:4").says("[steps]");
    fs::remove_file(&file).unwrap();
    ask(&scene, "run", &[]).expect(78).says("mine.toml is not there");
    let set = ["--set", "supervisor.trainer=plain"];
    ask(&scene, "plan", &set).expect(0).says("NOT protected");
}

#[test]
fn a_hang_is_found_and_resumed() {
    let scene = mine();
    fs::write(scene.path("faults/hang-5"), "").unwrap();
    let run = ask(&scene, "run", &["--set", "supervisor.stall.hard=10s"]);
    run.expect(0).says("stall.hard").says("step 4");
    assert_eq!(names(&scene.path("out")), ALL);
}

#[test]
fn a_resume_that_forgets_state_ends_before_its_first_save() {
    let scene = mine();
    fs::write(scene.path("faults/step-5"), "").unwrap();
    fs::write(scene.path("faults/forget"), "").unwrap();
    let run = ask(&scene, "run", &[]);
    run.expect(3).says("resumes without its optimizer state");
    assert_eq!(names(&scene.path("out")), ["last.txt", "save-2", "save-4"]);
}
