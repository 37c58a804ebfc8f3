//! Limits of a user: each is named, ends a run that cannot begin with 69, and costs no retry.

use super::{running, saved, scene};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use supervise_tests::harness::{Refusal, Scene, alive, eventually, send, wait_for};

/// A user that has no other process.
const USER: &str = "--reuid=64973";

/// `supervise run` as another user under a limit: root has none on processes. What it printed, and its exit code; `None`
/// where this cannot be done here.
fn limited(scene: &Scene, limit: &str) -> Option<(Option<i32>, String)> {
    let tools = ["/usr/bin/setpriv", "/usr/bin/prlimit", "/usr/bin/timeout"];
    if !nix::unistd::geteuid().is_root() || !tools.iter().all(|t| Path::new(t).exists()) {
        Refusal::new("it needs root, setpriv, prlimit and timeout").tell("a limit of another user");
        return None;
    }
    let config = scene.write_config();
    for place in ["", "home"] {
        fs::set_permissions(scene.path(place), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = scene.other(Path::new(tools[2]));
    command.args(["-s", "KILL", "80", tools[0], USER]);
    // The programs may stand where only root looks.
    command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
    command.args([tools[1], limit]);
    command.arg(scene.program("supervise")).arg("run").arg(config);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

#[track_caller]
fn ends_with_69(limit: &str, words: &str) {
    let mut scene = scene();
    scene.set("trainer.total_training_steps", json!(4));
    let Some((code, text)) = limited(&scene, limit) else {
        return;
    };
    assert_eq!(code, Some(69), "{limit}: {text}");
    assert!(text.contains(words), "{limit}: {text}");
    assert!(!text.contains("panic"), "{limit}: {text}");
    let charged = |line: &serde_json::Value| line.pointer("/body/what/charge/attempts").and_then(|n| n.as_u64());
    let charged: Vec<u64> = scene.journal().iter().filter_map(charged).collect();
    assert!(charged.iter().all(|n| *n == 0), "{limit}: {charged:?}");
    scene.assert_alone();
}

#[test]
fn a_limit_on_processes_is_named() {
    for limit in ["--nproc=2", "--nproc=3", "--nproc=4", "--nproc=6", "--nproc=9"] {
        ends_with_69(limit, "ulimit -u");
    }
}

#[test]
fn a_limit_on_file_sizes_is_named() {
    ends_with_69("--fsize=4096", "ulimit -f");
    ends_with_69("--fsize=0", "ulimit -f");
}

#[test]
fn a_limit_on_open_files_is_named() {
    // Far below what a run needs (21 here): how many are open at once depends on timing.
    for limit in ["--nofile=10", "--nofile=13", "--nofile=16"] {
        ends_with_69(limit, "ulimit -n");
    }
}

fn open_files(pid: i32, limit: &str) {
    let pid = pid.to_string();
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--nofile={limit}:")])
        .status();
    assert!(status.unwrap().success());
}

/// A limit that is met in the middle of a run is named while it is waited for, and not charged.
#[test]
fn a_limit_met_while_a_resume_point_is_chosen_is_named() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    let workers = running(&scene);
    saved(&scene, 4);
    let helper = eventually("the helper lives", || scene.io_workers("work").first().copied());
    open_files(run.pid(), "3");
    send(helper, 9);
    wait_for("it is gone", || !alive(helper));
    send(workers[0], 9);
    wait_for("the limit is named", || run.text().contains("ulimit -n"));
    wait_for("it waits", || run.text().contains("waiting"));
    wait_for("the journal has it", || {
        let mut decided = scene.journal().into_iter().filter(|l| l["kind"] == json!("decided"));
        decided.any(|l| l.to_string().contains("ulimit -n"))
    });
    open_files(run.pid(), "1024");
    scene.go();
    run.wait().expect(0);
    assert_eq!((scene.resumed(2), scene.attempts()), (Some(4), 2));
    scene.assert_alone();
}
