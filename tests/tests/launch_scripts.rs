//! Launch scripts: the trainer's own call decides how an attempt ended, whatever the script does around it.
//!
//! Real shells and processes. The trainer is a stand-in that copies genuine steps of Hugging Face's `Trainer`: the first time it saves
//! step 2 and then fails as the test wants, resumed from there it saves step 4 and ends well.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "launch_scripts/before.rs"]
mod before;
#[path = "launch_scripts/endings.rs"]
mod endings;
#[path = "launch_scripts/several.rs"]
mod several;
#[path = "launch_scripts/signals.rs"]
mod signals;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Ended, Scene};

/// `trl`. What `fault` names happens once for each output directory.
const TRAIN: &str = r#"#!/usr/bin/env python3
import os, shutil, signal, sys, time
with open(os.environ["CALLS"], "a") as f: f.write(" ".join(sys.argv[1:]) + "\n")
said = {}
words = [w for a in sys.argv[1:] for w in a.split("=", 1)]
for n, w in enumerate(words):
    if w.startswith("--") and n + 1 < len(words): said[w] = words[n + 1]
begins, out = said.get("--resume_from_checkpoint"), said["--output_dir"]
here = os.path.dirname(os.environ["CALLS"])
def save(step): shutil.copytree(os.environ["GENUINE"] + f"/checkpoint-{step}", out + f"/checkpoint-{step}")
fault = open(here + "/fault").read().split() if os.path.exists(here + "/fault") else []
seen = here + "/failed-" + os.path.basename(out)
now = fault[0] if fault and not os.path.exists(seen) else ""
if now: open(seen, "w").close()
if now == "early": time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)
if not (begins and begins.endswith("/checkpoint-2")): save(2)
while os.path.exists(here + "/hold"): time.sleep(0.02)
if now == "nccl":
    print("Traceback (most recent call last):\ntorch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, "
          "remote process exited or there was a network error", file=sys.stderr, flush=True)
    sys.exit(1)
if now == "kill": os.kill(os.getpid(), signal.SIGKILL)
if now == "code": sys.exit(int(fault[1]))
if now == "term":
    signal.signal(signal.SIGTERM, lambda *_: open(here + "/terms", "a").write("x"))
    open(here + "/ready", "w").close()
    while not os.path.exists(here + "/go"): time.sleep(0.02)
save(4)
"#;
/// The call, but for its output directory.
const CALL: &str = "trl sft --save_steps 2 --logging_steps 1 --max_steps 4 --output_dir";

struct Stage {
    scene: Scene,
}

impl Stage {
    fn new() -> Self {
        let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
        let (calls, bin) = (scene.path("calls"), scene.path("bin"));
        let genuine = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hf_trainer_w2");
        fs::create_dir(&bin).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let out = scene.path("out");
        scene
            .set_root(&out)
            .env("CALLS", calls.to_str().unwrap())
            .env("GENUINE", genuine.to_str().unwrap())
            .env("PATH", &path)
            .env("SUPERVISE_BACKOFF__INITIAL", "10ms")
            .env("SUPERVISE_SCAN_INTERVAL", "200ms");
        let stage = Self { scene };
        stage.write("bin/trl", TRAIN);
        stage
    }

    fn fault(self, fault: &str) -> Self {
        self.write("fault", fault);
        self
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scene.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The script, which works in the scene's own directory.
    fn script(&self, body: &str) -> String {
        let top = self.scene.path("");
        let body = body.replace("CALL", CALL);
        let path = self.write("run.sh", &format!("cd {}\n{body}\n", top.display()));
        path.to_str().unwrap().to_owned()
    }

    fn run(&self, shell: &str, body: &str) -> Ended {
        let script = self.script(body);
        self.scene.ask(&["run", "--", shell, &script])
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.scene.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_training_with_everything_in_its_code_is_not_started_to_learn_it() {
    let stage = Stage::new();
    let train = "import sys\nfrom transformers import Trainer\nopen('trained', 'w').close()\nTrainer().train()\n";
    stage.write("t.py", train);
    fs::create_dir(stage.scene.path("pkg")).unwrap();
    stage.write(
        "pkg/loop.py",
        "import torch\nopen('trained', 'w').close()\nloss.backward()\n",
    );
    let alone = "python3 -c 'import torch; open(\"trained\", \"w\").close(); loss.backward()'";
    for call in [
        "python3 t.py",
        "torchrun --nproc_per_node 2 t.py",
        "deepspeed --num_gpus 2 t.py",
        "python3 -m pkg.loop",
        alone,
    ] {
        let ended = stage.run(
            "bash",
            &format!("echo prepared >prepared\n{call} | cat\necho after >after"),
        );
        ended
            .expect(78)
            .says("which trains by what its code says")
            .says(&format!("supervise run -- {call}"));
        let there = |name: &str| stage.scene.path(name).exists();
        assert_eq!(
            (there("prepared"), there("trained"), there("after")),
            (true, false, false),
            "{call}"
        );
    }
}
