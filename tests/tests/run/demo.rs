//! The demo as a person runs it: four faults, one digest.

use super::SUPERVISE;
use supervise_tests::harness::Scene;

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
