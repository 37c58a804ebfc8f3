//! A disk that is full in the middle of a save: it is waited for, nothing of that save is trusted, and the weights are those of one go.

use super::{running, saved, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Mount, eventually, wait_for};

/// Room that is left when the save begins: a part of its files fits in.
const LEFT: u64 = 2 << 20;

#[test]
fn a_disk_that_is_full_in_a_save_is_waited_for() {
    let mut scene = scene();
    let mount = match Mount::tiny(&scene, "disk", 256 << 20) {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell("a_disk_that_is_full_in_a_save_is_waited_for"),
    };
    let run_dir = scene.path("run");
    scene
        .set_root(&mount.point.join("checkpoints"))
        .set("supervisor.run_dir", json!(run_dir))
        // Each save is some megabytes.
        .set("demo.samples", json!(1_000_000))
        .set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let ballast = mount.fill(&mount.point);
    let length = ballast.metadata().unwrap().len();
    fs::File::options()
        .write(true)
        .open(&ballast)
        .unwrap()
        .set_len(length - LEFT)
        .unwrap();
    scene.go();
    eventually("it waits for room", || {
        (scene.status()["mode"] == json!("waiting")).then_some(())
    });
    eventually("it says for how much", || {
        run.text().contains("and a save needs ").then_some(())
    });
    assert!(run.text().contains("disk.full"), "{}", run.text());
    assert!(scene.step(6).exists() && scene.tracked() == Some(4), "the save was cut");
    // Room that others take again is none: nothing was launched into it.
    assert_eq!(fs::read_dir(run_dir.join("attempts")).unwrap().count(), 1);
    fs::remove_file(&ballast).unwrap();
    run.wait_long().expect(0).says("free some, and the run goes on");
    assert_eq!(scene.digest(), Some(expected));
    let launch = fs::read(run_dir.join("attempts/0002/launch.json")).unwrap();
    let launch: serde_json::Value = serde_json::from_slice(&launch).unwrap();
    assert!(launch.to_string().contains("global_step_4"), "{launch}");
    scene.assert_alone();
}
