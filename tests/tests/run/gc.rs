//! `supervise gc`: what a run left is shown, and deleted only when a person says so.

use super::{SUPERVISE, running, scene};
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Scene, names};

fn gc(scene: &Scene, more: &[&str]) -> Value {
    let root = scene.root();
    let ended = scene.ask(&[&["gc", root.to_str().unwrap(), "--json"], more].concat());
    ended.expect(0);
    serde_json::from_str(&ended.text).unwrap()
}

fn chosen(view: &Value) -> Vec<&str> {
    let all = view["leftovers"].as_array().unwrap();
    let chosen = all.iter().filter(|l| l["delete"] == true);
    chosen.map(|l| l["kind"].as_str().unwrap()).collect()
}

#[test]
fn torn_steps_and_old_attempts_go_when_a_person_says_so() {
    let scene = Scene::demo(SUPERVISE);
    scene.run(&[]).expect(0);
    let root = scene.root();
    let root = root.to_str().unwrap();
    assert_eq!((scene.attempts(), scene.aside().len()), (5, 2));
    let shown = gc(&scene, &["--dry-run", "--keep-attempts", "2"]);
    assert_eq!(chosen(&shown), ["torn", "torn", "attempt", "attempt", "attempt"]);
    assert!(shown["bytes"].as_u64().unwrap() > 0);
    // Nobody is there who could be asked.
    scene.ask(&["gc", root]).expect(64).says("--yes");
    assert_eq!((scene.attempts(), scene.aside().len()), (5, 2));

    let digest = scene.digest();
    scene
        .ask(&["gc", root, "--yes", "--keep-attempts", "2"])
        .expect(0)
        .says("deleted 5 leftovers");
    assert_eq!(names(&scene.run_dir().join("attempts")), ["0004", "0005"]);
    assert_eq!(scene.aside(), [""; 0]);
    assert_eq!(scene.digest(), digest);
    assert!(chosen(&gc(&scene, &["--yes", "--keep-attempts", "2"])).is_empty());
    let told = scene.ask(&["explain", "--verbose", root]);
    told.expect(0)
        .says("attempt 1")
        .says("`supervise gc` deleted 5 leftovers");
    // Each term has its journal.
    assert!(!told.text.contains("is not there"), "{}", told.text);
    scene.run(&[]).expect(0);
}

#[test]
fn whole_steps_go_only_where_another_is_in_their_place() {
    let mut scene = scene();
    scene.train(&["trainer.total_training_steps=4"]);
    scene.set("trainer.total_training_steps", json!(4));
    scene.run(&["--fresh", "--yes"]).expect(0);
    let kept = scene.aside();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(chosen(&gc(&scene, &["--dry-run"])).is_empty());

    let hidden = scene.path("hidden");
    fs::create_dir(&hidden).unwrap();
    for step in [2, 4] {
        fs::rename(scene.step(step), hidden.join(step.to_string())).unwrap();
    }
    let view = gc(&scene, &["--all", "--yes"]);
    assert!(view["kept"].as_str().unwrap().contains("last good one"));
    assert_eq!(scene.aside(), kept);
    for step in [2, 4] {
        fs::rename(hidden.join(step.to_string()), scene.step(step)).unwrap();
    }
    assert_eq!(chosen(&gc(&scene, &["--all", "--yes"])), ["foreign", "foreign"]);
    assert_eq!(scene.aside(), [""; 0]);
}

#[test]
fn nothing_is_deleted_beside_a_supervisor() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(3));
    let run = scene.start(&[]);
    running(&scene);
    let root = scene.root();
    let gc = ["gc", root.to_str().unwrap(), "--yes", "--keep-attempts", "0"];
    scene.ask(&gc).expect(5);
    run.kill();
    // The guard still writes into its attempt.
    scene.ask(&gc).expect(5);
    assert_eq!(scene.attempts(), 1);
    scene.go();
    scene.run(&[]).expect(0);
    scene.assert_alone();
}
