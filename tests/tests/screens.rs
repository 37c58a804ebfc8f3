//! Screens as a person reads them, in one file that can be reviewed as prose: `tests/screens.md`. `UPDATE_GOLDEN=1` writes it anew.
//!
//! The first screens come of a run that nothing befalls. Those of failures are told from run directories that were recorded once
//! (`tests/fixtures/screens`, recorded anew with `UPDATE_GOLDEN=1` too): what a busy machine does to a run changes no word.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "screens/top.rs"]
mod drawn;

use regex::Regex;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, names};

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn updates() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn scene() -> Scene {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    // Whether a control group can be made differs from machine to machine.
    scene
        .set("demo.step_ms", json!(1))
        .set("supervisor.kill.cgroup", json!("off"));
    scene
}

/// Names of the failures, what is told of each, and how it is made.
type Failure = (&'static str, &'static str, fn(&mut Scene));

const FAILURES: [Failure; 5] = [
    ("exception", "an exception at step 5, in each attempt", |s| {
        s.fault("exception", 5, true);
    }),
    ("kill", "a worker is killed from outside, once", |s| {
        s.fault("kill_rank", 5, false);
    }),
    (
        "early_exit",
        "all workers end with 0 before the last planned step, in each attempt",
        |s| {
            s.fault("exit0_early", 5, true);
        },
    ),
    ("hang", "a worker hangs, once", |s| {
        s.fault("hang", 5, false);
        s.set(
            "supervisor.stall",
            json!({"minimum": "2s", "factor": 1.0, "startup": "10m", "save": "10m"}),
        );
    }),
    ("torn_save", "all workers are killed in a save, once", |s| {
        s.fault("kill_all_mid_save", 6, false);
    }),
];

/// The same text on every machine and at every time.
fn calm(text: &str, folder: &Path) -> String {
    let text = text.replace(folder.canonicalize().unwrap().to_str().unwrap(), "/home/you");
    let rules = [
        (r"/tmp/supervise-e2e\.\w+", "/home/you"),
        (r"\bsupervise-e2e\.\w+…?", "NAME"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", "DATE"),
        (r"\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", "TIME"),
        (r"\b[0-9a-f]{16}\b", "RUN"),
        (r"\(\d+(, \d+)+\)", "(PIDS)"),
        (r"\b(pid|guard) \d+", "$1 PID"),
        (r"\b\d+(\.\d+)?( ?)(ms|s|m|h|KiB|MiB|GiB|TiB)\b", "N$2$3"),
        (r"\bN ?(m|h)N ?(s|m)\b", "N m"),
        // The parts stand in the order of their size.
        (r"goodput  .*", "goodput      N.N % of N s; most of the rest: …"),
        (r"begins on \S+", "begins on HOST"),
        (r"supervise \d+\.\d+\.\d+", "supervise VERSION"),
    ];
    let mut text = text;
    for (pattern, word) in rules {
        text = Regex::new(pattern).unwrap().replace_all(&text, word).into_owned();
    }
    text
}

/// The lines until the workers run, and the last words.
fn first_and_last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let started = lines.iter().position(|l| l.contains("workers started")).unwrap() + 1;
    let last = lines.iter().rposition(|l| l.starts_with("finished:")).unwrap();
    let shown = lines[..started].iter().chain(&["…"]).chain(&lines[last..]);
    shown.map(|l| format!("{l}\n")).collect()
}

fn section(out: &mut String, title: &str, command: &str, text: &str) {
    out.push_str(&format!("\n## {title}\n\n```text\n$ {command}\n{}```\n", text));
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names(from) {
        match from.join(&name) {
            path if path.is_dir() => copied(&path, &to.join(name)),
            path => drop(fs::copy(path, to.join(name)).unwrap()),
        }
    }
}

/// Records what is told of a failure: the journal, and what was specified.
fn record(name: &str, make: fn(&mut Scene)) {
    let mut scene = scene();
    scene.set("supervisor.retries", json!(2));
    make(&mut scene);
    let _ = scene.run(&[]);
    let to = top().join("fixtures/screens").join(name);
    let _ = fs::remove_dir_all(&to);
    for part in ["journal", "spec"] {
        copied(&scene.run_dir().join(part), &to.join(part));
    }
    fs::copy(scene.run_dir().join("run.id"), to.join("run.id")).unwrap();
}

#[test]
fn screens_are_as_they_were_read_last() {
    let mut out = String::from(
        "# Screens\n\nThe program's words, as a person reads them. A test compares them; the help of each command stands in\n[commands](../docs/commands.md).\n",
    );
    let quiet = scene();
    let folder = quiet.path("");
    let help = quiet.ask(&["--help"]);
    section(&mut out, "The program", "supervise --help", &help.text);
    let config = quiet.write_config();
    let plan = quiet.ask(&["plan", config.to_str().unwrap()]);
    section(
        &mut out,
        "Before a run",
        "supervise plan demo.yaml",
        &calm(&plan.text, &folder),
    );
    let run = quiet.run(&[]);
    run.expect(0);
    section(
        &mut out,
        "A run",
        "supervise run demo.yaml",
        &calm(&first_and_last(&run.text), &folder),
    );
    let status = quiet.ask(&["status", config.to_str().unwrap()]);
    section(
        &mut out,
        "After a run",
        "supervise status demo.yaml",
        &calm(&status.text, &folder),
    );
    for (name, about, make) in FAILURES {
        if updates() {
            record(name, make);
        }
        let dir = quiet.path(name);
        copied(&top().join("fixtures/screens").join(name), &dir);
        let told = quiet.ask(&["explain", dir.to_str().unwrap()]);
        told.expect(0);
        section(
            &mut out,
            &format!("Told: {about}"),
            "supervise explain demo.yaml",
            &calm(&told.text, &folder),
        );
    }
    is_golden("screens.md", &out);
}

/// It is what stands in the file; where golden files are updated, it does from now on.
fn is_golden(file: &str, out: &str) {
    let golden = top().join(file);
    if updates() {
        fs::write(&golden, out).unwrap();
    }
    let want = fs::read_to_string(&golden).unwrap();
    let different = want.lines().zip(out.lines()).find(|(w, o)| w != o);
    assert!(
        want == out,
        "read {} and accept it with UPDATE_GOLDEN=1: {different:?}",
        golden.display()
    );
}
