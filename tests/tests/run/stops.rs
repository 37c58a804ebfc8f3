//! Stops: by signal, by `supervise stop`, in the middle of a save, of workers that do not want to.

use super::{running, saved, scene, stopped_at_eight};
use serde_json::json;
use std::process::Command;
use supervise_tests::harness::{Refusal, Scene, Supervisor, eventually, send, wait_for};

/// A run whose first save, of step 4, takes so long.
fn slow_save(milliseconds: u64) -> (Scene, String) {
    let mut scene = scene();
    scene
        .set("demo.save_ms", json!(milliseconds))
        .set("trainer.save_freq", json!(4));
    let expected = scene.expected_digest();
    (scene, expected)
}

fn saving(scene: &Scene, step: u64) {
    let shard = scene.step(step).join("actor/model_world_size_2_rank_0.pt");
    wait_for("the save begins", || shard.exists());
    assert_eq!(scene.tracked(), None, "the save must be slow enough to be seen");
}

/// `supervise run -- fake_worker ignore-term`, when the worker is ready.
fn deaf(scene: &Scene, settings: &[&str]) -> Supervisor {
    let worker = scene.program("fake_worker");
    let mut words = vec!["run"];
    settings.iter().for_each(|s| words.extend(["--set", s]));
    words.extend(["--", worker.to_str().unwrap(), "ignore-term"]);
    let run = scene.start_with(&words);
    eventually("the worker runs", || scene.workers().first().copied());
    // It ignores signals from its first line on.
    let logs = scene.path("home/.local/state/supervise/plain");
    wait_for("the worker is ready", || has_line(&logs, "ready"));
    run
}

fn has_line(folder: &std::path::Path, words: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|e| match e.file_type() {
        Ok(t) if t.is_dir() => has_line(&e.path(), words),
        _ => {
            e.path().extension().is_some_and(|x| x == "log")
                && std::fs::read_to_string(e.path()).is_ok_and(|text| text.contains(words))
        }
    })
}

/// The machine is taken away: the save may finish, and the next start goes on from it.
#[test]
fn a_notice_lets_a_save_finish_and_the_run_goes_on_later() {
    let (mut scene, expected) = slow_save(2500);
    // No other save begins after it.
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saving(&scene, 4);
    run.signal(libc::SIGUSR2);
    run.signal(libc::SIGUSR1);
    run.wait().expect(75).says("preempted");
    assert_eq!(scene.tracked(), Some(4));
    assert_eq!(scene.status()["outcome"]["word"], "out_of_time");
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_save_in_progress_may_finish() {
    let (scene, expected) = slow_save(2500);
    let run = scene.start(&[]);
    saving(&scene, 4);
    run.signal(15);
    run.signal(15);
    run.wait().expect(143);
    // The tracker is written after the step, and mended by the next start where that was not waited for.
    assert!(matches!(scene.tracked(), None | Some(4)), "{:?}", scene.tracked());
    let step = scene.step(4);
    scene
        .ask(&["verify", step.to_str().unwrap(), "--depth", "full"])
        .expect(0);
    scene.assert_alone();
    scene.run(&["--set", "demo.save_ms=0"]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
}

#[test]
fn a_save_that_takes_longer_than_its_grace_is_cut_and_passed_over() {
    let (mut scene, expected) = slow_save(600_000);
    scene.set("supervisor.grace", json!({"save": "1s", "stop": "1s"}));
    let run = scene.start(&[]);
    saving(&scene, 4);
    run.signal(15);
    run.wait().expect(143);
    assert_eq!(scene.tracked(), None);
    scene.assert_alone();
    scene.set("demo.save_ms", json!(0));
    scene.run(&[]).expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (2, Some(expected)));
    assert_eq!(scene.aside().len(), 1, "{:?}", scene.aside());
}

#[test]
fn sigterm_stops_and_the_next_run_goes_on() {
    let (scene, expected) = stopped_at_eight();
    scene.assert_alone();
    assert_eq!(scene.digest(), None);
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(8), Some(expected)));
}

#[test]
fn supervise_stop_stops() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let root = scene.root();
    scene.ask(&["stop", root.to_str().unwrap()]).expect(0);
    run.wait().expect(7);
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(4));
}

#[test]
fn supervise_stop_after_save_waits_for_the_next_step() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("demo.step_ms", json!(100))
        .set("demo.samples", json!(1_000_000))
        .set("trainer.total_training_steps", json!(1_000));
    let run = scene.start(&[]);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let root = scene.root();
    let stop = scene.start_with(&["stop", "--after-save", root.to_str().unwrap()]);
    wait_for("the wish is journaled", || {
        scene
            .journal()
            .iter()
            .any(|l| l.to_string().contains("stop_after_save"))
    });
    scene.go();
    run.wait().expect(7);
    stop.wait().expect(0);
    assert!(scene.tracked() >= Some(6) && scene.digest().is_none());
    scene.assert_alone();
}

#[test]
fn an_interrupt_stops_and_a_second_one_does_so_at_once() {
    let scene = scene();
    let run = deaf(&scene, &["supervisor.grace.stop=10m"]);
    run.signal(2);
    wait_for("the stop is under way", || run.text().contains("stop"));
    assert_eq!(scene.workers().len(), 1);
    run.signal(2);
    run.wait().expect(130);
    scene.assert_alone();
}

#[test]
fn a_second_sigterm_does_not_escalate_but_the_grace_ends() {
    let scene = scene();
    let run = deaf(&scene, &["supervisor.grace.stop=1500ms"]);
    run.signal(15);
    run.signal(15);
    run.wait().expect(143).says("in time");
    scene.assert_alone();
}

#[test]
fn a_lost_terminal_does_not_end_the_run() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    let workers = running(&scene);
    run.signal(1);
    wait_for("it says so", || run.text().contains("going on detached"));
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_stop_during_the_pause_before_a_relaunch_ends_the_run_at_once() {
    let mut scene = scene();
    scene.fault("kill_rank", 5, false).set(
        "supervisor.backoff",
        json!({"initial": "10m", "max": "10m", "jitter": 0.0}),
    );
    scene.set("trainer.save_freq", json!(100));
    let run = scene.start(&[]);
    wait_for("it waits", || run.text().contains("restarting in"));
    run.signal(15);
    run.wait().expect(143);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_stop_without_a_supervisor_is_in_the_journal() {
    for guard_too in [false, true] {
        let mut scene = scene();
        scene.set("demo.hold_at", json!(5));
        let run = scene.start(&[]);
        saved(&scene, 4);
        wait_for("step 4 is proven", || scene.proven() == 4);
        run.kill();
        if guard_too {
            scene.guards().into_iter().for_each(|pid| send(pid, 9));
        }
        let root = scene.root();
        scene.ask(&["stop", root.to_str().unwrap(), "--now"]).expect(0);
        scene.assert_alone();
        let status = scene.status();
        assert_eq!(status["mode"], json!("finished"), "{status}");
        let told = scene.ask(&["status", root.to_str().unwrap()]);
        told.says("stopped");
        let why = scene.ask(&["explain", root.to_str().unwrap()]);
        why.says("supervise stop asked to stop");
        // A second one finds that, and adds nothing.
        let lines = scene.journal().len();
        scene.ask(&["stop", root.to_str().unwrap()]).expect(0);
        assert_eq!(scene.journal().len(), lines);
        scene.go();
        scene.run(&[]).expect(0);
        assert_eq!(scene.resumed(2), Some(4));
    }
}

/// The supervisor is gone, and its workers ended after it: their guard waits for whoever comes next, and has told of their end.
#[test]
fn a_guard_whose_workers_have_ended_is_let_go() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    let workers = running(&scene);
    run.kill();
    workers.iter().for_each(|pid| send(*pid, libc::SIGKILL));
    wait_for("the workers are gone", || scene.workers().is_empty());
    scene.ask(&["resume"]).expect(5).says("lives on without a supervisor");
    scene.ask(&["stop"]).expect(0);
    scene.assert_alone();
    scene.go();
    scene.run(&[]).expect(0);
    scene.assert_alone();
}

/// As a person does who is root on all machines: the owner could not read what root writes.
#[test]
fn root_leaves_the_run_directory_of_another_user_alone() {
    let mut scene = scene();
    scene.fault("exit0_early", 5, true);
    scene.run(&[]).expect(3);
    let before = scene.names("journal");
    let give = |user: &str| {
        let said = Command::new("chown").args(["-R", user]).arg(scene.run_dir()).output();
        said.unwrap().status.success()
    };
    if !give("1") {
        return Refusal::new("only root can give a directory to another user").tell("root in another user's run");
    }
    for words in [&["resume"][..], &["rollback", "--to", "2"]] {
        scene.ask(words).expect(69).says("is daemon's").says("sudo -u");
    }
    assert_eq!(scene.names("journal"), before);
    assert!(give("0"));
    scene.ask(&["resume"]).expect(0);
}
