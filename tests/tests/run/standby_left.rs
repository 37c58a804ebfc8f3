//! Imports that are left to the start: what they did ahead cannot be taken back.

use super::SUPERVISE;
use super::standby::{Stage, TRAIN, environment, lay_ours};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use supervise_tests::harness::{Scene, wait_for};

/// It changes the environment, imports two others and, once there is a reason, draws a number that a seed meant for the trainer.
const PACK: &str = r#"
import os
os.environ["FROM_PACK"] = "plain"
import reader
from . import draws
import colorsys
"#;
const DRAWS: &str = r#"
import os, random
if os.path.exists(os.environ["REASON"]):
    random.random()
"#;
const READER: &str = r#"
import os, wave
SEEN = os.environ.get("FROM_PACK")
"#;
const BEGIN: &str = r#"
import os, random, sys
ahead = [name for name in ("pack", "reader", "wave", "colorsys", "tabnanny") if name in sys.modules]
before = os.environ.get("FROM_PACK")
random.seed(7)
import pack, tabnanny
import json
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
rank = os.environ["RANK"]
with open(f"{sys.argv[1]}/left.{attempt}.{rank}", "w") as f:
    json.dump([ahead, before, pack.reader.SEEN, os.environ.get("FROM_PACK"), random.random()], f)
if rank == "0":
    # Only now: it is the one that notes.
    open(os.environ["REASON"], "w").close()
"#;

/// An interpreter for which the package is installed.
fn with_package(scene: &mut Scene) -> String {
    let (python, installed) = environment(scene);
    fs::create_dir(installed.join("pack")).unwrap();
    for (name, text) in [
        ("pack/__init__.py", PACK),
        ("pack/draws.py", DRAWS),
        ("reader.py", READER),
    ] {
        fs::write(installed.join(name), text).unwrap();
    }
    let reason = scene.path("reason");
    scene.env("REASON", reason.to_str().unwrap());
    python
}

/// Notes of a first rank.
fn noted(scene: &Scene, attempt: u32) -> Vec<Value> {
    let text = fs::read(scene.path(&format!("out/left.{attempt}.0"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// It is begun anew without the one import, and imports what that one would have, in the environment that it would have made.
#[test]
fn an_import_that_cannot_be_made_ahead_is_left_to_the_start_and_the_others_are_not() {
    let mut scene = Scene::new(SUPERVISE);
    let python = with_package(&mut scene);
    lay_ours(&scene);
    fs::create_dir(scene.path("out")).unwrap();
    fs::write(scene.path("notes"), "").unwrap();
    fs::write(scene.path("train.py"), BEGIN).unwrap();
    let interpreter = |restarts: &str| {
        let mut command = Command::new(&python);
        command.args([scene.path("train.py"), scene.path("out")]);
        command
            .env("PYTHONPATH", scene.path("ours"))
            .env("REASON", scene.path("reason"));
        command.env("RANK", "0").env("TORCHELASTIC_RESTART_COUNT", restarts);
        command
    };
    let cold = interpreter("0").env("SUPERVISE_IMPORTS", scene.path("notes")).status();
    assert!(cold.unwrap().success());
    let (mut channel, theirs) = UnixStream::pair().unwrap();
    let mut ahead = interpreter("1");
    ahead.env("SUPERVISE_AWAITED", "run/1/2").stdin(OwnedFd::from(theirs));
    let mut ahead = ahead.spawn().unwrap();
    let mut lines = BufReader::new(channel.try_clone().unwrap()).lines().map(Result::unwrap);
    let task = json!({"imports": scene.path("notes"), "pauses": 0, "memory": 1_u64 << 40, "plain": ["pack"]});
    writeln!(channel, "{task}").unwrap();
    assert!(lines.any(|line| line.contains("ready")));
    let started = String::from_utf8(fs::read(format!("/proc/{}/environ", ahead.id())).unwrap()).unwrap();
    assert!(started.contains("SUPERVISE_LEFT=pack\0"));
    let argv = json!([python, scene.path("train.py"), scene.path("out")]);
    let order = json!({"argv": argv, "cwd": std::env::current_dir().unwrap()});
    writeln!(channel, "{order}").unwrap();
    assert!(lines.any(|line| line.contains("goes")));
    writeln!(channel, "{}", json!({"run": true})).unwrap();
    assert!(ahead.wait().unwrap().success());

    let (cold, ahead) = (noted(&scene, 1), noted(&scene, 2));
    assert_eq!(cold[..2], [json!([]), json!(null)]);
    assert_eq!(
        ahead[..2],
        [json!(["reader", "wave", "colorsys", "tabnanny"]), json!(null)]
    );
    assert_eq!(cold[2..4], [json!("plain"), json!("plain")]);
    assert_eq!(cold[2..4], ahead[2..4]);
    // The package draws at the start, from the trainer's seed: the trainer's own is the second number of it.
    assert_eq!(cold[4], json!(0.323_832_764_833_162_37));
    assert_eq!(ahead[4], json!(0.150_849_173_924_501_92));
}

/// Another package may change what it imports: nothing that comes after it is made ahead.
#[test]
fn what_a_package_that_is_not_known_imports_is_left_to_it() {
    let mut scene = Scene::new(SUPERVISE);
    let python = with_package(&mut scene);
    let stage = Stage::of(scene, &python, &format!("{BEGIN}{TRAIN}"), &[]);
    stage.noted(1);
    wait_for("both wait", || {
        let waiting = stage.waiting();
        let anew = |pid: &i32| {
            let of = |name| {
                String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()).into_owned()
            };
            of("environ").contains("SUPERVISE_LEFT=pack") && of("syscall").starts_with(&format!("{} ", libc::SYS_read))
        };
        waiting.len() == 2 && waiting.iter().all(anew)
    });
    stage.kill(1);
    stage.noted(2);
    assert_eq!(stage.ahead(2), json!("went"));
    assert_eq!(noted(&stage.scene, 2)[0], json!([]));
    stage.ends();
}
