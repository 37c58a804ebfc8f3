//! The supervisor and the guard are killed, alone and together, while a trainer runs.

use super::{running, scene};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Dice, Refusal, Scene, alive, eventually, names, send, wait_for};

const KILLS: usize = 10;
/// The step before which a trainer is held.
const HELD: u64 = 50;

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

#[test]
fn a_program_that_is_deleted_while_it_runs_starts_the_next_attempt() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5)).set("supervisor.retries", json!(1));
    let expected = scene.expected_digest();
    let copy = scene.path("copy-of-supervise");
    let run = scene.start_copy(&copy);
    super::saved(&scene, 4);
    fs::remove_file(&copy).unwrap();
    // A guard that was started ahead would need no program.
    for _ in 0..2 {
        let workers = running(&scene);
        send(workers[0], 9);
        wait_for("the workers are gone", || !workers.iter().any(|w| alive(*w)));
    }
    running(&scene);
    scene.go();
    run.wait().expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (3, Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_wish_that_workers_without_a_supervisor_cannot_fulfil_is_refused() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    super::saved(&scene, 4);
    let config = scene.write_config();
    let plan = |would: &str, code: i32| {
        let ended = scene.ask(&["plan", config.to_str().unwrap(), "--json"]);
        ended.expect(code);
        let said: Value = serde_json::from_str(&ended.text).unwrap();
        assert_eq!(said["would"], json!(would), "{}", ended.text);
    };
    plan("held", 5);
    let workers = running(&scene);
    run.kill();
    plan("take_over", 0);
    for wish in [&["--fresh", "--yes"][..], &["--from", "4"], &["--observe"]] {
        let refused = scene.run(wish);
        refused.expect(64);
        assert!(
            refused.text.contains("still running without a supervisor"),
            "{}",
            refused.text
        );
        // The plan says what the run would do.
        let wish: Vec<&str> = wish.iter().copied().filter(|word| *word != "--yes").collect();
        let planned = scene.ask(&[&["plan", config.to_str().unwrap()], wish.as_slice()].concat());
        planned.expect(64).says("still running without a supervisor");
    }
    assert_eq!(scene.workers(), workers);
    scene.set("trainer.save_freq", json!(3));
    let run = scene.start(&[]);
    wait_for("it says that what changed does not reach them", || {
        run.text().contains("go on as they were launched")
    });
    scene.go();
    run.wait().expect(0);
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

/// Waits until as many launches are journaled: workers that live may be those of the attempt before.
fn launched(scene: &Scene, count: usize) {
    let launched = |l: &&Value| l.pointer("/body/kind/act_done/result/Ok/launched").is_some();
    wait_for("the launch is journaled", || {
        scene.journal().iter().filter(launched).count() == count
    });
}

fn guards_are_killed(cgroup: &str, seed: u64) {
    let mut scene = long_scene(cgroup);
    scene.set("demo.hold_at", json!(HELD));
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

/// Somebody escaped, and whoever did so and lives stands in the record of its attempt.
fn recorded(scene: &Scene) -> bool {
    let escaped = names(&scene.path("escaped"));
    let trees: String = scene
        .names("attempts")
        .iter()
        .map(|a| fs::read_to_string(scene.run_dir().join("attempts").join(a).join("tree")).unwrap_or_default())
        .collect();
    let texts = escaped
        .iter()
        .filter_map(|name| fs::read_to_string(scene.path("escaped").join(name)).ok());
    let pids: Vec<String> = texts
        .filter_map(|text| text.lines().next().map(str::to_owned))
        .collect();
    let all_known = pids
        .iter()
        .all(|pid| trees.contains(&format!("\"pid\":{pid},")) || !pid.parse().is_ok_and(alive));
    !pids.is_empty() && all_known
}

/// Returns true if attempts get a control group of their own on this machine.
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

/// The guard is killed, and the supervisor with it; a keeper that is not killed as well ends what they leave, as young
/// and as well hidden as it may be.
fn both_are_killed(cgroup: &str, seed: u64, keeper_too: bool) {
    killed_together(long_scene(cgroup), cgroup, seed, keeper_too);
}

fn killed_together(mut scene: Scene, cgroup: &str, seed: u64, keeper_too: bool) {
    let is_kept = !keeper_too || cgroup == "auto" && has_own_cgroup();
    if !is_kept {
        // A process that hides is then known once the guard has looked: that is waited for.
        scene.fault("retitle_setsid_fork", 2, false);
    }
    // On a busy machine a trainer may get far between two kills; it does not come to its end.
    scene.set("demo.hold_at", json!(HELD));
    let expected = scene.expected_digest();
    let mut run = scene.start(&[]);
    let mut dice = Dice::new(seed);
    let mut kills = 0;
    while kills < KILLS {
        // Three terms in a row without a new proven step would end the run, by design.
        let before = scene.proven();
        let is_held = || scene.proven() + 1 >= HELD;
        wait_for("a new step is proven", || scene.proven() > before || is_held());
        if is_held() {
            break;
        }
        wait_for("who escaped is recorded", || is_kept || recorded(&scene));
        dice.sleep(0, 150);
        if keeper_too {
            let keeper = eventually("a keeper lives", || scene.keepers().first().copied());
            send(keeper, 9);
            wait_for("the keeper is gone", || !alive(keeper));
        }
        kill_the_guard(&scene);
        dice.sleep(0, 20);
        run.kill();
        dice.sleep(0, 100);
        run = scene.start(&[]);
        kills += 1;
    }
    assert!(kills >= 3, "{kills} kills");
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}

#[test]
fn supervisor_and_guard_are_killed_together() {
    both_are_killed("off", 5, false);
}

#[test]
fn supervisor_and_guard_are_killed_together_in_a_cgroup() {
    both_are_killed("auto", 6, false);
}

#[test]
fn supervisor_guard_and_keeper_are_killed_together() {
    both_are_killed("off", 7, true);
}

#[test]
fn supervisor_guard_and_keeper_are_killed_together_in_a_cgroup() {
    both_are_killed("auto", 8, true);
}

#[test]
fn supervisor_and_guard_are_killed_together_without_privileges() {
    let mut scene = long_scene("auto");
    if let Err(e) = scene.without_privileges() {
        return e.tell("supervisor_and_guard_are_killed_together_without_privileges");
    }
    killed_together(scene, "auto", 9, false);
}

/// A control group beside the tests' own, as another login has; removed when it goes.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|l| l.contains(" - cgroup2 "))?;
        let place = Path::new(line.split(' ').nth(4)?).join(format!("elsewhere-{}", std::process::id()));
        fs::create_dir(&place).ok()?;
        Some(Self(place))
    }

    fn leaves(&self) -> Vec<String> {
        let all = names(&self.0);
        all.into_iter().filter(|n| n.starts_with("supervise-")).collect()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_leaf_is_found_from_another_cgroup_and_removed() {
    let mut scene = long_scene("auto");
    scene.set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let Some(elsewhere) = Elsewhere::make().filter(|_| has_own_cgroup()) else {
        return Refusal::new("no control group can be made").tell("a_leaf_is_found_from_another_cgroup_and_removed");
    };
    let run = scene.start_in_group(&elsewhere.0.join("cgroup.procs"));
    super::saved(&scene, 4);
    assert_eq!(elsewhere.leaves().len(), 1);
    // One that sees its guard die ends what is in the leaf.
    run.signal(libc::SIGSTOP);
    let keepers = scene.keepers();
    keepers.iter().for_each(|keeper| send(*keeper, 9));
    wait_for("the keeper is gone", || !keepers.iter().any(|k| alive(*k)));
    kill_the_guard(&scene);
    run.kill();
    // Whoever escaped is still in it.
    assert_eq!(elsewhere.leaves().len(), 1);
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (2, Some(expected)));
    assert!(elsewhere.leaves().is_empty());
    scene.assert_alone();
}

#[test]
fn a_plan_says_which_case_stays_open_without_a_cgroup() {
    let mut scene = scene();
    scene.set("supervisor.kill.cgroup", json!("off"));
    let config = scene.write_config();
    scene
        .ask(&["plan", config.to_str().unwrap()])
        .expect(0)
        .says("were supervisor, guard and keeper all killed in one moment");
    scene.ask(&["doctor"]).expect(0).says("cgroup");
}

#[test]
fn a_trainer_that_kills_its_guard_is_relaunched_with_growing_pauses() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(1)).set(
        "supervisor.backoff",
        json!({"initial": "300ms", "factor": 2, "jitter": 0.0}),
    );
    let run = scene.start(&[]);
    for attempt in 1..=4 {
        launched(&scene, attempt);
        kill_the_guard(&scene);
    }
    launched(&scene, 5);
    let pauses = || {
        let told = scene.journal().into_iter().map(|l| l.to_string());
        told.filter(|l| l.contains("\"backoff\"") && l.contains("restarting in"))
            .count()
    };
    // The first death may be an accident.
    wait_for("the pauses are journaled", || pauses() >= 3);
    scene.go();
    run.wait().expect(0);
    assert_eq!((scene.attempts(), pauses()), (5, 3));
    scene.assert_alone();
}

#[test]
fn three_terms_that_prove_nothing_are_enough() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(1));
    for term in 1..=3 {
        let run = scene.start(&[]);
        // Each term launches once.
        launched(&scene, term);
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
    scene.run(&[]).expect(5).says("is already running");
    scene.run(&["--fresh"]).expect(5);
    assert_eq!(look(&scene), before);
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}
