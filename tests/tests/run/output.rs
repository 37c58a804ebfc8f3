//! The workers' output: kept per worker, bounded, and never a reason to block.

use super::{running, scene};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use supervise_tests::harness::{Scene, names, send, wait_for};

fn only_log(scene: &Scene) -> Vec<PathBuf> {
    let plain = scene.path("home/.local/state/supervise/plain");
    let run = plain.join(names(&plain).first().unwrap()).join("attempts/0001");
    names(&run)
        .into_iter()
        .filter(|n| n.contains(".log"))
        .map(|n| run.join(n))
        .collect()
}

#[test]
fn each_worker_has_its_log_in_its_attempt() {
    let mut scene = scene();
    scene.fault("kill_rank", 5, false);
    scene.run(&[]).expect(0);
    for attempt in ["0001", "0002"] {
        for rank in 0..2 {
            let path = scene.run_dir().join(format!("attempts/{attempt}/worker-{rank}.log"));
            let text = fs::read_to_string(&path).unwrap();
            assert!(
                text.contains(&format!("[Rank {rank}] Saved model to")),
                "{}",
                path.display()
            );
            assert!(
                !text.contains(&format!("[Rank {}] Saved", 1 - rank)),
                "{}",
                path.display()
            );
        }
    }
    let second = fs::read_to_string(scene.run_dir().join("attempts/0002/worker-0.log")).unwrap();
    assert!(second.contains("Resuming from") && second.contains("final digest"));
}

#[test]
fn what_a_run_that_ends_at_once_said_is_there_when_it_has_ended() {
    let scene = scene();
    for n in 0..10 {
        let run_dir = scene.path(&format!("run-{n}"));
        let set = format!("supervisor.run_dir={}", run_dir.display());
        let words = [
            "run",
            "--set",
            "supervisor.trainer=plain",
            "--set",
            "supervisor.retries=0",
            "--set",
            &set,
        ];
        scene
            .ask(&[&words[..], &["--", "sh", "-c", "echo its last word; exit 3"]].concat())
            .expect(6);
        let text = fs::read_to_string(run_dir.join("attempts/0001/worker-0.log"));
        assert_eq!(text.as_deref().ok(), Some("its last word\n"), "run {n}");
    }
}

#[test]
fn a_flood_is_rotated_and_its_end_is_kept() {
    let scene = scene();
    let worker = scene.program("fake_worker");
    let words = [
        "run",
        "--set",
        "supervisor.output.max_bytes=1MiB",
        "--set",
        "supervisor.output.keep=2",
        "--",
    ];
    let mut words = words.to_vec();
    words.extend([worker.to_str().unwrap(), "spam", "64000000"]);
    scene.ask(&words).expect(0);
    let logs = only_log(&scene);
    assert!((2..=3).contains(&logs.len()), "{logs:?}");
    let bytes: u64 = logs.iter().map(|l| fs::metadata(l).unwrap().len()).sum();
    assert!(bytes < 5 << 20, "{bytes} bytes");
    let newest = logs.iter().find(|l| l.extension().is_some_and(|e| e == "log")).unwrap();
    let text = fs::read_to_string(newest).unwrap();
    assert!(
        text.contains("0000999999 xxx"),
        "the last line is missing: {:?}",
        text.lines().last()
    );
}

/// A supervisor that is stopped reads nothing: neither the flood nor the training may notice.
#[test]
fn nothing_blocks_while_the_supervisor_is_stopped() {
    let scene = scene();
    let worker = scene.program("fake_worker");
    let run = scene.start_with(&["run", "--", worker.to_str().unwrap(), "spam", "32000000"]);
    wait_for("the worker or its end", || {
        !scene.workers().is_empty() || run.text().contains("ended first")
    });
    send(run.pid(), libc::SIGSTOP);
    wait_for("the worker ends", || scene.workers().is_empty());
    send(run.pid(), libc::SIGCONT);
    run.wait().expect(0);

    let mut scene = scene;
    scene.set("demo.step_ms", json!(50)).set("demo.hold_at", json!(2));
    let run = scene.start(&[]);
    running(&scene);
    send(run.pid(), libc::SIGSTOP);
    scene.go();
    wait_for("the trainer ends", || scene.digest().is_some());
    send(run.pid(), libc::SIGCONT);
    run.wait().expect(0);
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}
