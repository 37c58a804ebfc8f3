//! Each script under `scenarios/` and the golden file beside it. `UPDATE_GOLDEN=1` accepts what comes out.

#![expect(
    clippy::disallowed_methods,
    reason = "scripts and golden files are read from the source tree"
)]

use crate::world::World;
use crate::world::script::parse;
use crate::world::words;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// The records of one script, in words; the last line says how it stands.
fn play(text: &str) -> String {
    let script = match parse(text) {
        Ok(s) => s,
        Err(e) => return format!("not a script: {e}\n"),
    };
    let mut w = World::new(script);
    w.run();
    let mut out = String::new();
    for l in &w.log {
        out.push_str(&words::line(l));
        out.push('\n');
    }
    let aside: Vec<String> = w.disk.aside.iter().map(|(id, _)| id.to_string()).collect();
    if !aside.is_empty() {
        out.push_str(&format!("aside: {}\n", aside.join(" ")));
    }
    match &w.broken {
        Some(what) => out.push_str(&format!("BROKEN {what}\n")),
        None => out.push_str(&format!("state: {}\n", w.s.mode.word())),
    }
    out
}

#[test]
fn every_script_leads_to_its_golden_file() {
    let update = std::env::var("UPDATE_GOLDEN").is_ok();
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|x| x == "txt"))
        .collect();
    names.sort();
    assert!(names.len() >= 30, "only {} scripts were found", names.len());
    let mut wrong = Vec::new();
    for path in &names {
        let got = play(&std::fs::read_to_string(path).unwrap());
        let golden = path.with_extension("out");
        if update && !got.contains("BROKEN") && !got.contains("not a script") {
            std::fs::write(&golden, &got).unwrap();
        }
        match std::fs::read_to_string(&golden) {
            Ok(want) if want == got => {}
            Ok(want) => wrong.push(format!("{}: {}", path.display(), difference(&want, &got))),
            Err(_) => wrong.push(format!("{}: no golden file; it gives\n{got}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_golden_file_has_its_script() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|x| x == "out") {
            assert!(path.with_extension("txt").exists(), "{} has no script", path.display());
        }
    }
}

fn difference(want: &str, got: &str) -> String {
    let (w, g): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    let at = w.iter().zip(&g).take_while(|(a, b)| a == b).count();
    format!(
        "line {}\n  golden: {}\n  now:    {}",
        at + 1,
        w.get(at).unwrap_or(&"(end)"),
        g.get(at).unwrap_or(&"(end)")
    )
}
