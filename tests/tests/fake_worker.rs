//! The workers that do one thing do that thing.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn worker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake_worker"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    worker(arguments).output().unwrap()
}

#[test]
fn ends_are_as_asked_for() {
    assert_eq!(output(&["exit", "7"]).status.code(), Some(7));
    assert_eq!(output(&["sleep", "0.01"]).status.code(), Some(0));
    assert_eq!(output(&["segv"]).status.signal(), Some(libc::SIGSEGV));
    assert_eq!(output(&["nonsense"]).status.code(), Some(64));
    let error = output(&["error", "3", "one", "two"]);
    assert_eq!((error.status.code(), &error.stderr[..]), (Some(3), &b"one\ntwo\n"[..]));
}

#[test]
fn output_is_as_asked_for() {
    assert_eq!(output(&["print", "one", "two"]).stdout, b"one\ntwo\n");
    assert_eq!(output(&["spam", "100000"]).stdout.len(), 100_000);
}

#[test]
fn termination_is_ignored_and_a_kill_is_not() {
    let mut child = worker(&["ignore-term"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    kill(pid, Signal::SIGTERM).unwrap();
    let pending = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(child.try_wait().unwrap().is_none());
    assert!(pending.lines().any(|l| l == "ShdPnd:\t0000000000004000"), "{pending}");
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn closed_outputs_end_the_pipe_and_not_the_worker() {
    let mut child = worker(&["close-stdout-and-sleep"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_daemon_outlives_its_parents_in_a_session_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let heartbeat = folder.path().join("heartbeat");
    let mut command = worker(&["daemonize", heartbeat.to_str().unwrap()]);
    let status = command
        .env("SUPERVISE_ATTEMPT", "x")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let text = fs::read_to_string(&heartbeat).unwrap();
    let pid: i32 = text.lines().next().unwrap().parse().unwrap();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let session = nix::unistd::getsid(Some(Pid::from_raw(pid))).unwrap();
    fs::remove_file(&heartbeat).unwrap();
    assert!(environment.iter().all(|b| *b == 0));
    assert_ne!(session, nix::unistd::getsid(None).unwrap());
}

#[test]
fn an_idle_worker_stamps_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let stamps = folder.path().join("stamps");
    let mut child = Command::new(env!("CARGO_BIN_EXE_idle_worker"))
        .env("STAMPS", &stamps)
        .env("RANK", "3")
        .spawn()
        .unwrap();
    while fs::metadata(&stamps).map_or(0, |m| m.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(2));
    }
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(&stamps).unwrap();
    let words: Vec<&str> = text.trim().split(' ').collect();
    assert!(words[0].parse::<u64>().unwrap() > 0);
    assert_eq!(words[1..], [pid.to_string().as_str(), "3"]);
}
