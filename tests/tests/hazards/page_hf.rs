//! `docs/hazards/hf.md` is written by hand: each of its hazards names tests, and those are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Tests in Rust, and functions of the tests in Python.
fn functions() -> BTreeSet<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut waiting: Vec<PathBuf> = vec![top.join("supervisor"), top.join("tests")];
    let mut out = BTreeSet::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let (path, is_dir) = (entry.path(), entry.file_type().unwrap().is_dir());
            let before = match path.extension().and_then(|e| e.to_str()) {
                _ if is_dir && path.ends_with("fixtures") => continue,
                _ if is_dir => {
                    waiting.push(path);
                    continue;
                }
                Some("rs") => "fn ",
                Some("py") => "def ",
                _ => continue,
            };
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
            let is_test = |at: usize| before == "def " || lines[..at].iter().rev().take(4).any(|l| *l == "#[test]");
            let named = lines.iter().enumerate().filter(|(at, _)| is_test(*at));
            let names = named.filter_map(|(_, line)| line.strip_prefix(before)?.split_once('('));
            out.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
    out
}

#[test]
fn every_hazard_of_hugging_faces_trainer_names_tests_that_are_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("docs/hazards/hf.md");
    let text = fs::read_to_string(path).unwrap();
    let all = text
        .split_once("\n## Hazards\n")
        .unwrap()
        .1
        .split_once("\n## ")
        .unwrap()
        .0;
    let functions = functions();
    let mut wrong = Vec::new();
    for hazard in all.split("\n### ").skip(1) {
        let heading = hazard.lines().next().unwrap();
        let tests = hazard
            .split_once("\n- test: ")
            .map(|(_, tests)| tests)
            .unwrap_or_default();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong.push(format!("{heading}: no test"));
        }
        let lost = named.iter().filter(|name| !functions.contains(**name));
        wrong.extend(lost.map(|name| format!("{heading}: {name} is no test")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
