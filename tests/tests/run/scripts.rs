//! Scripts that start Hugging Face's `Trainer`, or a trainer into whose call nothing can be put. What trains is a stand-in that copies
//! genuine steps.

use super::scene;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, names};

/// `trl`, or the script that `accelerate launch` starts: it saves step 2 and dies, and resumed from there it saves step 4.
const TRAIN: &str = r#"#!/usr/bin/env python3
import os, shutil, sys
with open(os.environ["CALLS"], "a") as f: f.write(" ".join(sys.argv[1:]) + "\n")
said = {}
words = [w for a in sys.argv[1:] for w in a.split("=", 1)]
for n, w in enumerate(words):
    if w.startswith("--") and n + 1 < len(words): said[w] = words[n + 1]
begins = said.get("--resume_from_checkpoint")
step = 4 if begins else 2
shutil.copytree(os.environ["GENUINE"] + f"/checkpoint-{step}", said["--output_dir"] + f"/checkpoint-{step}")
sys.exit(0 if begins and begins.endswith("/checkpoint-2") else 1)
"#;
const FLAGS: &str = "--output_dir out --save_steps 2 --logging_steps 1 --max_steps 4";

struct Stage {
    scene: Scene,
    calls: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let mut scene = scene();
        let (calls, bin) = (scene.path("calls"), scene.path("bin"));
        let genuine = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hf_trainer_w2");
        fs::create_dir(&bin).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        scene
            .env("CALLS", calls.to_str().unwrap())
            .env("GENUINE", genuine.to_str().unwrap())
            .env("PATH", &path)
            .env("SUPERVISE_BACKOFF__INITIAL", "10ms")
            .env("SUPERVISE_SCAN_INTERVAL", "200ms");
        let stage = Self { scene, calls };
        stage.write("bin/trl", TRAIN);
        stage.write("sft.py", TRAIN);
        stage.write("bin/accelerate", "#!/bin/sh\nshift\nexec python3 \"$@\"\n");
        stage
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scene.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.calls).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_script_of_hugging_faces_trainer_is_learnt_and_resumed_by_its_call() {
    for (call, shown) in [
        ("trl sft", "sft "),
        ("accelerate launch sft.py --resume_from_checkpoint True", ""),
    ] {
        let stage = Stage::new();
        let top = stage.scene.path("");
        let script = stage.write(
            "run.sh",
            &format!(
                "#!/bin/bash\ncd {}\necho prepares\n{call} {FLAGS} | cat\nexit ${{PIPESTATUS[0]}}\n",
                top.display()
            ),
        );
        let ended = stage.scene.ask(&["run", "--", "bash", script.to_str().unwrap()]);
        ended
            .expect(0)
            .says(&format!("the script starts: {call}"))
            .says("newest proven step: 4 of 4; 2 attempts");
        let out = stage.scene.path("out");
        let ours = format!("--output_dir={}", out.display());
        let theirs = "--save_steps 2 --logging_steps 1 --max_steps 4";
        let resumed = format!("--resume_from_checkpoint={}/checkpoint-2", out.display());
        assert_eq!(
            stage.calls(),
            [
                format!("{shown}{theirs} {ours}"),
                format!("{shown}{theirs} {resumed} {ours}")
            ]
        );
        assert_eq!(names(&out), [".supervise", "checkpoint-2", "checkpoint-4"]);
        stage.scene.assert_alone();
    }
}

#[test]
fn another_training_than_was_learnt_is_not_started() {
    let stage = Stage::new();
    let text = format!(
        "#!/bin/bash\ncd {}\nN=$(cat count 2>/dev/null || echo 2); echo 3 > count\ntrl sft {FLAGS} --save_steps $N\n",
        stage.scene.path("").display()
    );
    let script = stage.write("run.sh", &text);
    let ended = stage.scene.ask(&["run", "--", "bash", script.to_str().unwrap()]);
    ended.expect(78).says("save_steps was `2`, it is `3` now");
    assert_eq!(stage.calls(), [""; 0]);
}

#[test]
fn a_script_of_a_trainer_that_cannot_be_told_through_it_is_ended_with_its_call() {
    let stage = Stage::new();
    let script = stage.write(
        "run.sh",
        "#!/bin/bash\npython3 -m areal.launcher.local gsm8k.py --config x.yaml\n",
    );
    let ended = stage.scene.ask(&["run", "--", "bash", script.to_str().unwrap()]);
    ended
        .expect(78)
        .says("starts AReaL")
        .says("supervise run … -- python3 -m areal.launcher.local gsm8k.py --config x.yaml")
        .says("supervisor.trainer=plain");
}

#[test]
fn where_no_trainer_is_seen_all_that_are_known_are_named() {
    let stage = Stage::new();
    let script = stage.write("run.sh", "#!/bin/bash\npython3 -c pass\n");
    let command = ["--", "bash", script.to_str().unwrap()];
    let known = "verl, AReaL, Hugging Face's Trainer";
    let plain = "--set supervisor.trainer=plain";
    let ended = stage.scene.ask(&[&["run"], command.as_slice()].concat());
    ended.expect(78).says(known).says(plain);
    // What is said to be one, with its root, is not run to learn it.
    let told = ["plan", "--set", "supervisor.trainer=hf", "--set", "supervisor.root=out"];
    stage.scene.ask(&[&told, command.as_slice()].concat()).expect(0);
    stage
        .scene
        .ask(&[&["plan"], command.as_slice()].concat())
        .expect(78)
        .says(plain);
}
