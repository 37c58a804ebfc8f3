//! A trainer that writes no `fsdp_config.json`, as verl 0.4.0: its saves are known by their names and by its pointer.

use super::scene;
use serde_json::json;
use supervise_tests::harness::Scene;

fn unmarked(version: Option<&str>) -> Scene {
    let mut scene = scene();
    scene.set("demo.fsdp_config", json!(false));
    if let Some(version) = version {
        scene.set("supervisor.trainer_version", json!(version));
    }
    scene
}

#[test]
fn a_crash_is_resumed_from_the_newest_finished_step() {
    for version in [Some("0.4.0"), None] {
        let mut scene = unmarked(version);
        let expected = scene.expected_digest();
        scene.fault("kill_rank", 5, false);
        scene.run(&[]).expect(0);
        assert_eq!(scene.resumed(2), Some(4), "{version:?}");
        assert_eq!(scene.digest(), Some(expected), "{version:?}");
        scene.assert_alone();
    }
}

/// The pointer is empty then, and the save before was finished.
#[test]
fn a_save_that_was_killed_is_not_resumed_from() {
    let mut scene = unmarked(Some("0.4.0"));
    let expected = scene.expected_digest();
    scene.fault("kill_all_mid_save", 8, false);
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(6));
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}
