//! Metrics of real runs, as Prometheus' own checker reads them.

use super::scene;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::Scene;

pub(super) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// One of Prometheus' programs, where it is installed; where it is not, that is said, and is an error in CI.
pub(super) fn program(name: &str) -> Option<String> {
    let script = top().join("tests/testbed/browser.sh");
    let found = Command::new(script).arg(name).output().unwrap().stdout;
    let found = String::from_utf8(found).unwrap().trim().to_owned();
    if found.is_empty() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no {name}");
        let words = format!("skipped: there is no {name}: tests/testbed/browser.sh install\n");
        let _ = std::io::stderr().write_all(words.as_bytes());
        return None;
    }
    Some(found)
}

fn promtool(arguments: &[&str], input: &str) {
    let Some(found) = program("promtool") else { return };
    let mut child = Command::new(found)
        .args(arguments)
        .current_dir(top())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}\n{input}");
}

fn read(scene: &Scene) -> String {
    let file = scene.path("supervise.prom");
    scene.ask(&["metrics", "--textfile", file.to_str().unwrap()]).expect(0);
    fs::read_to_string(file).unwrap()
}

#[test]
fn the_metrics_of_a_run_that_failed_and_of_one_that_is_dead_pass_the_checker() {
    let mut scene = scene();
    scene.fault("exception", 5, true).set("supervisor.retries", json!(1));
    let ended = scene.run(&[]);
    assert_ne!(ended.code, Some(0));
    let text = read(&scene);
    promtool(&["check", "metrics"], &text);
    let outcome = text.lines().find(|l| l.starts_with("supervise_run_outcome{")).unwrap();
    assert!(outcome.contains("outcome=\"deterministic_failure\""), "{outcome}");
    assert!(
        text.contains("class=\"code.exception\"} 2\n"),
        "two attempts ended so:\n{text}"
    );
    assert!(text.contains("supervise_run_supervisor_alive{"), "{text}");
    assert!(text.contains("supervise_scrape_runs 1\n"), "{text}");
    let printed = scene.ask(&["metrics"]).text;
    promtool(&["check", "metrics"], &printed);
    scene
        .ask(&["metrics", "--textfile", "/nowhere/x.prom"])
        .expect(69)
        .says("/nowhere/x.prom: the metrics cannot be written");
}

#[test]
fn the_alerts_are_rules_that_fire_when_they_should() {
    promtool(&["check", "rules", "contrib/prometheus/alerts.yaml"], "");
    promtool(&["test", "rules", "contrib/prometheus/alerts_test.yaml"], "");
}

#[test]
fn a_journal_that_tells_nothing_is_a_run_with_a_problem() {
    let scene = scene();
    scene.run(&[]).expect(0);
    for file in fs::read_dir(scene.run_dir().join("journal")).unwrap() {
        fs::write(file.unwrap().path(), "").unwrap();
    }
    let text = read(&scene);
    assert!(text.contains("supervise_scrape_runs 1\n"), "{text}");
    let problem = text.lines().find(|l| l.starts_with("supervise_run_problem{")).unwrap();
    assert!(problem.ends_with(" 1"), "{problem}");
}

#[test]
fn only_a_file_is_replaced() {
    let scene = scene();
    let (link, there) = (scene.path("link.prom"), scene.path("there.prom"));
    fs::write(&there, "kept").unwrap();
    std::os::unix::fs::symlink(&there, &link).unwrap();
    let refused = scene.ask(&["metrics", "--textfile", link.to_str().unwrap()]);
    refused.expect(69).says("is no file");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&there).unwrap(), "kept");
}
