//! Somebody is told of the end of a run, by a command and by a webhook, and neither keeps it.

use super::scene;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use supervise_tests::harness::{Refusal, eventually};

#[test]
fn a_command_is_told_how_the_run_ended() {
    let scene = scene();
    let told = scene.path("told");
    let command = format!("sh -c 'cat >> {}'", told.display());
    let worker = scene.program("fake_worker");
    let on_event = format!("supervisor.on_event.command={command}");
    let words = ["run", "--set", &on_event, "--set", "supervisor.retries=0", "--"];
    let mut words = words.to_vec();
    words.extend([worker.to_str().unwrap(), "error", "7", "the last words"]);
    scene.ask(&words).expect(6);
    // The helper needs nobody to wait for it.
    let event: Value = eventually("the command is told", || {
        serde_json::from_str(fs::read_to_string(&told).ok()?.trim()).ok()
    });
    assert_eq!(event["event"], "gave_up", "{event}");
    assert_eq!(
        (&event["exit_code"], &event["attempt"], &event["version"]),
        (&json!(6), &json!(1), &json!(1)),
        "{event}"
    );
    let todo = event["todo"].as_array().unwrap();
    assert!(
        todo.iter().any(|l| l.as_str().unwrap().contains("supervise explain")),
        "{event}"
    );
}

#[test]
fn a_command_that_fails_is_told_of_and_fails_nothing() {
    let scene = scene();
    let on_event = "supervisor.on_event.command=sh -c 'echo the pager is down >&2; exit 1'";
    let worker = scene.program("fake_worker");
    let words = ["run", "--set", on_event, "--", worker.to_str().unwrap(), "exit", "0"];
    scene.ask(&words).expect(0);
    let tried = scene.ask(&["notify", "--test", "--set", on_event]);
    tried.expect(69).says("the pager is down");
}

#[test]
fn a_webhook_gets_a_message_and_its_address_is_shown_nowhere() {
    if std::process::Command::new("curl").arg("--version").output().is_err() {
        return Refusal::new("there is no curl").tell("a_webhook_gets_a_message_and_its_address_is_shown_nowhere");
    }
    let scene = scene();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("http://127.0.0.1:{port}/services/T0SECRET");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        while !whole(&got) {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&buffer[..n]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .unwrap();
        String::from_utf8(got).unwrap()
    });
    let webhook = format!("supervisor.on_event.webhook={address}");
    let shape = "supervisor.on_event.shape=slack";
    let shown = scene.ask(&["config", "show", "--set", &webhook]);
    assert!(!shown.expect(0).text.contains("T0SECRET"), "{}", shown.text);
    let tried = scene.ask(&["notify", "--test", "--set", &webhook, "--set", shape]);
    assert!(!tried.expect(0).text.contains("T0SECRET"), "{}", tried.text);
    let got = server.join().unwrap();
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /services/T0SECRET "), "{head}");
    let message: Value = serde_json::from_str(body).unwrap();
    assert!(
        message["text"].as_str().unwrap().contains("a test of on_event"),
        "{message}"
    );
}

/// A request with all of its body.
fn whole(got: &[u8]) -> bool {
    let text = String::from_utf8_lossy(got);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|l| {
        l.to_ascii_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse()
            .ok()
    });
    length.is_some_and(|n: usize| body.len() >= n)
}
