//! A stop while something does not answer and never will: the journal's helper, the helper that reads checkpoints, a disk
//! that is full. A helper that is stopped by SIGSTOP is silent until it is replaced, one on a mount that hangs for as long as that does.

use super::filesystem::faulty;
use super::{running, saved, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Mount, Scene, Supervisor, eventually, send, wait_for};

const STOPPED: i32 = libc::SIGSTOP;
/// Nothing is written to the journal.
const JOURNAL: &str = "write hang .supervise/journal\nfsync hang .supervise/journal\n";
/// No step can be looked at.
const STEPS: &str = "* hang global_step\n";

/// A run that is held before step 5, with a step that nobody finished beside step 4.
fn held(scene: &mut Scene) -> Supervisor {
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    running(scene);
    saved(scene, 4);
    wait_for("step 4 is proven", || scene.proven() == 4);
    run
}

fn tear(scene: &Scene) {
    let actor = scene.step(6).join("actor");
    fs::create_dir_all(&actor).unwrap();
    fs::write(actor.join("model_world_size_2_rank_0.pt"), b"torn").unwrap();
}

fn silence(scene: &Scene, io_worker: &str) -> i32 {
    let pid = eventually("the helper lives", || scene.io_workers(io_worker).first().copied());
    send(pid, STOPPED);
    pid
}

/// A rank dies: what comes then is not journaled any more.
fn kill_a_rank(scene: &Scene) {
    let rank = eventually("a worker lives", || scene.workers().first().copied());
    send(rank, libc::SIGKILL);
    wait_for("the workers are gone", || scene.workers().is_empty());
}

#[track_caller]
fn in_mode(scene: &Scene, mode: &str) {
    wait_for(mode, || scene.status()["mode"] == json!(mode));
}

#[test]
fn a_stop_before_an_edit_of_the_disk_does_not_wait_for_the_journal() {
    let test = "a_stop_before_an_edit_of_the_disk_does_not_wait_for_the_journal";
    let Some((mut scene, mount)) = faulty(test) else { return };
    let run = held(&mut scene);
    tear(&scene);
    mount.faults(JOURNAL);
    kill_a_rank(&scene);
    in_mode(&scene, "arranging");
    run.signal(libc::SIGTERM);
    run.wait().expect(143).says("the journal could not be written");
    mount.faults("");
    assert!(scene.step(6).exists(), "what was not durable was done");
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(4));
}

#[test]
fn a_stop_before_a_launch_does_not_wait_for_the_journal() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130)] {
        let test = "a_stop_before_a_launch_does_not_wait_for_the_journal";
        let Some((mut scene, mount)) = faulty(test) else { return };
        let run = held(&mut scene);
        mount.faults(JOURNAL);
        kill_a_rank(&scene);
        in_mode(&scene, "launching");
        run.signal(signal);
        run.wait().expect(code);
        mount.faults("");
        assert_eq!(scene.attempts(), 1);
        scene.assert_alone();
    }
}

#[test]
fn a_stop_while_nothing_can_be_read_ends_the_run() {
    let test = "a_stop_while_nothing_can_be_read_ends_the_run";
    let Some((mut scene, mount)) = faulty(test) else { return };
    let run = held(&mut scene);
    mount.faults(STEPS);
    kill_a_rank(&scene);
    in_mode(&scene, "choosing");
    let root = scene.root();
    let _ = scene.ask(&["stop", root.to_str().unwrap()]);
    run.wait().expect(7);
    mount.faults("");
    scene.assert_alone();
}

#[test]
fn a_stop_of_running_workers_needs_no_helper() {
    let mut scene = scene();
    let run = held(&mut scene);
    silence(&scene, "work");
    silence(&scene, "journal");
    run.signal(libc::SIGTERM);
    run.wait().expect(143);
    scene.assert_alone();
}

#[test]
fn a_stop_at_the_very_start_ends_with_its_own_code() {
    for (signal, code) in [(Some(libc::SIGTERM), 143), (Some(libc::SIGINT), 130), (None, 7)] {
        let mut scene = scene();
        scene.set("demo.hold_at", json!(1));
        let run = scene.start(&[]);
        let helper = silence(&scene, "journal");
        // The helper may have been silenced after the last question of the start, and before the launch was written down.
        wait_for("it waits, or it was too late for that", || {
            run.text().contains("note: waiting") || scene.workers().len() == 2 || scene.status()["problem"].is_string()
        });
        match signal {
            Some(number) => run.signal(number),
            None => {
                let config = scene.write_config();
                let _ = scene.ask(&["stop", config.to_str().unwrap()]);
            }
        }
        run.wait().expect(code);
        // It may have been one that was about to end by itself: that of the look before the start.
        if scene.io_workers("journal").contains(&helper) {
            send(helper, libc::SIGCONT);
        }
        scene.assert_alone();
    }
}

#[test]
fn a_stop_on_a_full_disk_ends_the_run_whatever_it_was_about_to_do() {
    for (name, by) in [
        ("first", Some(libc::SIGTERM)),
        ("second", Some(libc::SIGINT)),
        ("third", None),
    ] {
        let mut scene = scene();
        let mount = match Mount::tiny(&scene, name, 9 << 20) {
            Ok(mount) => mount,
            Err(refusal) => return refusal.tell("a_stop_on_a_full_disk_ends_the_run_whatever_it_was_about_to_do"),
        };
        let root = mount.point.join("checkpoints");
        scene.set_root(&root);
        let run = held(&mut scene);
        tear(&scene);
        let _ = mount.fill(&scene.run_dir());
        kill_a_rank(&scene);
        // The journal may have had its reserve for as long as it took to find that the torn step cannot go aside.
        wait_for("status says so", || {
            let status = scene.status();
            let problem = status["problem"].as_str().unwrap_or_default();
            problem.contains("no worker lives, and nothing is started") || status["mode"] == json!("waiting")
        });
        match by {
            Some(signal) => run.signal(signal),
            None => {
                let _ = scene.ask(&["stop", root.to_str().unwrap()]);
            }
        }
        let ended = run.wait();
        ended.expect(by.map_or(7, |s| 128 + s)).says("No space left on device");
        scene.assert_alone();
    }
}
