//! A journal that a newer release wrote: `run` refuses it, and what only shows shows the rest.

use super::{scene, stopped_at_eight};
use std::fs;
use std::process::Command;
use supervise_core::journal::seal;
use supervise_tests::harness::Scene;

/// Appends a line to the newest journal and answers its name and the line's number.
fn append(scene: &Scene, line: &[u8]) -> (String, usize) {
    let name = scene.names("journal").pop().unwrap();
    let path = scene.run_dir().join("journal").join(&name);
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(line);
    fs::write(&path, &text).unwrap();
    (name, text.split(|b| *b == b'\n').count() - 1)
}

fn newer(v: &str) -> Vec<u8> {
    seal(format!(r#"{{"v":{v},"seq":900,"tick":1,"wall":2,"fact":"of_another_time"}}"#).into_bytes())
}

#[test]
fn a_newer_format_is_refused_by_what_acts_and_shown_by_what_shows() {
    let scene = stopped_at_eight();
    let (name, line) = append(&scene, &newer("9"));
    let (attempts, names) = (scene.attempts(), scene.names("journal"));
    let said = scene.run(&[]);
    said.expect(74)
        .says(&format!("journal/{name} line {line} has format version 9"))
        .says("reads versions up to 2")
        .says("Nothing was started");
    assert_eq!(
        (scene.attempts(), scene.names("journal")),
        (attempts, names),
        "no term was begun"
    );
    let root = scene.root();
    let root = root.to_str().unwrap();
    for shown in [
        &["status", root][..],
        &["journal", root],
        &["checkpoints", root],
        &["explain", root],
        &["history", root],
    ] {
        scene.ask(shown).expect(0);
    }
    scene.ask(&["status", root]).says("lines of a newer version");
    for acts in [
        &["resume", root][..],
        &["gc", root, "--yes"],
        &["rollback", root, "--to", "4"],
    ] {
        scene.ask(acts).expect(74).says("has format version 9");
    }
    // What the refusal tells is done.
    let way = said
        .text
        .split_once("excluded steps: ")
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap();
    assert!(way.starts_with("mv '"), "{way}");
    assert!(Command::new("sh").args(["-c", way]).status().unwrap().success());
    scene.run(&[]).expect(0);
    assert_eq!(scene.proven(), 12);
    assert_eq!(scene.resumed(1), Some(8), "it goes on from the newest step");
}

#[test]
fn a_line_whose_checksum_is_of_another_kind_is_newer_and_no_damage() {
    let scene = stopped_at_eight();
    append(&scene, b"{\"v\":3,\"sum\":\"blake3:00\",\"what\":{}}\n");
    scene.run(&[]).expect(74).says("has format version 3");
}

#[test]
fn a_newer_line_of_an_earlier_term_counts() {
    let scene = stopped_at_eight();
    append(&scene, &newer("4294967296"));
    let dir = scene.run_dir().join("journal");
    fs::copy(dir.join("1.jsonl"), dir.join("2.jsonl")).unwrap();
    let text = fs::read_to_string(dir.join("2.jsonl")).unwrap();
    let without = text.lines().filter(|l| !l.contains("of_another_time"));
    fs::write(
        dir.join("2.jsonl"),
        without.map(|l| format!("{l}\n")).collect::<String>(),
    )
    .unwrap();
    let said = scene.run(&[]);
    said.expect(74)
        .says("journal/1.jsonl")
        .says("format version 4294967296");
}

#[test]
fn a_damaged_line_is_skipped_as_before() {
    let scene = stopped_at_eight();
    // A flipped bit in the version: the checksum does not match.
    let mut line = newer("2");
    line[5] ^= 1;
    append(&scene, &line);
    scene.run(&[]).expect(0).says("is damaged");
}

#[test]
fn a_newer_line_is_found_with_a_snapshot_and_without() {
    let scene = scene();
    scene.run(&[]).expect(0);
    append(&scene, &newer("7"));
    scene.run(&[]).expect(74);
    let snapshot = scene.run_dir().join("snapshot.json");
    assert!(snapshot.exists());
    fs::remove_file(snapshot).unwrap();
    scene.run(&[]).expect(74);
}
