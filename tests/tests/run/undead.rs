//! A process that SIGKILL does not end: it is named, and nothing is launched over it.
//!
//! The init of a pid namespace cannot end before each process in it was reaped. One whose parent stands outside and is stopped
//! is not.

use super::scene;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use supervise_tests::harness::{Container, PATIENCE, Scene, alive, cmdline, eventually, in_scene, send, wait_for};

/// Holds the init of a pid namespace in the kernel for as long as this lives.
struct Hold(Child);

impl Hold {
    fn new(init: i32) -> Self {
        let mut command = Command::new("nsenter");
        let command = command.args(["--target", &init.to_string(), "--pid", "sleep", "600"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let outside = i32::try_from(child.id()).unwrap();
        eventually("a process stands in the namespace", || {
            children(outside).first().copied()
        });
        send(outside, libc::SIGSTOP);
        Self(child)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let outside = i32::try_from(self.0.id()).unwrap();
        children(outside).into_iter().for_each(|pid| send(pid, 9));
        send(outside, 9);
        let _ = self.0.wait();
    }
}

/// The process that was started with this command.
fn worker(scene: &Scene, command: &str) -> i32 {
    eventually("the worker runs", || {
        let all = in_scene(&scene.mark());
        let found = all.iter().find(|(_, words)| words.starts_with(command));
        found.map(|(pid, _)| *pid)
    })
}

/// The next attempt's guard may be there already.
fn guard_of(scene: &Scene, worker: i32) -> i32 {
    let guards = scene.guards();
    guards
        .into_iter()
        .find(|guard| children(*guard).contains(&worker))
        .unwrap()
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

#[test]
fn a_stop_names_what_does_not_die_and_ends_with_69() {
    if let Err(refusal) = Container::can_be_made() {
        return refusal.tell("a process that does not die");
    }
    let scene = scene();
    let words = [
        "run",
        "--set",
        "supervisor.grace.stop=1s",
        "--",
        "unshare",
        "--pid",
        "--fork",
        "sleep",
        "600",
    ];
    let run = scene.start_with(&words);
    let init = eventually("the worker's namespace has an init", || {
        let all = in_scene(&scene.mark());
        let worker = all.iter().find(|(_, command)| command.starts_with("unshare "))?;
        children(worker.0)
            .first()
            .copied()
            .filter(|init| cmdline(*init) == "sleep 600")
    });
    let hold = Hold::new(init);
    let named = format!("process {init} (sleep)");
    let stop = scene.ask(&["stop"]);
    stop.expect(69).says(&named);
    run.wait().expect(69).says(&init.to_string());
    assert!(alive(init));
    scene.ask(&["status"]).expect(0).says(&named);
    drop(hold);
    wait_for("it is gone", || !alive(init));
    assert!(!scene.ask(&["status"]).text.contains(&named));
    scene.assert_alone();
}

/// Stopped by a signal, as a supervisor in the foreground is by ^Z.
#[test]
fn a_stop_names_a_supervisor_and_a_guard_that_stand_still_and_happens_when_they_go_on() {
    let scene = scene();
    let run = scene.start_with(&["run", "--", "sleep", "600"]);
    let guard = guard_of(&scene, worker(&scene, "sleep 600"));
    [guard, run.pid()].iter().for_each(|pid| send(*pid, libc::SIGSTOP));
    let began = Instant::now();
    let stop = scene.ask(&["stop", "--timeout", "1s"]);
    stop.expect(69).says("it does not answer").says("process");
    for (who, pid) in [("supervisor", run.pid()), ("guard", guard)] {
        stop.says(&format!("{who}: process {pid} ("));
    }
    stop.says("stopped (T)").says(&format!("kill -CONT {}", run.pid()));
    assert!(began.elapsed() < PATIENCE);
    [guard, run.pid()].iter().for_each(|pid| send(*pid, libc::SIGCONT));
    run.wait().expect(7);
    scene.assert_alone();
}

#[test]
fn a_stop_ends_at_its_deadline_and_the_run_stays_told_to_end() {
    let scene = scene();
    let deaf = scene.program("fake_worker");
    let words = ["run", "--set", "supervisor.grace.stop=30s", "--"];
    let run = scene.start_with(&[&words[..], &[deaf.to_str().unwrap(), "ignore-term"]].concat());
    let pid = eventually("the worker runs", || scene.workers().first().copied());
    wait_for("it ignores signals", || scene.ask(&["logs"]).text.contains("ready"));
    let stop = scene.ask(&["stop", "--timeout", "1s"]);
    stop.expect(69).says("did not stop within 1 s");
    stop.says(&format!("process {pid} (fake_worker)"))
        .says("the stop request stays in effect");
    scene.ask(&["stop", "--now"]).expect(0).says("stopped");
    run.wait().expect(7);
    scene.assert_alone();
}

#[test]
fn a_guard_that_stands_still_alone_is_named_and_is_no_other_supervisor() {
    let scene = scene();
    let run = scene.start_with(&["run", "--", "sleep", "600"]);
    let guard = guard_of(&scene, worker(&scene, "sleep 600"));
    run.kill();
    send(guard, libc::SIGSTOP);
    let stop = scene.ask(&["stop"]);
    stop.expect(69)
        .says(&format!("guard: process {guard} ("))
        .says("stopped (T)");
    send(guard, libc::SIGCONT);
    scene.ask(&["stop"]).expect(0);
    scene.assert_alone();
}
