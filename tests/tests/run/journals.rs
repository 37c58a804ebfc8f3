//! A run's journal as other programs read it: `supervise journal`, `trace`, the example in Python.

use super::{SUPERVISE, saved, scene};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use supervise_tests::harness::{Ended, Scene, eventually};

fn lines(ended: &Ended) -> Vec<Value> {
    let text = ended.expect(0).text.lines();
    // Standard error is read along, where a slow machine may leave a note.
    let records = text.filter(|l| !l.starts_with("note: "));
    records.map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn steps(records: &[Value]) -> Vec<u64> {
    records.iter().map(|r| r["body"]["step"].as_u64().unwrap()).collect()
}

#[test]
fn a_run_with_faults_is_read_by_journal_trace_and_the_example() {
    let scene = Scene::demo(SUPERVISE);
    scene.run(&[]).expect(0);
    let root = scene.root();
    let root = root.to_str().unwrap();
    let all = lines(&scene.ask(&["journal", root, "--json"]));
    let numbers: Vec<u64> = all.iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert_eq!(
        numbers,
        (1..=all.len() as u64).collect::<Vec<_>>(),
        "one term, every record"
    );
    assert_eq!(all.len(), scene.journal().len());
    assert!(
        all.iter()
            .filter(|r| r["kind"].as_str().unwrap().starts_with("decided."))
            .all(|r| r["reasons"].is_array())
    );
    let marks = lines(&scene.ask(&["journal", root, "--kind", "mark", "--json"]));
    assert!(steps(&marks).is_sorted() && !marks.is_empty(), "{marks:?}");
    let file = scene.run_dir().join("journal/1.jsonl");
    assert_eq!(lines(&scene.ask(&["journal", file.to_str().unwrap(), "--json"])), all);
    scene
        .ask(&["journal", root, "--kind", "rain"])
        .expect(0)
        .says("no record of kind rain");
    let decided = scene.ask(&["journal", root, "--kind", "decided"]);
    decided.expect(0).says("decided.diagnosed  because ");
    traced(&scene, &all);
    told_by_the_example(&scene, &steps(&marks));
}

/// Every event parses, each track nests, time never runs backwards, and the attempts are those of the run.
fn traced(scene: &Scene, all: &[Value]) {
    let trace = scene.ask(&["trace", scene.root().to_str().unwrap()]);
    let trace: Value = serde_json::from_str(&trace.expect(0).text).unwrap();
    let mut open: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let (mut attempts, mut now, mut proven) = (0, 0, 0);
    for event in trace["traceEvents"].as_array().unwrap() {
        let (tid, name) = (
            event["tid"].as_u64().unwrap(),
            event["name"].as_str().unwrap().to_owned(),
        );
        if event["ph"] == "M" {
            continue;
        }
        let at = event["ts"].as_u64().unwrap();
        assert!(at >= now, "{event}");
        now = at;
        let track = open.entry(tid).or_default();
        match event["ph"].as_str().unwrap() {
            "B" => {
                attempts += u32::from(name.starts_with("attempt "));
                track.push(name);
                assert!(track.len() <= 2, "{track:?}");
            }
            "E" => assert_eq!(track.pop(), Some(name)),
            "i" => proven += usize::from(tid == 4),
            other => assert_eq!(other, "C"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    assert_eq!(attempts, 5);
    let marks = all.iter().filter(|r| r["kind"] == "decided.mark").count();
    assert_eq!(proven, marks);
    let first = all.first().unwrap()["wall"].as_u64().unwrap();
    let last = all.last().unwrap()["wall"].as_u64().unwrap();
    assert!(
        (now / 1000).abs_diff(last - first) < 5_000,
        "{now} µs, {first} to {last}"
    );
}

fn told_by_the_example(scene: &Scene, proven: &[u64]) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/read_journal.py");
    let missing = Command::new("python3")
        .arg(&example)
        .arg(scene.path("nothing"))
        .output()
        .unwrap();
    assert!(!missing.status.success() && missing.stdout.is_empty(), "{missing:?}");
    let output = Command::new("python3")
        .arg(example)
        .arg(scene.run_dir())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let list: Vec<String> = proven.iter().map(u64::to_string).collect();
    assert!(text.contains(&format!("proven: [{}]", list.join(", "))), "{text}");
    assert!(text.contains("kill"), "{text}");
}

#[test]
fn a_journal_is_followed_until_the_run_ends() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let mut follower = scene.start_with(&[
        "journal",
        scene.root().to_str().unwrap(),
        "--json",
        "--follow",
        "--kind",
        "decided",
    ]);
    eventually("the proven step is told", || {
        follower.text().contains("\"decided.mark\"").then_some(())
    });
    assert!(!follower.has_ended());
    scene.go();
    run.wait().expect(0);
    let told = lines(&follower.wait());
    assert_eq!(told.last().unwrap()["kind"], json!("decided.finish"));
}
