//! The same checkpoint root from elsewhere: another pid and network namespace, another mount of it, another kernel by its
//! own account; and a root that is moved or deleted under a living run.
//!
//! Namespaces and mounts need root: where they cannot be had, a test says so and passes (under `CI=true` it fails).

use super::filesystem::faulty;
use super::{running, saved, scene};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Container, Overlay, Scene, alive, eventually, names, send, wait_for};

/// A run that lives and does not get on, held before step 7.
fn held(ttl: &str) -> Scene {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(7))
        .set("supervisor.lease", json!({"ttl": ttl}));
    scene
}

fn containers(test: &str) -> bool {
    match Container::can_be_made() {
        Ok(()) => true,
        Err(refusal) => {
            refusal.tell(test);
            false
        }
    }
}

#[test]
fn a_living_run_is_not_begun_again_in_another_namespace() {
    if !containers("a_living_run_is_not_begun_again_in_another_namespace") {
        return;
    }
    let scene = held("4s");
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    let other_boot = "01234567-89ab-cdef-0123-456789abcdef";
    for boot in [None, Some(other_boot)] {
        let second = scene.start_in(&Container { boot }, &[]).wait();
        second.expect(5).says("another supervisor holds the lease");
        assert_eq!((scene.workers(), scene.attempts()), (workers.clone(), 1));
    }
    scene.go();
    run.wait().expect(0);
    scene.assert_alone();
}

#[test]
fn a_run_that_lives_in_another_namespace_is_told_as_living_and_asked_in_its_directory() {
    if !containers("a_run_that_lives_in_another_namespace_is_told_as_living_and_asked_in_its_directory") {
        return;
    }
    let scene = held("30s");
    let run = scene.start_in(&Container { boot: None }, &[]);
    saved(&scene, 6);
    let status = scene.status();
    assert!(status["elsewhere"]["host"].is_string(), "{status}");
    assert_eq!(status["supervisor"]["alive"], json!(false));
    assert_eq!((&status["mode"], &status["problem"]), (&json!("running"), &Value::Null));
    let said = |arguments: &[&str]| {
        let root = scene.root();
        let done = scene.supervise(arguments).arg(&root).output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = said(&["status"]);
    assert!(
        code == Some(0) && text.contains("running, on ") && text.contains("unreachable from this machine"),
        "{text}"
    );
    let (code, text) = said(&["rollback", "--to", "2"]);
    assert!(
        code == Some(5) && text.contains("unreachable from this machine"),
        "{text}"
    );
    let (code, text) = said(&["unhold"]);
    assert!(code == Some(69) && text.contains("nobody holds"), "{text}");
    let (code, text) = said(&["hold", "--reason", "gdb"]);
    assert!(code == Some(0) && text.contains("the request waits in "), "{text}");
    assert_eq!(scene.status()["held"]["why"], "gdb");
    let (code, text) = said(&["unhold"]);
    assert_eq!((code, &scene.status()["held"]), (Some(0), &Value::Null), "{text}");
    // One that the supervisor before it did not take is not for this one.
    let asked = scene.run_dir().join("asked.json");
    fs::write(
        &asked,
        r#"{"term":99,"request":{"stop":{"after_save":false,"now":true}}}"#,
    )
    .unwrap();
    wait_for("it is taken away", || !asked.exists());
    assert_eq!(scene.status()["mode"], "running");
    let (code, text) = said(&["stop"]);
    assert!(code == Some(0) && text.contains("stopped"), "{text}");
    run.wait().expect(7).says("for the supervisor of term 99");
    assert_eq!(scene.status()["elsewhere"], Value::Null);
    scene.assert_alone();
}

#[test]
fn what_was_left_in_another_namespace_is_waited_for() {
    if !containers("what_was_left_in_another_namespace_is_waited_for") {
        return;
    }
    let mut scene = held("1s");
    scene.set("supervisor.grace", json!({"orphan": "6s", "save": "1s"}));
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    // Its guard lives on for a while, and nobody in another namespace can reach it.
    run.kill();
    let second = scene.start_in(&Container { boot: None }, &[]);
    wait_for("the second one launches", || scene.attempts() == 2);
    assert!(!workers.iter().any(|pid| alive(*pid)), "two gangs at once");
    scene.go();
    second.wait().expect(0);
    scene.assert_alone();
}

/// The same root under another path, with another device number.
fn another_mount(test: &str, scene: &Scene) -> Option<(Overlay, PathBuf)> {
    let root = scene.root();
    match Overlay::over(scene, "mounted", root.parent().unwrap()) {
        Ok(overlay) => {
            let there = overlay.point.join(root.file_name().unwrap());
            assert!(fs::metadata(&there).unwrap().dev() != fs::metadata(&root).unwrap().dev());
            Some((overlay, there))
        }
        Err(refusal) => {
            refusal.tell(test);
            None
        }
    }
}

#[test]
fn a_living_run_that_is_seen_under_another_mount_is_no_copy() {
    let test = "a_living_run_that_is_seen_under_another_mount_is_no_copy";
    let mut scene = held("4s");
    // Apart from everything else in the scene, so that nothing but the root is mounted again.
    scene.set_root(&scene.path("data/checkpoints"));
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    let root = scene.root();
    let Some((_overlay, there)) = another_mount(test, &scene) else {
        return;
    };
    scene.set_root(&there);
    scene.run(&[]).expect(5).says("another supervisor holds the lease");
    if containers(test) {
        let second = scene.start_in(&Container { boot: None }, &[]).wait();
        second.expect(5).says("another supervisor holds the lease");
    }
    assert!(!names(&there).iter().chain(&names(&root)).any(|n| n.contains("copied")));
    scene.set_root(&root);
    assert_eq!((scene.workers(), scene.attempts()), (workers, 1));
    scene.go();
    run.wait().expect(0);
    scene.assert_alone();
}

#[test]
fn a_bind_mount_of_a_living_run_writes_nothing() {
    let mut scene = held("4s");
    scene.set_root(&scene.path("data/checkpoints"));
    let run = scene.start(&[]);
    running(&scene);
    let root = scene.root();
    let there = match Overlay::bind(&scene, "bound", &root) {
        Ok(bound) => bound,
        Err(refusal) => return refusal.tell("a_bind_mount_of_a_living_run_writes_nothing"),
    };
    let identity = || fs::read(root.join(".supervise/run.id")).unwrap();
    let before = identity();
    scene.set_root(&there.point);
    scene.run(&[]).expect(5).says("another supervisor holds the lease");
    assert_eq!(identity(), before);
    scene.set_root(&root);
    scene.go();
    run.wait().expect(0);
    scene.assert_alone();
}

#[test]
fn a_run_whose_directory_is_moved_or_deleted_ends() {
    for (what, words) in [("move", "was moved to"), ("delete", "was deleted")] {
        let scene = held("4s");
        let run = scene.start(&[]);
        running(&scene);
        saved(&scene, 6);
        let dir = scene.run_dir();
        match what {
            "move" => fs::rename(&dir, scene.path("elsewhere")).unwrap(),
            _ => wait_for("the run directory is deleted", || {
                let _ = fs::remove_dir_all(&dir);
                !dir.exists()
            }),
        }
        let ended = run.wait();
        ended.expect(5).says("the run directory").says(words);
        assert_eq!(scene.workers(), [0; 0]);
        scene.assert_alone();
    }
}

#[test]
fn a_run_whose_directory_is_put_back_at_once_goes_on() {
    let scene = held("60s");
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    let (dir, away) = (scene.run_dir(), scene.path("elsewhere"));
    fs::rename(&dir, &away).unwrap();
    wait_for("it is told", || run.text().contains("if it is not back"));
    // What was made in its place meanwhile holds nothing that counts.
    let _ = fs::remove_dir_all(&dir);
    fs::rename(&away, &dir).unwrap();
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

/// A run that ended at step 12, and whose lease a silent holder on another machine seems to hold for long.
fn held_elsewhere() -> Scene {
    let scene = scene();
    scene.run(&[]).expect(0);
    let file = scene.run_dir().join("lease/1/holder.json");
    let mut holder: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    holder["host"] = json!("another");
    holder["boot"] = json!("another");
    holder["released"] = json!(false);
    holder["lasts"] = json!(3_600_000);
    fs::write(&file, holder.to_string()).unwrap();
    scene
}

#[test]
fn a_supervisor_that_is_killed_while_it_waits_for_the_lease_takes_nothing() {
    let scene = held_elsewhere();
    let run = scene.start(&["--set", "supervisor.lease.ttl=1h"]);
    wait_for("it waits", || run.text().contains("waiting for the lease"));
    run.kill();
    scene.assert_alone();
    assert_eq!(scene.names("lease"), ["1"]);
}

#[test]
fn a_lease_that_nobody_could_have_made_is_refused_and_nobody_spins() {
    for name in ["4294967295", "4294967294"] {
        let scene = scene();
        fs::create_dir_all(scene.root().join(".supervise/lease").join(name)).unwrap();
        fs::set_permissions(scene.root().join(".supervise"), fs::Permissions::from_mode(0o700)).unwrap();
        scene.run(&[]).expect(69).says(name).says("remove it");
        scene.assert_alone();
    }
    let scene = scene();
    fs::create_dir_all(scene.root().join(".supervise")).unwrap();
    fs::write(scene.root().join(".supervise/lease"), "").unwrap();
    scene.run(&[]).expect(69).says("lease is a file");
    scene.assert_alone();
}

#[test]
fn a_lease_that_was_deleted_is_won_again_after_the_terms_of_the_journal() {
    let mut scene = scene();
    scene
        .set("supervisor.lease", json!({"ttl": "1s"}))
        .set("supervisor.grace", json!({"orphan": "1s", "save": "1s"}));
    scene.run(&[]).expect(0);
    fs::remove_dir_all(scene.run_dir().join("lease")).unwrap();
    scene.run(&[]).expect(0);
    assert_eq!(scene.names("lease"), ["2"]);
    scene.assert_alone();
}

fn ready_made(scene: &Scene) -> PathBuf {
    fs::create_dir_all(scene.root()).unwrap();
    scene.root().join(".supervise")
}

#[test]
fn a_run_directory_that_somebody_else_made_is_not_used() {
    let linked = scene();
    let victim = linked.path("victim");
    fs::create_dir(&victim).unwrap();
    symlink(&victim, ready_made(&linked)).unwrap();
    linked.run(&[]).expect(69).says("is a symbolic link to");
    assert_eq!(names(&victim), [""; 0]);

    let others = scene();
    let dir = ready_made(&others);
    fs::create_dir(&dir).unwrap();
    // Only root gives directories away.
    if chown(&dir, Some(12_345), None).is_ok() {
        others.run(&[]).expect(69).says("belongs to user 12345");
        assert_eq!(names(&dir), [""; 0]);
    }
}

#[test]
fn a_run_directory_that_others_can_write_is_mended() {
    let scene = scene();
    let dir = ready_made(&scene);
    fs::create_dir(&dir).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    scene.run(&[]).expect(0).says("mode 777");
    assert_eq!(mode(&dir), 0o755);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/etc/passwd", dir.join("lease/7")).unwrap();
    scene.run(&["--again"]).expect(69).says("was not made by us");
}

#[test]
fn a_waiting_supervisor_whose_lease_is_deleted_ends_with_a_word() {
    let scene = held_elsewhere();
    let run = scene.start(&["--set", "supervisor.lease.ttl=1h"]);
    wait_for("it waits", || run.text().contains("waiting for the lease"));
    fs::remove_dir_all(scene.run_dir().join("lease")).unwrap();
    run.wait().expect(69).says("was deleted meanwhile");
    scene.assert_alone();
}

/// The trainer lives when its supervisor is killed: what waits for the lease on the same machine takes the guard over.
#[test]
fn a_killed_supervisor_is_succeeded_at_once_in_its_own_namespace() {
    let scene = held("60s");
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    run.kill();
    let second = scene.start(&[]);
    eventually("the next term goes on with the workers", || {
        (scene.names("journal").len() == 2).then_some(())
    });
    assert_eq!(scene.workers(), workers);
    scene.go();
    second.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

/// So it is where the supervisor itself is stopped, as by ^Z: its guard ends them.
#[test]
fn workers_do_not_outlive_the_lease_of_a_supervisor_that_is_stopped() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.multi_host", json!(true))
        .set("supervisor.lease.ttl", json!("4s"));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 4);
    send(run.pid(), libc::SIGSTOP);
    wait_for("nothing of it trains", || scene.workers().is_empty());
    send(run.pid(), libc::SIGCONT);
    // Another machine may have come: until that is known nothing is launched.
    wait_for("it goes on", || {
        scene.status()["mode"] == json!("launching") || scene.status()["mode"] == json!("waiting")
    });
    send(run.pid(), libc::SIGTERM);
    run.wait().expect(143);
    assert_eq!((scene.workers().len(), scene.attempts()), (0, 1));
}

/// A holder whose lease stands still may be succeeded from another machine: its workers are gone by then, where that is said.
#[test]
fn workers_do_not_outlive_a_lease_that_cannot_be_renewed() {
    for multi_host in [true, false] {
        let Some((mut scene, mount)) = faulty("workers_do_not_outlive_a_lease_that_cannot_be_renewed") else {
            return;
        };
        scene
            .set("demo.hold_at", json!(5))
            .set("supervisor.multi_host", json!(multi_host))
            .set("supervisor.lease.ttl", json!("4s"))
            .set("supervisor.grace", json!({"orphan": "1s", "save": "1s", "stop": "1s"}));
        let run = scene.start(&[]);
        let workers = running(&scene);
        saved(&scene, 4);
        wait_for("step 4 is proven", || scene.proven() == 4);
        mount.faults("* hang .supervise\n");
        if multi_host {
            run.wait().expect(5).says("the lease could not be renewed for");
            assert!(scene.workers().is_empty());
            mount.faults("");
            continue;
        }
        std::thread::sleep(std::time::Duration::from_secs(6));
        assert_eq!(scene.workers(), workers);
        mount.faults("");
        scene.go();
        run.wait().expect(0);
        assert_eq!(scene.attempts(), 1);
    }
}
