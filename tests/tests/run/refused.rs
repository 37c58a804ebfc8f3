//! What a start leaves behind that was refused, only observed, or stopped: nothing that hinders the next one.

use super::{running, scene, stopped_at_eight};
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Scene, copy_tree};

/// A run of which all steps are torn, and a whole copy of step 8.
fn torn() -> (Scene, std::path::PathBuf) {
    let (scene, _) = stopped_at_eight();
    let copy = scene.path("copy");
    copy_tree(&scene.step(8), &copy).unwrap();
    for step in [2, 4, 6, 8] {
        let shard = scene.step(step).join("actor/model_world_size_2_rank_0.pt");
        fs::write(shard, "torn").unwrap();
    }
    (scene, copy)
}

#[test]
fn an_observed_failure_does_not_stop_a_real_run() {
    let mut scene = scene();
    let expected = scene.expected_digest();
    // The failure of the observed attempt is not charged.
    scene.fault("exception", 5, false).set("supervisor.retries", json!(0));
    scene.run(&["--observe"]).expect(6).says("without --observe");
    assert_eq!(scene.attempts(), 1);
    scene.ask(&["resume"]).expect(0).says("nothing blocked its next start");
    scene.run(&[]).expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (2, Some(expected)));
    assert_eq!(scene.status()["restarts"], json!(0));
}

#[test]
fn a_mistyped_step_changes_nothing() {
    let (scene, _) = stopped_at_eight();
    fs::write(scene.step(6).join("actor/model_world_size_2_rank_0.pt"), "torn").unwrap();
    scene
        .run(&["--from", "5"])
        .expect(64)
        .says("no such step")
        .says("can be resumed: 8, 4, 2");
    scene
        .run(&["--from", "6"])
        .expect(64)
        .says("global_step_6 is")
        .says("can be resumed: 8, 4, 2");
    assert_eq!(scene.status()["term"], json!(1));
    scene.run(&[]).expect(0);
    // A finished run stays finished.
    scene.run(&["--from", "5"]).expect(64);
    scene.run(&[]).expect(0);
    assert_eq!(scene.attempts(), 2);
}

/// Damage that only a full read shows ends the start, and not the run.
#[test]
fn a_damaged_step_that_was_named_does_not_stop_the_next_start() {
    let (mut scene, expected) = stopped_at_eight();
    scene.set("supervisor.proof", json!({"depth": "full"}));
    let shard = scene.step(6).join("actor/model_world_size_2_rank_0.pt");
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    scene.run(&["--from", "6"]).expect(4).says("step 6 was asked for");
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(8), Some(expected)));
}

#[test]
fn the_hints_of_a_run_without_a_proven_step_work() {
    let (scene, copy) = torn();
    scene.run(&[]).expect(4).says("no step can be resumed").says("--fresh");
    scene
        .run(&[])
        .expect(4)
        .says("nothing was started")
        .says("no step can be resumed");
    scene.ask(&["rollback", "--to", "8"]).expect(4).says("put a whole copy");
    let said = scene.ask(&["resume"]);
    said.expect(0).says("would be refused again").says("put a whole copy");
    assert!(!said.text.contains("start it as before"), "{}", said.text);
    scene.run(&[]).expect(4);
    fs::remove_dir_all(scene.step(8)).unwrap();
    copy_tree(&copy, &scene.step(8)).unwrap();
    let said = scene.ask(&["resume"]);
    said.expect(0)
        .says("its next start is no longer blocked")
        .says("resume from global_step_8");
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
}

#[test]
fn a_run_without_a_proven_step_can_be_started_over() {
    let (scene, _) = torn();
    scene.run(&[]).expect(4);
    scene.run(&["--fresh", "--yes"]).expect(0);
    assert!(scene.aside().iter().any(|path| path.contains("global_step_8")));
}

#[test]
fn a_stop_is_nobodys_failure() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    running(&scene);
    scene.ask(&["stop"]).expect(0);
    run.wait().expect(7);
    let told: Value = serde_json::from_str(&scene.ask(&["explain", "--json"]).text).unwrap();
    let why = told["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|a| a["ended_by_us"].as_str());
    assert!(why.unwrap().contains("asked to stop"), "{told}");
    for words in [&["logs"][..], &["logs", "--attempt", "1"]] {
        let said = scene.ask(words);
        said.expect(0);
        assert!(!said.text.contains("failed first"), "{}", said.text);
    }
    scene.go();
    scene.run(&[]).expect(0);
    let said = scene.ask(&["logs", "--attempt", "1"]);
    said.expect(0);
    assert!(!said.text.contains("failed first"), "{}", said.text);
    let status = scene.status();
    assert_eq!((&status["attempts"], &status["restarts"]), (&json!(2), &json!(0)));
}
