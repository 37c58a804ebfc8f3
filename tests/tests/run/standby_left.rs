//! Imports that are left to the start: what they did ahead cannot be taken back.

use super::SUPERVISE;
use super::standby::{Stage, TRAIN, environment};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Scene, wait_for};

/// In the place of verl. It changes the environment, imports two others and, once there is a reason, draws a number that a seed meant for the trainer.
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
ahead = [name for name in ("verl", "reader", "wave", "colorsys", "tabnanny") if name in sys.modules]
before = os.environ.get("FROM_PACK")
random.seed(7)
import verl, tabnanny
import json
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
rank = os.environ["RANK"]
with open(f"{sys.argv[1]}/left.{attempt}.{rank}", "w") as f:
    json.dump([ahead, before, verl.reader.SEEN, os.environ.get("FROM_PACK"), random.random()], f)
if rank == "0":
    # Only now: it is the one that notes.
    open(os.environ["REASON"], "w").close()
"#;

/// It is begun anew without the one import, and imports what that one would have, in the environment that it would have made.
#[test]
fn an_import_that_cannot_be_made_ahead_is_left_to_the_start_and_the_others_are_not() {
    let mut scene = Scene::new(SUPERVISE);
    let (python, installed) = environment(&scene);
    fs::create_dir(installed.join("verl")).unwrap();
    for (name, text) in [
        ("verl/__init__.py", PACK),
        ("verl/draws.py", DRAWS),
        ("reader.py", READER),
    ] {
        fs::write(installed.join(name), text).unwrap();
    }
    let reason = scene.path("reason");
    scene.env("REASON", reason.to_str().unwrap());
    let stage = Stage::of(scene, &python, &format!("{BEGIN}{TRAIN}"), &[]);
    stage.noted(1);
    wait_for("both have imported what is left", || {
        let waiting = stage.waiting();
        let anew = |pid: &i32| {
            let of = |name| {
                String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()).into_owned()
            };
            of("environ").contains("SUPERVISE_LEFT=verl")
                && of("maps").contains("/_ctypes.")
                && of("syscall").starts_with(&format!("{} ", libc::SYS_read))
        };
        waiting.len() == 2 && waiting.iter().all(anew)
    });
    stage.kill(1);
    stage.noted(2);
    assert_eq!(stage.ahead(2), json!("went"));
    let of = |attempt: u32, rank: u32| -> Vec<serde_json::Value> {
        let text = fs::read(stage.scene.path(&format!("out/left.{attempt}.{rank}"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    for rank in [0, 1] {
        let (cold, ahead) = (of(1, rank), of(2, rank));
        assert_eq!(cold[..2], [json!([]), json!(null)]);
        assert_eq!(
            ahead[..2],
            [json!(["reader", "wave", "colorsys", "tabnanny"]), json!(null)]
        );
        assert_eq!(cold[2..4], [json!("plain"), json!("plain")]);
        assert_eq!(cold[2..4], ahead[2..4]);
        // It draws at the start, and the trainer's seed is not that of what waited: the next is its second number.
        assert_eq!(ahead[4], json!(0.150_849_173_924_501_92));
    }
    stage.ends();
}

/// Another package may change what it imports: nothing that comes after it is made ahead.
#[test]
fn what_a_package_that_is_not_known_imports_is_left_to_it() {
    let mut scene = Scene::new(SUPERVISE);
    let (python, installed) = environment(&scene);
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
    let stage = Stage::of(
        scene,
        &python,
        &format!("{}{TRAIN}", BEGIN.replace("verl", "pack")),
        &[],
    );
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
    let text = fs::read(stage.scene.path("out/left.2.0")).unwrap();
    let ahead: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
    assert_eq!(ahead[0], json!([]));
    stage.ends();
}
