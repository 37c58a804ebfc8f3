//! A helper that gathers evidence never outlives its run.

use super::{running, scene, state};
use serde_json::json;
use supervise_tests::harness::{Scene, alive, eventually, send, wait_for};

fn helper(scene: &Scene) -> i32 {
    eventually("a helper lives", || {
        let all = scene.living();
        all.iter().find(|(_, c)| c.contains("__evidence")).map(|(pid, _)| *pid)
    })
}

/// Stops a helper, which keeps it from ending by itself.
fn stop(pid: i32) {
    send(pid, libc::SIGSTOP);
    wait_for("it is stopped", || state(pid) == Some('T'));
}

#[test]
fn one_that_waits_for_its_order_ends_with_the_run() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(3));
    let run = scene.start(&[]);
    running(&scene);
    let waiting = helper(&scene);
    stop(waiting);
    scene.go();
    run.wait().expect(0);
    assert!(!alive(waiting), "it outlived the run");
    scene.assert_alone();
}

#[test]
fn one_at_work_ends_with_the_run() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(3));
    let run = scene.start(&[]);
    let workers = running(&scene);
    let at_work = helper(&scene);
    stop(at_work);
    send(workers[0], libc::SIGKILL);
    scene.go();
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 2);
    assert!(!alive(at_work), "it outlived the run");
    scene.assert_alone();
}

#[test]
fn one_ends_with_a_supervisor_that_is_killed() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(3));
    let run = scene.start(&[]);
    running(&scene);
    let waiting = helper(&scene);
    stop(waiting);
    run.kill();
    wait_for("it is gone", || !alive(waiting));
    scene.go();
    scene.run(&[]).expect(0);
    scene.assert_alone();
}
