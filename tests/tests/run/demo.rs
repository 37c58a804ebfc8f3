//! The demo: four faults, one digest; and `supervise demo`.

use super::SUPERVISE;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, names, wait_for};

#[test]
fn the_demo_with_all_its_faults_ends_as_if_nothing_had_happened() {
    let scene = Scene::demo(SUPERVISE);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0).says("finished");
    assert_eq!(scene.digest(), Some(expected));
    let faults = scene.faults();
    let kinds: Vec<_> = faults.iter().map(|f| f.split('-').nth(1).unwrap()).collect();
    assert_eq!(kinds, ["kill_rank", "kill_all_mid_save", "exception", "flip_byte"]);
    assert_eq!(scene.attempts(), 5);
    assert_eq!(scene.aside().len(), 2, "{:?}", scene.aside());
    for step in ["global_step_8", "global_step_12"] {
        assert!(scene.aside().iter().any(|a| a.contains(step)), "{:?}", scene.aside());
    }
    scene.assert_alone();
}

#[test]
fn without_proof_the_same_demo_goes_wrong() {
    let mut scene = Scene::demo(SUPERVISE);
    let expected = scene.expected_digest();
    scene.env("SUPERVISE_PROOF__ENABLED", "false");
    let ended = scene.start(&[]).wait();
    assert!(!scene.faults().is_empty());
    let same = scene.digest() == Some(expected);
    assert!(
        !(same && ended.code == Some(0)),
        "proof made no difference:\n{}",
        ended.text
    );
    assert_eq!(scene.aside(), [""; 0]);
}

/// A scene with an empty directory for temporary files.
fn with_tmp() -> (Scene, PathBuf) {
    let mut scene = Scene::demo(SUPERVISE);
    let tmp = scene.path("tmp");
    fs::create_dir(&tmp).unwrap();
    scene.env("TMPDIR", tmp.to_str().unwrap());
    (scene, tmp)
}

#[track_caller]
fn left_nothing(scene: &Scene, tmp: &Path) {
    assert_eq!(names(tmp), [""; 0]);
    assert_eq!(names(&scene.path("home/.local/state/supervise/runs")), [""; 0]);
    wait_for("no process is left", || scene.living().is_empty());
}

#[test]
fn the_command_compares_two_runs_and_leaves_nothing() {
    let (scene, tmp) = with_tmp();
    let ended = scene.ask(&["demo"]);
    let said = ended.expect(0);
    for text in [
        "$ supervise run demo.yaml --set 'demo.faults=[]'",
        "moved aside: global_step_12 (damaged",
        "bit for bit",
    ] {
        said.says(text);
    }
    left_nothing(&scene, &tmp);
}

#[test]
fn the_command_keeps_what_it_is_to_keep() {
    let (scene, tmp) = with_tmp();
    scene.ask(&["demo", "--keep", "kept"]).expect(0);
    assert_eq!(names(&tmp), [""; 0]);
    scene
        .ask(&["status", "kept/demo.yaml"])
        .expect(0)
        .says("step 14 of 14 is proven");
    scene
        .ask(&["demo", "--keep", "kept"])
        .expect(64)
        .says("--keep kept: it exists");
    assert_eq!(names(&scene.path("kept")), ["broken", "demo.yaml", "undisturbed"]);
}

#[test]
fn the_command_fails_if_the_broken_run_does_not_recover() {
    let (mut scene, tmp) = with_tmp();
    scene.env("SUPERVISE_POLICY", "{code.exception: stop}");
    scene
        .ask(&["demo"])
        .expect(1)
        .says("the broken run did not get to its end");
    left_nothing(&scene, &tmp);
}

#[test]
fn the_command_leaves_nothing_after_a_signal() {
    for (signal, code) in [(2, 130), (15, 143)] {
        let (scene, tmp) = with_tmp();
        let demo = scene.start_with(&["demo"]);
        wait_for("its trainer runs", || {
            let trainer = |(_, command): &(i32, String)| command.contains(" __demo_trainer ");
            scene.living().iter().any(trainer)
        });
        demo.signal(signal);
        demo.wait().expect(code).says("stopped the demo");
        left_nothing(&scene, &tmp);
    }
}
