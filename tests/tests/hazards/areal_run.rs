//! Runs of a trainer in miniature that keeps its checkpoint as AReaL does, under the real program.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use supervise_tests::areal_set::{Shape, save};
use supervise_tests::harness::{Ended, Scene, Supervisor, names};

/// What a script begins with. `attempt` counts from 1. A script that waits for a copy lives until one was kept.
const BEGIN: &str = "\
import os, signal, subprocess, sys, time
files = os.path.join(os.getcwd(), 'files')
def note(name, text):
    with open(os.path.join(files, name), 'a') as file:
        file.write(f'{text}\\n')
note('launches', os.getpid())
attempt = len(open(os.path.join(files, 'launches')).readlines())
def say(logger, level, text):
    print(f'(AReaL) 20260101-00:00:00.000 {logger} {level}: {text}', flush=True)
def train(**more):
    return subprocess.run(['areal_trainer', *sys.argv[1:]], **more).returncode
def wait_for_a_copy():
    kept = os.path.join(files, 'supervise/me/exp/trial0/protected')
    while not os.path.isdir(kept) or not os.listdir(kept):
        time.sleep(0.05)
";

/// Writes a program.
pub(crate) fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A run of eight steps, a save at every second one.
pub(crate) struct Run {
    pub(crate) scene: Scene,
    yaml: Value,
    command: Vec<&'static str>,
}

impl Run {
    /// The user's script is this Python; it calls `train()`, and knows its `attempt`.
    pub(crate) fn new(script: &str) -> Self {
        let mut scene = Scene::new(super::SUPERVISE);
        scene.env("USER", "me").env("LOGNAME", "me");
        let files = scene.path("files");
        fs::create_dir(&files).unwrap();
        fs::write(scene.path("train.py"), format!("{BEGIN}{script}")).unwrap();
        let names = json!({ "experiment_name": "exp", "trial_name": "trial0", "fileroot": files });
        let mut recover = names.clone();
        recover["mode"] = json!("auto");
        recover["freq_steps"] = json!(2);
        let yaml = json!({
            "experiment_name": "exp", "trial_name": "trial0", "total_train_epochs": 1, "total_train_steps": 8,
            "cluster": { "fileroot": files, "n_nodes": 1, "n_gpus_per_node": 1 },
            "scheduler": { "type": "local" },
            "actor": { "experiment_name": "exp", "trial_name": "trial0", "backend": "fsdp:d1", "path": "-" },
            "train_dataset": { "path": "-", "type": "sft", "batch_size": 4 },
            "saver": names, "evaluator": names, "stats_logger": names,
            "recover": recover,
            "miniature": { "step_ms": 50, "until_kept": true },
            "supervisor": {
                "trainer": "areal", "protect": { "reserve": "0B" }, "grace": { "stop": "1s" },
                "backoff": { "initial": "10ms", "jitter": 0.0 }, "scan_interval": "100ms",
            },
        });
        Self {
            scene,
            yaml,
            command: vec!["python3", "train.py"],
        }
    }

    /// The same, where the script is a launcher of AReaL's older kind.
    pub(crate) fn launcher(module: &'static str, script: &str) -> Self {
        let mut run = Self::new("");
        let mut dir = run.scene.path("");
        let parts: Vec<&str> = module.split('.').collect();
        for part in &parts[..parts.len() - 1] {
            dir.push(part);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("__init__.py"), "").unwrap();
        }
        let name = format!("{}.py", parts[parts.len() - 1]);
        fs::write(dir.join(name), format!("{BEGIN}{script}")).unwrap();
        run.command = vec!["python3", "-m", module, "train.py"];
        run
    }

    /// Changes the YAML.
    pub(crate) fn set(mut self, section: &str, key: &str, value: Value) -> Self {
        self.yaml[section][key] = value;
        self
    }

    /// The last step is this one.
    pub(crate) fn until(mut self, step: u64) -> Self {
        self.yaml["total_train_steps"] = json!(step);
        self
    }

    /// Killed in the middle of step 6, once.
    pub(crate) fn killed_once(self) -> Self {
        self.set("miniature", "fault", json!({ "step": 6 }))
    }

    /// Where the trainer keeps its checkpoint.
    pub(crate) fn root(&self) -> PathBuf {
        self.scene.path("files/checkpoints/me/exp/trial0")
    }

    /// A path in the place where copies are kept.
    pub(crate) fn store(&self, below: &str) -> PathBuf {
        self.scene.path("files/supervise/me/exp/trial0").join(below)
    }

    /// A save of that step stands there, as another run left it.
    pub(crate) fn saved(&self, step: u64) {
        let shape = Shape {
            data_ranks: 1,
            ..Shape::default()
        };
        save(&self.root(), step, &shape).unwrap();
    }

    pub(crate) fn start(&self, more: &[&str]) -> Supervisor {
        let path = self.scene.path("areal.yaml");
        fs::write(&path, serde_yaml::to_string(&self.yaml).unwrap()).unwrap();
        let mut words = vec!["run", path.to_str().unwrap()];
        words.extend(more);
        words.push("--");
        words.extend(&self.command);
        self.scene.start_with(&words)
    }

    pub(crate) fn run(&self, more: &[&str]) -> Ended {
        self.start(more).wait_long()
    }

    /// What the scripts noted under that name.
    pub(crate) fn noted(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.scene.path("files").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Steps that were trained; each was trained on the weights of the one before.
    pub(crate) fn trained(&self) -> Vec<u64> {
        let step = |line: String| {
            let v: Value = serde_json::from_str(&line).unwrap();
            let number = |key: &str| v[key].as_u64().unwrap();
            assert_eq!(number("on") + 1, number("step"), "{line}");
            number("step")
        };
        self.noted("trained.jsonl").into_iter().map(step).collect()
    }

    /// How often the trainer was launched.
    pub(crate) fn launches(&self) -> usize {
        self.noted("launches").len()
    }

    /// Names of what was moved aside.
    pub(crate) fn aside(&self) -> Vec<String> {
        names(&self.store("aside/foreign"))
    }
}
