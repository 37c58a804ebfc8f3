//! Ranks that hang: each is found, ended and brought back, and the training ends as if nothing had been.
//!
//! Limits are small where the hang is to be found; what a slow machine takes for a start is ended by none of them, and a relaunch
//! that is ended all the same is only one more.

use super::evidence::{evidence, record};
use super::{running, scene};
use serde_json::json;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};
use supervise_tests::harness::{PATIENCE, Scene, eventually, send, wait_for};

/// The hard limit decides in steps. A start-up that this run has seen end has as long, and a healthy one needs no part of it.
fn with_hard_limit(kind: &str, ranks: &[u64]) -> Scene {
    let mut scene = scene();
    let faults: Vec<_> = ranks
        .iter()
        .map(|rank| json!({"kind": kind, "step": 5, "rank": rank}))
        .collect();
    scene
        .set("demo.faults", json!(faults))
        .set("supervisor.stall", json!({"hard": "40s"}));
    scene
}

fn is_found(scene: &Scene, words: &str) {
    let expected = scene.expected_digest();
    scene.start(&[]).wait_long().expect(0).says(words);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_rank_that_spins_is_ended_by_the_hard_limit() {
    is_found(&with_hard_limit("trickle", &[1]), "stall.hard");
}

#[test]
fn a_tree_that_spins_in_all_ranks_is_ended_by_the_hard_limit() {
    is_found(&with_hard_limit("spin", &[0, 1]), "stall.hard");
}

#[test]
fn a_rank_that_prints_for_ever_is_ended_by_the_hard_limit() {
    is_found(&with_hard_limit("heartbeat", &[1]), "stall.hard");
}

#[test]
fn a_rank_that_is_stopped_is_found() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    let workers = running(&scene);
    wait_for("step 4 is proven", || scene.proven() == 4);
    // Rank 0 is held, the other waits for it, and both have recorded so.
    let dir = evidence(&scene.path("")).unwrap();
    for rank in [0, 1] {
        fs::write(dir.join(format!("nccl_trace_rank_{rank}")), record(rank + 4, 4)).unwrap();
    }
    for pid in &workers {
        send(*pid, libc::SIGSTOP);
    }
    scene.go();
    run.wait_long().expect(0).says("stuck");
    let found = eventually("the records were read", || {
        fs::read_to_string(dir.join("collectives.txt")).ok()
    });
    assert!(found.starts_with("rank 0 did not enter all_reduce number 5"), "{found}");
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

/// A scheduler suspends all of a job for longer than the hard limit: that time counts for nothing.
#[test]
fn a_suspension_of_everything_is_no_hang() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.stall", json!({"hard": "20s"}));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let all: Vec<i32> = scene.living().into_iter().map(|(pid, _)| pid).collect();
    for pid in &all {
        send(*pid, libc::SIGSTOP);
    }
    // The suspension itself.
    sleep(Duration::from_secs(30));
    scene.go();
    for pid in &all {
        send(*pid, libc::SIGCONT);
    }
    run.wait_long().expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (1, Some(expected)));
    scene.assert_alone();
}

/// It gets on, then says that it starts an engine again in place, and waits for that.
const HEALS: &str = r#"
import os, sys, time
again = os.path.exists(sys.argv[1])
for step in range(1, 41):
    if step == 31 and not again:
        open(sys.argv[1], "w").close()
        print("WARNING Restarting dead rollout engine 3", flush=True)
        time.sleep(3600)
    print("step", step, flush=True)
    time.sleep(0.1)
"#;

#[test]
fn an_engine_that_is_started_again_in_place_has_the_time_of_a_start_and_no_more() {
    const START: u64 = 90;
    let scene = scene();
    let (program, mark) = (scene.path("train.py"), scene.path("mark"));
    fs::write(&program, HEALS).unwrap();
    let limits = [
        "stall.minimum=3s",
        "stall.factor=1.0",
        &format!("stall.startup={START}s"),
    ];
    let run = scene.start_plain(&limits, &["python3", program.to_str().unwrap(), mark.to_str().unwrap()]);
    let done = run.wait_long();
    done.expect(0)
        .says("a part of it is brought back in place, and is given the time of a start: WARNING Restarting dead rollout engine 3");
    let (_, rest) = done.text.split_once("; it said ").unwrap();
    let waited: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((START..2 * START).contains(&waited), "{}", done.text);
    scene.assert_alone();
}

#[test]
fn a_save_that_hangs_is_found() {
    let mut scene = scene();
    scene.set("demo.faults", json!([{"kind": "hang_save", "step": 6}])).set(
        "supervisor.stall",
        json!({"save": "3s", "minimum": "3s", "factor": 1.0}),
    );
    is_found(&scene, "stuck");
}

#[test]
fn processes_that_stay_when_all_is_done_are_ended_and_the_run_has_finished() {
    let mut scene = scene();
    scene.set("supervisor.stall", json!({"minimum": "25s"}));
    let expected = scene.expected_digest();
    scene.env("DEMO_STAYS", "1");
    let run = scene.start(&[]);
    run.wait_long().expect(0).says("training finished").says("finished");
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}

#[test]
fn what_would_have_been_done_is_said_and_not_done() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let run = scene.start(&["--observe"]);
    let workers = running(&scene);
    // The guard's looks take their time, and more of it on a busy machine.
    let until = Instant::now() + 8 * PATIENCE;
    while !run.text().contains("would have been ended") {
        assert!(Instant::now() < until, "it is not said:\n{}", run.text());
        sleep(Duration::from_millis(100));
    }
    assert_eq!(scene.workers(), workers);
    scene.go();
    run.wait_long().expect(0);
    assert_eq!(scene.attempts(), 1);
}
