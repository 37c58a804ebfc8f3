//! A service manager that started `supervise` hears of it; the workers do not speak in its name.

use super::{running, saved, scene};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use supervise_tests::harness::{Scene, wait_for};

/// Everything received so far, line by line.
fn heard(socket: &UnixDatagram, lines: &mut Vec<String>) {
    let mut buffer = [0; 4096];
    loop {
        match socket.recv(&mut buffer) {
            Ok(n) => lines.extend(String::from_utf8_lossy(&buffer[..n]).lines().map(str::to_owned)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn it_says_when_the_workers_run_how_far_they_are_and_that_it_ends() {
    let mut scene = scene();
    let at = scene.path("notify");
    let socket = UnixDatagram::bind(&at).unwrap();
    socket.set_nonblocking(true).unwrap();
    scene
        .env("NOTIFY_SOCKET", at.to_str().unwrap())
        .env("WATCHDOG_USEC", "600000")
        .set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    let mut lines = Vec::new();
    wait_for("it is ready, and says time and again that it lives", || {
        heard(&socket, &mut lines);
        let alive = lines.iter().filter(|l| *l == "WATCHDOG=1").count();
        let told = |text: &str| lines.iter().any(|l| l.starts_with("STATUS=") && l.contains(text));
        lines.iter().any(|l| l == "READY=1") && alive > 3 && told("running, attempt 1, step 4")
    });
    assert!(!lines.iter().any(|l| l == "STOPPING=1"), "{lines:?}");
    for worker in running(&scene) {
        let environ = fs::read(format!("/proc/{worker}/environ")).unwrap();
        let environ = String::from_utf8_lossy(&environ);
        assert!(
            !environ.contains("NOTIFY_SOCKET") && !environ.contains("WATCHDOG"),
            "{environ}"
        );
    }
    run.signal(libc::SIGTERM);
    wait_for("it says that it ends", || {
        heard(&socket, &mut lines);
        lines.iter().any(|l| l == "STOPPING=1")
    });
    run.wait().expect(143);
    // Nobody listens any more, and that changes nothing.
    drop(socket);
    fs::remove_file(&at).unwrap();
    scene.go();
    scene.run(&[]).expect(0);
    scene.assert_alone();
}

#[test]
fn a_run_that_is_finished_is_ready_as_well() {
    let mut scene = scene();
    scene.run(&[]).expect(0);
    let name = format!("supervise-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    scene.env("NOTIFY_SOCKET", &format!("@{name}"));
    scene.run(&[]).expect(0);
    let mut lines = Vec::new();
    heard(&socket, &mut lines);
    assert!(lines.iter().any(|l| l == "READY=1"), "{lines:?}");
    scene.assert_alone();
}

/// Of the example for Kubernetes: a command of its container, for this scene's checkpoint root.
fn in_the_example(scene: &Scene, pointer: &str) -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kubernetes/job.yaml");
    let job: Value = serde_yaml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let container = job.pointer("/spec/template/spec/containers/0").unwrap();
    let words = container.pointer(pointer).unwrap().as_array().unwrap();
    let words = words.iter().map(|w| w.as_str().unwrap());
    words
        .map(|w| match w {
            "/ckpt/ppo" => scene.root().to_str().unwrap().to_owned(),
            "/config/ppo.yaml" => scene.write_config().to_str().unwrap().to_owned(),
            other => other.to_owned(),
        })
        .collect()
}

#[test]
fn a_probe_tells_a_supervisor_that_answers_from_one_that_does_not() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let command = in_the_example(&scene, "/command");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    assert_eq!(command[..2], ["supervise", "run"]);
    let probes = ["/livenessProbe/exec/command", "/startupProbe/exec/command"].map(|p| in_the_example(&scene, p));
    let probe = |code: i32, says: &str| {
        for words in &probes {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(words[0], "supervise");
            scene.ask(&words[1..]).expect(code).says(says);
        }
    };
    // Nothing is known of it yet.
    probe(64, "no run named");
    let run = scene.start_with(&command[1..]);
    saved(&scene, 4);
    probe(0, "");
    run.signal(libc::SIGSTOP);
    probe(69, "does not answer");
    run.signal(libc::SIGCONT);
    probe(0, "");
    run.kill();
    probe(69, "no supervisor lives here");
    scene.ask(&["stop", scene.root().to_str().unwrap(), "--now"]).expect(0);
    scene.assert_alone();
}
