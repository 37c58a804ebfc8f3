//! A run that a person sends back to a step: `supervise rollback`.

use super::{running, saved, scene, stopped_at_eight};
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Scene, send, snapshot};

fn said(scene: &Scene, words: &[&str]) -> Value {
    let ended = scene.ask(words);
    ended.expect(0);
    serde_json::from_str(&ended.text).unwrap()
}

#[test]
fn a_stopped_run_goes_back_once() {
    let (scene, expected) = stopped_at_eight();
    let before = snapshot(&scene.root().join("global_step_8"));
    let told = said(&scene, &["rollback", "--to", "4", "--dry-run", "--json"]);
    assert_eq!(
        (&told["to"], &told["checkpoint"], &told["aside"], &told["dry_run"]),
        (
            &json!(4),
            &json!("global_step_4"),
            &json!(["global_step_8", "global_step_6"]),
            &json!(true)
        )
    );
    assert_eq!(scene.status()["roll_back"], json!(null));
    scene
        .ask(&["rollback", "--to", "6"])
        .expect(0)
        .says("resumes from step 6");
    // The later wish counts.
    scene.ask(&["rollback", "--to", "4"]).expect(0).says("go aside");
    // Nothing has moved.
    assert_eq!(
        (snapshot(&scene.root().join("global_step_8")), scene.tracked()),
        (before.clone(), Some(8))
    );
    assert_eq!(scene.status()["roll_back"]["to"], json!(4));
    scene
        .ask(&["status"])
        .expect(0)
        .says("from step 4")
        .says("sent the run back");
    scene.ask(&["history"]).expect(0).says("next start: from step 4");
    scene.ask(&["explain"]).expect(0).says("sent the run back to step 4");

    scene
        .run(&[])
        .expect(0)
        .says("the first training record is step 5: the trainer resumed from 4");
    assert_eq!(scene.resumed(2), Some(4));
    assert_eq!(
        (scene.digest(), scene.status().get("roll_back").cloned()),
        (Some(expected), None)
    );
    // Step 8 stands aside as it was.
    let aside = scene.aside();
    let eight = aside.iter().find(|path| path.contains("global_step_8")).unwrap();
    let kept = snapshot(&scene.run_dir().join("aside").join(eight));
    assert_eq!(kept.len(), before.len(), "{aside:?}");
    let past = said(&scene, &["history", "--json"]);
    assert_eq!(
        (&past["attempts"][1]["from_step"], past.get("roll_back")),
        (&json!(4), None)
    );
    scene.ask(&["history"]).expect(0).says("sent the run back to step 4");
    scene.ask(&["journal"]).expect(0).says("roll_back");
    // It was obeyed, and is over.
    scene.run(&[]).expect(0);
    assert_eq!(scene.attempts(), 2);
    scene.assert_alone();
}

/// A finished run has no plan of its own any more: it trains from there again.
#[test]
fn a_finished_run_goes_back() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let expected = scene.digest();
    scene.ask(&["rollback", "--to", "2"]).expect(0);
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(2), expected.clone()));
    // A flag of an earlier start is no wish of today.
    scene.run(&["--from", "4"]).expect(0);
    scene.ask(&["rollback", "--to", "6"]).expect(0);
    scene.run(&[]).expect(0);
    assert_eq!(
        (scene.resumed(3), scene.resumed(4), scene.digest()),
        (Some(4), Some(6), expected)
    );
}

#[test]
fn a_run_that_lives_is_not_sent_back() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(7));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 6);
    scene
        .ask(&["rollback", "--to", "2"])
        .expect(5)
        .says("is at work")
        .says("supervise stop");
    scene.ask(&["hold"]).expect(0);
    scene.ask(&["rollback", "--to", "2"]).expect(5);
    scene.ask(&["stop"]).expect(0);
    run.wait().expect(7);
    scene.ask(&["rollback", "--to", "2"]).expect(0);
}

#[test]
fn a_step_that_is_not_there_or_not_whole_is_refused() {
    let (scene, expected) = stopped_at_eight();
    scene
        .ask(&["rollback", "--to", "5"])
        .expect(64)
        .says("there is no step 5")
        .says("8, 6, 4, 2");
    let torn = scene.step(4).join("actor/model_world_size_2_rank_0.pt");
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    scene
        .ask(&["rollback", "--to", "4"])
        .expect(4)
        .says("global_step_4")
        .says("these steps are whole: 8, 6, 2");
    // A flipped bit is found by reading every byte.
    let mut flipped = fs::read(scene.step(2).join("actor/model_world_size_2_rank_1.pt")).unwrap();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(scene.step(2).join("actor/model_world_size_2_rank_1.pt"), flipped).unwrap();
    scene.ask(&["rollback", "--to", "2"]).expect(4).says("global_step_2");
    assert_eq!(scene.status().get("roll_back"), None);
    // Refused wishes change nothing.
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(8), Some(expected)));
}

/// Supervisor and guard were killed: that the workers are dead must be known first.
#[test]
fn an_attempt_that_was_not_seen_to_end_is_ended_first() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    let guards = scene.guards();
    run.kill();
    guards.iter().for_each(|pid| send(*pid, libc::SIGKILL));
    scene.ask(&["rollback", "--to", "2"]).expect(5).says("supervise stop");
    scene.ask(&["stop"]).expect(0);
    scene.ask(&["rollback", "--to", "2"]).expect(0);
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(2));
}
