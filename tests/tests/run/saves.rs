//! Saves on request: by a person, before the machine is taken away, and by `max_loss`.

use super::SUPERVISE;
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Ended, Scene, Supervisor, eventually, send};

/// A run that saves by itself at its end only, and can be asked.
fn scene() -> Scene {
    let mut scene = Scene::new(SUPERVISE);
    scene
        .set("trainer.save_freq", json!(1_000_000))
        .set("trainer.total_training_steps", json!(1_000_000))
        .set("demo.step_ms", json!(50))
        .set("demo.save_door", json!(true));
    scene
}

fn step_of(status: &Value) -> Option<u64> {
    status["attempt"]["step"].as_u64()
}

fn trains(scene: &Scene, beyond: u64) -> u64 {
    eventually("the run trains", || {
        step_of(&scene.status()).filter(|step| *step > beyond)
    })
}

fn save(scene: &Scene, more: &[&str]) -> Ended {
    let root = scene.root();
    scene.ask(&[&["save", root.to_str().unwrap()], more].concat())
}

fn stop(scene: &Scene, supervisor: Supervisor) {
    let root = scene.root();
    scene.ask(&["stop", "--now", root.to_str().unwrap()]).expect(0);
    supervisor.wait().expect(7);
}

/// Requests in the journal, as intended.
fn requests(scene: &Scene) -> Vec<Value> {
    let asked = |r: &Value| r.pointer("/body/act/kind/request_save").cloned();
    scene.journal().iter().filter_map(asked).collect()
}

#[test]
fn a_save_that_is_asked_for_is_proven_and_the_training_goes_on() {
    let scene = scene();
    let supervisor = scene.start(&[]);
    trains(&scene, 1);
    let said = save(&scene, &["--wait", "--json"]);
    let said: Value = serde_json::from_str(&said.expect(0).text).unwrap();
    let proven = said["request"]["proven"].as_u64().unwrap();
    // A small step may be proven before its answer is read.
    let answers = fs::read_to_string(scene.run_dir().join("attempts/0001/save-answers")).unwrap();
    let answer: Value = serde_json::from_str(answers.trim()).unwrap();
    assert_eq!((&answer["id"], &answer["step"]), (&json!(1), &json!(proven)), "{said}");
    assert!(scene.step(proven).is_dir() && proven < trains(&scene, proven), "{said}");
    save(&scene, &["--wait"]).expect(0).says("is proven");
    let ids: Vec<u64> = requests(&scene).iter().filter_map(|r| r["id"].as_u64()).collect();
    assert_eq!(ids, [1, 2]);
    stop(&scene, supervisor);
}

#[test]
fn a_trainer_that_does_not_answer_is_not_waited_for() {
    let mut scene = scene();
    scene.set("demo.answers_requests", json!(false));
    let supervisor = scene.start(&[]);
    trains(&scene, 5);
    save(&scene, &["--wait"]).expect(4).says("did not answer");
    trains(&scene, step_of(&scene.status()).unwrap());
    assert_eq!(scene.status()["attempt"]["save_request"]["state"], "unanswered");
    stop(&scene, supervisor);
}

#[test]
fn a_trainer_without_a_door_is_not_asked() {
    let mut scene = scene();
    scene.set("demo.save_door", json!(false));
    let supervisor = scene.start(&[]);
    trains(&scene, 1);
    save(&scene, &[]).expect(69).says("takes no requests");
    stop(&scene, supervisor);
    assert_eq!(requests(&scene), Vec::<Value>::new());
    save(&scene, &[]).expect(69).says("it has ended");
}

#[test]
fn before_the_machine_is_taken_away_a_save_is_asked_for_and_nothing_more_is_trained() {
    let scene = scene();
    let supervisor = scene.start(&[]);
    let trained = trains(&scene, 5);
    supervisor.signal(libc::SIGUSR1);
    supervisor.wait().expect(75).says("asked for a save: by SIGUSR1");
    assert!(scene.proven() >= trained, "{} of {trained}", scene.proven());
    let asked = requests(&scene);
    assert_eq!(asked.len(), 1, "{asked:?}");
    // What was saved is all that was trained.
    let last = step_of(&scene.status()).unwrap();
    assert!(last <= scene.proven() + 2, "{last} of {}", scene.proven());
}

#[test]
fn a_failure_costs_no_more_than_max_loss() {
    let step_ms = 200;
    let mut scene = scene();
    scene
        .set("demo.step_ms", json!(step_ms))
        .set("supervisor.max_loss", json!("10s"));
    let supervisor = scene.start(&[]);
    let proven = eventually("a save is asked for", || Some(scene.proven()).filter(|step| *step > 0));
    let asked = requests(&scene);
    assert_eq!(asked[0]["by"], "max_loss", "{asked:?}");
    let trained = trains(&scene, proven + 5);
    let worker = scene.workers()[0];
    send(worker, libc::SIGKILL);
    let resumed = eventually("the run resumes", || scene.resumed(2));
    assert!(resumed >= proven, "{resumed}");
    // A step takes at least that long.
    assert!(
        trained.saturating_sub(resumed) * step_ms <= 10_000,
        "{trained} after {resumed}"
    );
    let said = scene.status();
    assert_eq!(said["loss"]["max_loss_ms"], 10_000, "{said}");
    stop(&scene, supervisor);
}

#[test]
fn a_promise_that_nobody_can_keep_is_refused() {
    let mut scene = scene();
    scene.set("supervisor.max_loss", json!("0s"));
    scene.run(&[]).expect(78).says("max_loss").says("less than 10s");
}
