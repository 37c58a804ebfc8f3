//! The supervisor and the guard are killed, alone and together, while a trainer runs.

use super::{running, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Dice, Scene, alive, eventually, names, send, wait_for};

const KILLS: usize = 10;

#[test]
fn a_supervisor_that_is_killed_ten_times_keeps_its_workers() {
    let mut scene = scene();
    scene.set("demo.step_ms", json!(60)).set("demo.hold_at", json!(11));
    let expected = scene.expected_digest();
    let mut run = scene.start(&[]);
    let workers = running(&scene);
    let mut dice = Dice::new(2);
    for _ in 0..KILLS {
        dice.sleep(0, 250);
        run.kill();
        dice.sleep(0, 60);
        run = scene.start(&[]);
    }
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.digest(), Some(expected));
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_guard_that_nobody_comes_back_to_ends_its_workers() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.grace", json!({"orphan": "1s", "save": "1s", "stop": "1s"}));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    super::saved(&scene, 4);
    run.kill();
    wait_for("the workers are ended", || scene.workers().is_empty());
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

/// A gang that gets on by one proven step every now and then, and from which processes escape.
fn long_scene(cgroup: &str) -> Scene {
    let mut scene = scene();
    let escape = |step: u64| json!({"kind": "retitle_setsid_fork", "step": step});
    scene
        .set("demo.step_ms", json!(70))
        .set("demo.faults", (2..40).step_by(3).map(escape).collect())
        .set("demo.repeat_fault", json!(true))
        .set("trainer.total_training_steps", json!(60))
        .set("trainer.save_freq", json!(1))
        .set("trainer.max_actor_ckpt_to_keep", json!(3))
        .set("supervisor.kill.cgroup", json!(cgroup));
    scene
}

fn kill_the_guard(scene: &Scene) {
    let guard = eventually("a guard lives", || scene.guards().first().copied());
    send(guard, 9);
    wait_for("the guard is gone", || !alive(guard));
}

fn guards_are_killed(cgroup: &str, seed: u64) {
    let mut scene = long_scene(cgroup);
    scene.set("demo.hold_at", json!(50));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    let mut dice = Dice::new(seed);
    for _ in 0..KILLS {
        running(&scene);
        dice.sleep(0, 400);
        kill_the_guard(&scene);
    }
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.digest(), Some(expected));
    assert!(scene.attempts() > KILLS / 2, "{} attempts", scene.attempts());
    scene.assert_alone();
}

#[test]
fn guards_that_are_killed_leave_nothing_behind() {
    guards_are_killed("off", 3);
}

#[test]
fn guards_that_are_killed_leave_nothing_behind_in_a_cgroup() {
    guards_are_killed("auto", 4);
}

/// Every process that escaped stands in the record of its attempt.
fn recorded(scene: &Scene) -> bool {
    let escaped = names(&scene.path("escaped"));
    let trees: String = scene
        .names("attempts")
        .iter()
        .map(|a| fs::read_to_string(scene.run_dir().join("attempts").join(a).join("tree")).unwrap_or_default())
        .collect();
    let pids = escaped
        .iter()
        .filter_map(|name| fs::read_to_string(scene.path("escaped").join(name)).ok());
    pids.filter_map(|text| text.lines().next().map(str::to_owned))
        .all(|pid| trees.contains(&format!("\"pid\":{pid},")))
}

/// Whether attempts get a control group of their own on this machine.
fn has_own_cgroup() -> bool {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(1));
    let run = scene.start(&[]);
    let is_in_leaf = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .unwrap()
            .contains("/supervise-")
    };
    let all = running(&scene).iter().all(is_in_leaf);
    run.signal(15);
    run.wait().expect(143);
    all
}

fn both_are_killed(cgroup: &str, seed: u64) {
    let mut scene = long_scene(cgroup);
    let in_leaf = cgroup == "auto" && has_own_cgroup();
    if !in_leaf {
        // Without a control group, a process that hides is known once the guard has looked: that is waited for.
        scene.fault("retitle_setsid_fork", 2, false);
    }
    let expected = scene.expected_digest();
    let mut run = scene.start(&[]);
    let mut dice = Dice::new(seed);
    for _ in 0..KILLS {
        // Three terms in a row without a new proven step would end the run, by design.
        let before = scene.proven();
        wait_for("a new step is proven", || scene.proven() > before);
        wait_for("who escaped is recorded", || in_leaf || recorded(&scene));
        dice.sleep(0, 150);
        kill_the_guard(&scene);
        dice.sleep(0, 20);
        run.kill();
        dice.sleep(0, 100);
        run = scene.start(&[]);
    }
    run.wait().expect(0);
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}

#[test]
fn supervisor_and_guard_are_killed_together() {
    both_are_killed("off", 5);
}

#[test]
fn supervisor_and_guard_are_killed_together_in_a_cgroup() {
    both_are_killed("auto", 6);
}

#[test]
fn three_terms_that_prove_nothing_are_enough() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(1));
    for _ in 0..3 {
        let run = scene.start(&[]);
        running(&scene);
        let term = scene.names("journal").len();
        wait_for("the launch is journaled", || {
            scene
                .journal()
                .iter()
                .any(|l| l["term"] == json!(term) && l.to_string().contains("\"launched\""))
        });
        run.kill();
        kill_the_guard(&scene);
    }
    scene.run(&[]).expect(6).says("terms in a row");
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(6);
    scene.run(&["--again"]).expect(0);
}

#[test]
fn a_second_supervisor_beside_a_living_one_changes_nothing() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    let workers = running(&scene);
    super::saved(&scene, 4);
    let look = |s: &Scene| {
        (
            s.names("journal"),
            s.names("lease"),
            s.names("attempts"),
            s.names("spec"),
            s.aside(),
        )
    };
    let before = look(&scene);
    scene.run(&[]).expect(5).says("another supervisor");
    scene.run(&["--fresh"]).expect(5);
    assert_eq!(look(&scene), before);
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}
