//! A person works on a run: `supervise hold` and `supervise unhold`.

use super::{running, saved, scene};
use serde_json::json;
use supervise_tests::harness::{Scene, Supervisor, eventually, send, wait_for};

#[track_caller]
fn hold(scene: &Scene) {
    scene.ask(&["hold", "--reason", "gdb on rank 1"]).expect(0).says("held");
}

/// A run that stands before step 5, with step 4 saved.
fn at_five() -> (Scene, Supervisor) {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    (scene, run)
}

/// The same, held by a person when all of its workers died.
fn dead() -> (Scene, Supervisor) {
    let (scene, run) = at_five();
    hold(&scene);
    scene.workers().iter().for_each(|pid| send(*pid, libc::SIGKILL));
    wait_for("it waits", || scene.status()["mode"] == json!("waiting"));
    (scene, run)
}

/// The journal knows of so many workers of the first attempt that ended.
fn ended(scene: &Scene) -> usize {
    let is_exit = |r: &&serde_json::Value| r.pointer("/body/kind/worker_exited").is_some();
    scene.journal().iter().filter(is_exit).count()
}

#[test]
fn what_fails_while_the_run_is_held_is_left_as_it_is() {
    let (scene, run) = at_five();
    let expected = scene.expected_digest();
    hold(&scene);
    let both = eventually("both ranks live", || <[i32; 2]>::try_from(scene.workers()).ok());
    // As a debugger stops it.
    send(both[1], libc::SIGSTOP);
    send(both[0], libc::SIGKILL);
    wait_for("its end is known", || ended(&scene) == 1);
    let status = scene.status();
    assert_eq!(
        (&status["mode"], &status["held"]["why"]),
        (&json!("running"), &json!("gdb on rank 1"))
    );
    scene.ask(&["status"]).expect(0).says("gdb on rank 1");
    assert_eq!((scene.workers(), scene.attempts()), (vec![both[1]], 1));
    scene.go();
    scene.ask(&["unhold"]).expect(0);
    run.wait().expect(0).says("held by");
    assert_eq!((scene.attempts(), scene.digest()), (2, Some(expected)));
    scene.ask(&["unhold"]).expect(69).says("has ended");
    scene.assert_alone();
}

#[test]
fn nothing_is_launched_before_it_is_let_go_whoever_supervises() {
    let (scene, run) = dead();
    let expected = scene.expected_digest();
    run.kill();
    let run = scene.start(&[]);
    wait_for("it waits again", || {
        let status = scene.status();
        status["term"] == json!(2) && status["mode"] == json!("waiting")
    });
    assert_eq!(scene.attempts(), 1);
    scene.go();
    scene.ask(&["unhold"]).expect(0);
    run.wait().expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (2, Some(expected)));
    scene.assert_alone();
}

#[test]
fn resume_lets_a_held_run_go_and_is_refused_where_it_is_at_work() {
    let (scene, run) = at_five();
    scene.ask(&["resume"]).expect(5).says("its supervisor lives");
    hold(&scene);
    scene.ask(&["resume"]).expect(0).says("left to its supervisor");
    assert_eq!(scene.status().get("held"), None);
    // Stopped while it is held: its next start would launch nothing.
    hold(&scene);
    scene.ask(&["stop"]).expect(0);
    run.wait().expect(7);
    assert!(scene.status()["held"].is_object());
    scene
        .ask(&["status"])
        .expect(0)
        .says("gdb on rank 1")
        .says("its next start waits");
    scene
        .ask(&["resume"])
        .expect(0)
        .says("its next start is no longer blocked")
        .says("it was held by");
    assert_eq!(scene.status().get("held"), None);
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.attempts(), 2);
    scene.assert_alone();
}

#[test]
fn a_held_run_ends_when_it_is_stopped_and_one_that_nobody_holds_says_so() {
    let (scene, run) = at_five();
    scene.ask(&["unhold"]).expect(69).says("nobody holds the run");
    hold(&scene);
    scene.workers().iter().for_each(|pid| send(*pid, libc::SIGKILL));
    wait_for("it waits", || scene.status()["mode"] == json!("waiting"));
    scene.ask(&["stop", "--after-save"]).expect(0);
    run.wait().expect(7);
    assert_eq!(scene.attempts(), 1);
    scene.ask(&["hold"]).expect(69).says("has ended");
    scene.assert_alone();
}

/// The ledger of a run that was killed, then held: each millisecond once, and the person's are nobody's loss.
#[test]
fn the_ledger_tells_what_a_failure_cost_and_what_a_person_took() {
    let (scene, run) = dead();
    scene.go();
    scene.ask(&["unhold"]).expect(0);
    run.wait().expect(0);
    let status = scene.status();
    let ledger = &status["ledger"];
    let sum = |of: &str| {
        ledger[of]
            .as_object()
            .unwrap()
            .values()
            .map(|ms| ms.as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        ledger["whole_ms"],
        json!(sum("parts_ms") + sum("waiting_ms")),
        "{ledger}"
    );
    assert!(ledger["waiting_ms"]["person"].as_u64() > Some(0), "{ledger}");
    let class = &ledger["costs"][0]["class"];
    assert!(class.is_string(), "{ledger}");
    let history = scene.ask(&["history", scene.root().to_str().unwrap(), "--json"]);
    let history: serde_json::Value = serde_json::from_str(&history.expect(0).text).unwrap();
    assert_eq!(history["ledger"], *ledger);
    let comeback = &history["attempts"][1]["comeback"];
    assert_eq!(
        (&comeback["after"], &comeback["complete"]),
        (class, &json!(true)),
        "{history}"
    );
    assert_eq!(comeback["person_ms"], ledger["waiting_ms"]["person"]);
    scene
        .ask(&["history", scene.root().to_str().unwrap()])
        .expect(0)
        .says("goodput");
}
