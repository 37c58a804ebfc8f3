//! The helpers that work on files are killed: at the start, and while much happens.

use super::{running, scene};
use serde_json::json;
use supervise_tests::harness::{Dice, alive, eventually, send, wait_for};

/// Rounds of each kind.
const ROUNDS: usize = 4;

#[test]
fn a_journal_worker_that_is_killed_while_events_flow_is_replaced() {
    let mut scene = scene();
    scene
        .set("demo.step_ms", json!(60))
        .set("trainer.save_freq", json!(1))
        .set("trainer.max_actor_ckpt_to_keep", json!(2))
        .set("trainer.total_training_steps", json!(10_000))
        .set("demo.samples", json!(1_000_000))
        .set("supervisor.scan_interval", json!("50ms"));
    let run = scene.start(&[]);
    running(&scene);
    wait_for("steps are proven", || scene.proven() > 2);
    for _ in 0..3 {
        let io_worker = eventually("a journal I/O worker lives", || {
            scene.io_workers("journal").first().copied()
        });
        send(io_worker, 9);
        wait_for("it is gone", || !alive(io_worker));
        let before = scene.journal().len();
        wait_for("the journal grows", || scene.journal().len() > before + 5);
        assert_eq!(scene.digest(), None, "it grew only after the training had ended");
    }
    run.signal(15);
    run.wait().expect(143);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

fn killed_at_the_start(name: &str, seed: u64) {
    let mut dice = Dice::new(seed);
    for round in 0..ROUNDS {
        let mut scene = scene();
        scene
            .set("trainer.total_training_steps", json!(4))
            // Killed between winning a term and saying so, a helper leaves a term that is waited for.
            .set("supervisor.lease.ttl", json!("4s"))
            .set("supervisor.grace", json!({"orphan": "1s", "save": "1s", "stop": "1s"}));
        let run = scene.start(&[]);
        let io_worker = eventually("an I/O worker lives", || scene.io_workers(name).first().copied());
        dice.sleep(0, 40 * round as u64 + 1);
        send(io_worker, 9);
        run.wait().expect(0);
        assert_eq!(scene.proven(), 4);
        scene.assert_alone();
    }
}

#[test]
fn a_journal_worker_that_is_killed_at_the_start_is_replaced() {
    killed_at_the_start("journal", 11);
}

#[test]
fn a_worker_that_is_killed_at_the_start_is_replaced() {
    killed_at_the_start("work", 12);
}
