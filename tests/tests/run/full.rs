//! A disk that is full in the middle of a save: it is waited for, nothing of that save is trusted, and the weights are those of one go.

use super::filesystem::faulty;
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

#[test]
fn files_that_are_used_up_are_waited_for() {
    let mut scene = scene();
    let mount = match Mount::few_files(&scene, "disk", 400) {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell("files_that_are_used_up_are_waited_for"),
    };
    scene
        .set_root(&mount.point.join("checkpoints"))
        .set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let mut ballast = mount.use_up_files();
    assert!(ballast.len() > 50, "{}", ballast.len());
    // One for the word that lets the trainer go on.
    fs::remove_file(ballast.pop().unwrap()).unwrap();
    scene.go();
    eventually("it says what is missing", || {
        run.text()
            .contains("more files can be made on the disk of")
            .then_some(())
    });
    assert_eq!(scene.status()["mode"], json!("waiting"));
    assert_eq!(scene.attempts(), 1);
    for path in &ballast {
        fs::remove_file(path).unwrap();
    }
    run.wait_long().expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_quota_that_is_used_up_is_waited_for_until_a_file_can_be_made() {
    let Some((mut scene, mount)) = faulty("a_quota_that_is_used_up_is_waited_for_until_a_file_can_be_made") else {
        return;
    };
    scene.set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    wait_for("step 4 is proven", || scene.proven() == 4);
    mount.faults("create error:EDQUOT\nmkdir error:EDQUOT\n");
    scene.go();
    eventually("it says that a write is refused", || {
        run.text().contains("still refuses what is written").then_some(())
    });
    assert_eq!(scene.status()["mode"], json!("waiting"));
    assert_eq!(scene.attempts(), 1);
    mount.faults("");
    run.wait_long().expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    let left = fs::read_dir(scene.run_dir()).unwrap();
    let names: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
    assert!(
        !names.iter().any(|n| n.to_string_lossy().contains("probe")),
        "{names:?}"
    );
    scene.assert_alone();
}

#[test]
fn a_quota_that_nothing_tells_of_costs_no_retry() {
    let Some((mut scene, mount)) = faulty("a_quota_that_nothing_tells_of_costs_no_retry") else {
        return;
    };
    let run_dir = scene.path("run");
    scene
        .set("supervisor.run_dir", json!(run_dir))
        .set("supervisor.retries", json!(1))
        .set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    wait_for("step 4 is proven", || scene.proven() == 4);
    mount.faults("write error:EDQUOT\n");
    scene.go();
    // The same failure at the same step, or a change of our own that is refused.
    eventually("it was refused four times", || {
        let times = |words: &str| run.text().matches(words).count();
        (times("disk.full") + times("Disk quota exceeded (os error 122)") >= 4).then_some(())
    });
    mount.faults("");
    run.wait_long().expect(0);
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}
