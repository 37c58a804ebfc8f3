//! Everything that grows with the life of a run: its journal, what is read of it, and the steps on disk.

use super::{SUPERVISE, saved, scene};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use supervise_core::event::{Event, EventKind, ScanReport};
use supervise_core::id::{Seq, Tick, WallMs};
use supervise_core::journal::encode;
use supervise_core::journal::record::JournalRecord;
use supervise_tests::harness::{Scene, eventually};

/// One rank that saves at every step, and does not stay long at any.
fn quick(steps: u64, keep: u64) -> Scene {
    let mut scene = Scene::new(SUPERVISE);
    scene
        .set("trainer.save_freq", json!(1))
        .set("trainer.total_training_steps", json!(steps))
        .set("trainer.max_actor_ckpt_to_keep", json!(keep))
        .set("trainer.n_gpus_per_node", json!(1))
        .set("demo.samples", json!(1_000_000))
        .set("demo.step_ms", json!(50))
        .set("supervisor.gang.workers", json!(1));
    scene
}

/// Steps under the checkpoint root, whatever is left of them.
fn steps(scene: &Scene) -> Vec<u64> {
    let names = fs::read_dir(scene.root()).unwrap().flatten();
    let number = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix("global_step_")?.parse().ok();
    let mut found: Vec<u64> = names.filter_map(number).collect();
    found.sort_unstable();
    found
}

fn lines_of(scene: &Scene, kind: &str) -> Vec<Value> {
    let pointer = format!("/body/kind/{kind}");
    let mut lines = scene.journal();
    lines.retain(|l| l.pointer(&pointer).is_some());
    lines
}

#[test]
fn what_is_beyond_the_number_goes_while_the_run_goes_on() {
    let mut scene = quick(24, 3);
    scene.set("demo.hold_at", json!(23));
    let run = scene.start(&[]);
    saved(&scene, 22);
    // Three that are kept, two more that the trainer is told to leave, and the one that is being saved.
    let left = eventually("older steps go", || {
        let left = steps(&scene);
        (left.len() <= 6).then_some(left)
    });
    assert!(left.ends_with(&[20, 21, 22]), "{left:?}");
    // Each scan that found a new save asked how full the disk is.
    let of = |line: &Value, what: &str| {
        let usage = line.pointer("/body/kind/used/usage").and_then(Value::as_array);
        usage.is_some_and(|all| all.iter().any(|u| u["what"] == what))
    };
    let used = lines_of(&scene, "used");
    for what in ["disk", "node"] {
        assert!(used.iter().any(|line| of(line, what)), "{what}: {used:?}");
    }
    scene.go();
    run.wait().expect(0).says("finished");
    let left = steps(&scene);
    assert!(left.len() <= 6 && left.ends_with(&[22, 23, 24]), "{left:?}");
    assert_eq!(scene.attempts(), 1);
    scene.assert_alone();
}

#[test]
fn a_run_that_is_only_watched_keeps_what_the_trainer_leaves() {
    let scene = quick(30, 3);
    scene.run(&["--observe"]).expect(0);
    assert_eq!(steps(&scene).len(), 30);
}

#[test]
fn the_journal_tells_what_changed_and_a_snapshot_spares_the_rest() {
    let scene = quick(60, 4);
    scene.run(&[]).expect(0);
    let whole = lines_of(&scene, "checkpoints").len();
    let changed = lines_of(&scene, "checkpoints_changed").len();
    assert!(
        whole < 15 && changed > whole,
        "{whole} scans as a whole, {changed} as differences"
    );
    let journal = scene.run_dir().join("journal/1.jsonl");
    let size = fs::metadata(&journal).unwrap().len();
    assert!(size < 60 * 2048, "{size} bytes for 60 saves");
    let snapshot = scene.run_dir().join("snapshot.json");
    assert_eq!(snapshot.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let with = scene.status();
    assert_eq!(with["mode"], "finished");
    fs::write(&snapshot, "{\"version\":1,\"state\":").unwrap();
    assert_eq!(scene.status(), with, "a torn snapshot is as if it were not there");
    fs::remove_file(&snapshot).unwrap();
    assert_eq!(scene.status(), with);
    // The next term folds the journal and makes it anew.
    scene.run(&["--again"]).expect(0);
    assert!(snapshot.exists());
}

/// A journal of a release that wrote every scan as a whole.
fn lengthen(scene: &Scene, to: u64) {
    let journal = scene.run_dir().join("journal/1.jsonl");
    let lines = scene.journal();
    let scan = lines
        .iter()
        .filter_map(|l| l.pointer("/body/kind/checkpoints"))
        .next_back()
        .unwrap();
    let mut report: ScanReport = serde_json::from_value(scan.clone()).unwrap();
    let step = lines
        .iter()
        .filter_map(|l| l.pointer("/body/kind/checkpoints_changed/came/0/now"))
        .next_back();
    let mut one = json!({"id": "x", "step": 0, "layout": "verl_fsdp_ppo", "verdict": "whole", "proven": "full", "roles": ["actor"],
        "world": 1, "contents": ["model", "optimizer", "extra"], "resume": "exact", "pins": 1, "bytes": 1, "files": 7, "newest": 1,
        "saved_by": null, "findings": []});
    for (name, value) in step.and_then(Value::as_object).into_iter().flatten() {
        one[name] = value.clone();
    }
    for n in 0..300 {
        one["step"] = json!(n);
        one["id"] = json!(format!("global_step_{n}"));
        report.steps.push(serde_json::from_value(one.clone()).unwrap());
    }
    let last = lines.last().unwrap()["seq"].as_u64().unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(journal).unwrap();
    let (mut size, mut seq) = (0, last);
    while size < to {
        seq += 1;
        let record = JournalRecord::Fact(Event {
            at: Tick(seq),
            wall: WallMs(1),
            entropy: 0,
            kind: EventKind::Checkpoints(report.clone()),
        });
        let line = encode(Seq(seq), Tick(seq), WallMs(1), &record).unwrap();
        file.write_all(&line).unwrap();
        size += line.len() as u64;
    }
}

#[test]
fn a_journal_that_takes_long_to_read_is_read() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let snapshot = scene.run_dir().join("snapshot.json");
    lengthen(&scene, 24 << 20);
    let _ = fs::remove_file(&snapshot);
    let root = scene.root().display().to_string();
    let status = scene.ask(&["status", &root]);
    status.expect(0).says("finished");
    assert!(!status.text.contains("does not answer"), "{}", status.text);
    let explained = scene.ask(&["explain", &root]);
    explained.expect(0).says("attempt 1");
    // The next start reads it once more, and leaves a snapshot.
    scene.run(&["--again"]).expect(0);
    assert!(snapshot.exists());
}
