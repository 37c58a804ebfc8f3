//! I/O workers that somebody stops are replaced.

use super::{running, scene, state};
use serde_json::json;
use supervise_tests::harness::{Scene, alive, eventually, send, wait_for};

fn busy() -> Scene {
    let mut scene = scene();
    scene
        .set("demo.step_ms", json!(60))
        .set("trainer.save_freq", json!(1))
        .set("trainer.max_actor_ckpt_to_keep", json!(2))
        .set("trainer.total_training_steps", json!(10_000))
        .set("demo.samples", json!(1_000_000))
        .set("supervisor.scan_interval", json!("50ms"));
    scene
}

/// Stops the I/O worker of this name by each signal, and waits until another one does its work.
fn stopped(name: &str) {
    let scene = busy();
    let run = scene.start(&[]);
    running(&scene);
    wait_for("steps are proven", || scene.proven() > 2);
    for signal in [libc::SIGSTOP, libc::SIGTSTP] {
        let worker = eventually("it lives", || scene.io_workers(name).first().copied());
        send(worker, signal);
        wait_for("it is stopped or gone", || matches!(state(worker), Some('T') | None));
        wait_for("it is gone", || !alive(worker));
        let other = eventually("another one lives", || scene.io_workers(name).first().copied());
        assert_ne!(other, worker);
        let before = scene.proven();
        wait_for("steps are proven again", || scene.proven() > before + 2);
        assert_eq!(scene.digest(), None, "the training goes on");
    }
    run.signal(15);
    run.wait().expect(143);
    assert_eq!(scene.attempts(), 1, "no attempt was lost by it");
    scene.assert_alone();
}

#[test]
fn a_journal_worker_that_is_stopped_is_replaced() {
    stopped("journal");
}

#[test]
fn a_worker_that_is_stopped_is_replaced() {
    stopped("work");
}

#[test]
fn one_that_is_stopped_at_the_start_is_replaced() {
    for name in ["journal", "work"] {
        let scene = scene();
        let run = scene.start(&[]);
        let worker = eventually("it lives", || scene.io_workers(name).first().copied());
        send(worker, libc::SIGSTOP);
        run.wait().expect(0);
        assert_eq!(scene.proven(), 12);
        scene.assert_alone();
    }
}
