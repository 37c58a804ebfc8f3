//! A process that SIGKILL does not end: it is named, and nothing is launched over it.
//!
//! The init of a pid namespace cannot end before each process in it was reaped. One whose parent stands outside and is stopped
//! is not.

use super::scene;
use std::fs;
use std::process::{Child, Command, Stdio};
use supervise_tests::harness::{Container, alive, cmdline, eventually, in_scene, send, wait_for};

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
