//! File systems that hang, refuse, or are full: the training goes on, nothing is judged damaged, a kill works.
//!
//! The checkpoint root is the mount point itself, so that what the trainer keeps beside it stays reachable.

use super::serve::{code, run_of, serve};
use super::{running, saved, scene, stopped_at_eight};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Mount, Scene, copy_tree, eventually, snapshot, wait_for};

const WAITS: &str = "does not answer (SIGTERM";

/// A scene whose root is a faulty mount; `None` where there is no such thing here.
pub(super) fn faulty(test: &str) -> Option<(Scene, Mount)> {
    let mut scene = scene();
    match Mount::faulty(&scene, "root") {
        Ok(mount) => {
            scene.set_root(&mount.point);
            Some((scene, mount))
        }
        Err(refusal) => {
            refusal.tell(test);
            None
        }
    }
}

#[test]
fn a_root_that_hangs_for_a_while_is_waited_for() {
    let Some((mut scene, mount)) = faulty("a_root_that_hangs_for_a_while_is_waited_for") else {
        return;
    };
    scene.set("demo.hold_at", json!(7));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 6);
    mount.faults("* hang\n");
    // The trainer is let into the hang, with its next save.
    scene.go();
    let status = scene.ask(&["status", "--json"]);
    status.expect(0).says("\"running\"");
    assert_eq!(scene.workers(), workers);
    mount.faults("");
    run.wait().expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (1, Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
    assert!(
        !scene
            .journal()
            .iter()
            .any(|l| l.to_string().contains("\"verdict\":\"damaged\""))
    );
    scene.assert_alone();
}

#[test]
fn a_root_that_hangs_before_the_start_is_said_and_waited_for() {
    let Some((scene, mount)) = faulty("a_root_that_hangs_before_the_start_is_said_and_waited_for") else {
        return;
    };
    mount.faults("* hang\n");
    let mut stopped = scene.start(&[]);
    wait_for("it is said", || stopped.text().contains(WAITS));
    stopped.signal(15);
    wait_for("it ends", || stopped.has_ended());
    let run = scene.start(&[]);
    wait_for("it is said", || run.text().contains(WAITS));
    mount.faults("");
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_root_that_can_be_looked_at_and_not_listed_is_said_and_waited_for() {
    let test = "a_root_that_can_be_looked_at_and_not_listed_is_said_and_waited_for";
    let Some((scene, mount)) = faulty(test) else { return };
    mount.faults("readdir hang\n");
    let mut stopped = scene.start(&[]);
    wait_for("it is said", || stopped.text().contains(WAITS));
    stopped.signal(15);
    wait_for("it ends", || stopped.has_ended());
    let run = scene.start(&[]);
    wait_for("it is said", || run.text().contains(WAITS));
    mount.faults("");
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_root_that_hangs_still_leaves_an_answer_when_nobody_lives() {
    let Some((scene, mount)) = faulty("a_root_that_hangs_still_leaves_an_answer_when_nobody_lives") else {
        return;
    };
    scene.run(&[]).expect(0);
    mount.faults("* hang\n");
    let root = scene.root();
    let config = scene.write_config();
    let said = scene.ask(&["status", root.to_str().unwrap()]);
    said.expect(0)
        .says("the file system under")
        .says("does not answer")
        .says("supervisor: dead")
        .says("no supervisor and no guard of this user's");
    let why = scene.ask(&["explain", config.to_str().unwrap()]);
    why.expect(69).says("does not answer");
    mount.faults("");
}

#[test]
fn a_stop_kills_while_the_root_hangs() {
    let Some((mut scene, mount)) = faulty("a_stop_kills_while_the_root_hangs") else {
        return;
    };
    scene.set("demo.hold_at", json!(7));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 6);
    mount.faults("* hang\n");
    run.signal(15);
    wait_for("the workers are ended", || scene.workers().is_empty());
    run.wait().expect(143);
    mount.faults("");
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
}

#[test]
fn a_worker_that_dies_while_the_root_hangs_is_replaced_after_it() {
    let name = "a_worker_that_dies_while_the_root_hangs_is_replaced_after_it";
    let Some((mut scene, mount)) = faulty(name) else { return };
    scene.set("demo.hold_at", json!(7)).fault("kill_rank", 7, false);
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 6);
    mount.faults("* hang\n");
    scene.go();
    wait_for("the workers are gone", || scene.workers().is_empty());
    scene.ask(&["status"]).expect(0);
    mount.faults("");
    run.wait().expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
    scene.assert_alone();
}

#[test]
fn a_run_directory_that_hangs_does_not_stop_the_training() {
    let name = "a_run_directory_that_hangs_does_not_stop_the_training";
    let mut scene = scene();
    let mount = match Mount::faulty(&scene, "journals") {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell(name),
    };
    scene
        .set("supervisor.run_dir", json!(mount.point.join("run")))
        .set("demo.hold_at", json!(3));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 2);
    mount.faults("* hang\n");
    scene.go();
    wait_for("the training ends", || scene.digest().is_some());
    scene.ask(&["status", "--json"]).expect(0).says("\"mode\"");
    mount.faults("");
    run.wait().expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (1, Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
    scene.assert_alone();
}

#[test]
fn a_newer_step_that_cannot_be_read_is_never_passed_over() {
    let name = "a_newer_step_that_cannot_be_read_is_never_passed_over";
    let (mut scene, expected) = stopped_at_eight();
    let mount = match Mount::faulty(&scene, "mounted") {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell(name),
    };
    let old = scene.root();
    copy_tree(&old, &mount.backing).unwrap();
    scene.set_root(&mount.point);
    mount.faults("read error:EIO global_step_8/\n");
    let before = snapshot(&mount.backing.join("global_step_8"));
    let run = scene.start(&[]);
    wait_for("it waits", || {
        let said = run.text();
        said.contains("unreadable") || said.contains("cannot be read")
    });
    let status = scene.status();
    assert_eq!(status["mode"], json!("waiting"), "{status}");
    assert_eq!((scene.attempts(), scene.aside().len()), (0, 0));
    assert_eq!(snapshot(&mount.backing.join("global_step_8")), before);
    mount.faults("");
    run.wait().expect(0);
    assert_eq!((scene.resumed(1), scene.digest()), (Some(8), Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
}

#[test]
fn a_full_disk_under_the_journal_does_not_stop_the_training() {
    let mut scene = scene();
    let mount = match Mount::tiny(&scene, "journals", 4 << 20) {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell("a_full_disk_under_the_journal_does_not_stop_the_training"),
    };
    let run_dir = mount.point.join("run");
    scene
        .set("supervisor.run_dir", json!(run_dir))
        // Many steps: the last page of the journal has room for some lines.
        .set("trainer.total_training_steps", json!(150))
        .set("demo.samples", json!(1_000_000))
        .set("demo.step_ms", json!(50))
        .set("demo.hold_at", json!(3));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 2);
    let ballast = mount.fill(&run_dir);
    scene.go();
    wait_for("the training ends", || scene.digest().is_some());
    wait_for("it says so", || {
        run.text()
            .contains("training continues; no restart until the journal is writable")
    });
    let status = scene.status();
    let problem = status["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("journal cannot be written"), "{status}");
    fs::remove_file(&ballast).unwrap();
    run.wait().expect(0).says("can be written again");
    assert_eq!((scene.attempts(), scene.digest()), (1, Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_scan_older_than_the_last_save_makes_no_stranger_of_it() {
    let test = "a_scan_older_than_the_last_save_makes_no_stranger_of_it";
    let Some((mut scene, root)) = faulty(test) else { return };
    let journals = match Mount::tiny(&scene, "journals", 4 << 20) {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell(test),
    };
    let run_dir = journals.point.join("run");
    scene
        .set("supervisor.run_dir", json!(run_dir))
        .set("trainer.total_training_steps", json!(60))
        .set("demo.step_ms", json!(50))
        .set("demo.samples", json!(1_000_000))
        .set("demo.hold_at", json!(3));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 2);
    let ballast = journals.fill(&run_dir);
    scene.go();
    wait_for("the journal is full", || {
        run.text()
            .contains("training continues; no restart until the journal is writable")
    });
    // One save long before the last is read until the training is over.
    let held = scene.tracked().unwrap() + 10;
    root.faults(&format!("read hang global_step_{held}/\n"));
    wait_for("the training ends", || scene.workers().is_empty());
    wait_for("the end is noticed", || {
        run.text().contains("waiting until the journal can be written")
    });
    root.faults("");
    // The old answer comes now; nothing tells that it was passed over.
    std::thread::sleep(std::time::Duration::from_secs(2));
    fs::remove_file(&ballast).unwrap();
    run.wait().expect(0).says("can be written again");
    assert_eq!((scene.attempts(), scene.digest()), (1, Some(expected)));
}

#[test]
fn a_stop_works_while_the_journal_cannot_be_written() {
    let mut scene = scene();
    let mount = match Mount::tiny(&scene, "journals", 4 << 20) {
        Ok(mount) => mount,
        Err(refusal) => return refusal.tell("a_stop_works_while_the_journal_cannot_be_written"),
    };
    let run_dir = mount.point.join("run");
    scene
        .set("supervisor.run_dir", json!(run_dir))
        .set("demo.hold_at", json!(3));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 2);
    let ballast = mount.fill(&run_dir);
    run.signal(15);
    run.wait().expect(143);
    scene.assert_alone();
    fs::remove_file(&ballast).unwrap();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(2));
}

#[test]
fn pages_of_other_runs_are_there_while_a_run_hangs() {
    let Some((scene, mount)) = faulty("pages_of_other_runs_are_there_while_a_run_hangs") else {
        return;
    };
    scene.run(&[]).expect(0);
    let hung = run_of(&scene);
    let run_dir = format!("run_dir={}", scene.path("other").display());
    scene.start_plain(&[&run_dir], &["echo", "here I am"]).wait().expect(0);
    let server = serve(&scene, &["--public-read"]);
    let (_, list) = server.get("/", "");
    let runs = list.split("/run/").skip(1).filter_map(|rest| rest.split('"').next());
    let other = runs.into_iter().find(|run| *run != hung).unwrap();
    mount.faults("* hang\n");
    let list = eventually("the list says what hangs", || {
        let (_, list) = server.get("/", "");
        list.contains("does not answer").then_some(list)
    });
    assert!(list.contains(&hung) && list.contains(other), "{list}");
    let log = |run: &str| server.get(&format!("/run/{run}/log?attempt=1&worker=0"), "");
    // More readers than there are places for outputs.
    std::thread::scope(|s| {
        for _ in 0..10 {
            s.spawn(|| assert_eq!(code(&log(&hung).0), "503"));
        }
    });
    let config = |run: &str| server.get(&format!("/run/{run}/config"), "").1;
    let said = config(&hung);
    assert!(said.contains("does not answer"), "{said}");
    assert!(config(other).contains("Started by"), "that of another run is read");
    let (head, body) = log(other);
    assert!(code(&head) == "200" && body.contains("here I am"), "{body}");
    let (head, body) = server.get(&format!("/run/{other}"), "");
    assert!(code(&head) == "200" && body.contains("finished"), "{body}");
    mount.faults("");
    wait_for("it is there again", || {
        !server.get("/", "").1.contains("does not answer")
    });
    wait_for("its output is there again", || code(&log(&hung).0) == "200");
    server.stops();
}
