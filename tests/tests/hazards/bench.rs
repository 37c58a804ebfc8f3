//! A configuration of verl's, genuine checkpoints beside it, and what `supervise` says of them.

use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::{Scene, copy_tree, names};

/// A folder with a trainer's YAML and a checkpoint root.
pub(crate) struct Bench {
    _keep: tempfile::TempDir,
    dir: PathBuf,
    yaml: Value,
}

impl Bench {
    fn new(yaml: Value) -> Self {
        let keep = tempfile::Builder::new().prefix("supervise-hazards.").tempdir().unwrap();
        let dir = keep.path().canonicalize().unwrap();
        let mut bench = Bench { _keep: keep, dir, yaml };
        let root = bench.root();
        bench
            .set("trainer.default_local_dir", json!(root))
            .set("trainer.save_freq", json!(1))
            .set("trainer.n_gpus_per_node", json!(2))
            .set("trainer.total_training_steps", json!(10))
            .set("supervisor.trainer", json!("verl"))
            .set("supervisor.trainer_version", json!("0.9.1"))
            .set("supervisor.command", json!(["/bin/true", "{overrides}"]))
            .set("supervisor.backoff", json!({"initial": "10ms", "max": "20ms"}))
            .set("supervisor.scan_interval", json!("50ms"))
            .set("supervisor.gang.gpus", json!("none"));
        bench
    }

    /// PPO without a critic, FSDP on two ranks.
    pub(crate) fn ppo() -> Self {
        Self::new(
            json!({"algorithm": {"adv_estimator": "grpo"}, "actor_rollout_ref": {"actor": {"strategy": "fsdp2"}}}),
        )
    }

    /// The same with Megatron, as verl's defaults have it: two tensor parallel ranks, weights through the bridge.
    pub(crate) fn megatron() -> Self {
        let mut bench = Self::new(json!({"model_engine": "megatron", "algorithm": {"adv_estimator": "grpo"}}));
        bench.set("actor_rollout_ref.actor.megatron.tensor_model_parallel_size", json!(2));
        bench
    }

    /// The same with Megatron's own shards for the weights.
    pub(crate) fn megatron_shards() -> Self {
        let mut bench = Self::megatron();
        bench.set("actor_rollout_ref.actor.megatron.use_dist_checkpointing", json!(true));
        bench
    }

    /// The SFT trainer, FSDP2 on two ranks that it is started with.
    pub(crate) fn sft() -> Self {
        let mut bench = Self::new(json!({"data": {"train_files": "x"}, "engine": {"strategy": "fsdp2"}}));
        bench.set(
            "supervisor.gang",
            json!({"launcher": "gang", "workers": 2, "gpus": "none"}),
        );
        bench
    }

    /// Changes the YAML.
    pub(crate) fn set(&mut self, key: &str, value: Value) -> &mut Self {
        let mut here = &mut self.yaml;
        for name in key.split('.') {
            if !here.is_object() {
                *here = json!({});
            }
            here = here.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
        }
        *here = value;
        self
    }

    /// Changes a key of the actor.
    pub(crate) fn actor(&mut self, key: &str, value: Value) -> &mut Self {
        self.set(&format!("actor_rollout_ref.actor.{key}"), value)
    }

    /// A trainer that is this shell script; it is given the overrides as its arguments.
    pub(crate) fn script(&mut self, text: &str) -> &mut Self {
        fs::write(self.path("trainer.sh"), text).unwrap();
        let script = self.path("trainer.sh");
        self.set("supervisor.command", json!(["/bin/sh", script, "{overrides}"]))
    }

    /// A program of that name beside the YAML, written in shell; its path.
    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The genuine steps of a fixture, as they are.
    pub(crate) fn with(self, fixture: &str) -> Self {
        copy_tree(&fixtures().join(fixture), &self.root()).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("checkpoints")
    }

    /// A path in the directory of a step.
    pub(crate) fn step(&self, step: u64, below: &str) -> PathBuf {
        self.root().join(format!("global_step_{step}")).join(below)
    }

    pub(crate) fn tracker(&self) -> PathBuf {
        self.root().join("latest_checkpointed_iteration.txt")
    }

    /// Removes what stands at a path of a step.
    pub(crate) fn lose(&self, step: u64, below: &str) -> &Self {
        let path = self.step(step, below);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        self
    }

    /// Cuts a file of a step to half its length.
    pub(crate) fn cut(&self, step: u64, below: &str) -> &Self {
        let path = self.step(step, below);
        let length = fs::metadata(&path).unwrap().len();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(length / 2)
            .unwrap();
        self
    }

    /// Replaces text in a file of a step; it has to be there.
    pub(crate) fn edit(&self, step: u64, below: &str, from: &str, to: &str) -> &Self {
        let path = self.step(step, below);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from:?} is not in {text}");
        fs::write(path, text.replace(from, to)).unwrap();
        self
    }

    /// Runs `supervise` here.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(super::SUPERVISE);
        command
            .args(arguments)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .stdin(Stdio::null());
        command
    }

    fn config(&self) -> String {
        let path = self.path("run.yaml");
        fs::write(&path, serde_yaml::to_string(&self.yaml).unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// What `run` would do now.
    pub(crate) fn plan(&self) -> Plan {
        let said = self.ask(&["plan", &self.config(), "--json"]);
        let view = serde_json::from_str(&said.out).unwrap_or(Value::Null);
        Plan { said, view }
    }

    /// `supervise run`, to its end.
    pub(crate) fn run(&self, more: &[&str]) -> Said {
        let config = self.config();
        let mut arguments = vec!["run", &config];
        arguments.extend(more);
        self.ask(&arguments)
    }

    /// `supervise verify` of a path below the root.
    pub(crate) fn verify(&self, below: &str) -> Said {
        let path = self.root().join(below);
        self.ask(&["verify", path.to_str().unwrap(), "-v", "--depth", "full"])
    }

    /// How many attempts were launched.
    pub(crate) fn attempts(&self) -> usize {
        names(&self.root().join(".supervise/attempts")).len()
    }

    /// What the run's last attempt ended with: class and action.
    pub(crate) fn diagnosis(&self) -> (String, String) {
        let said = self.ask(&["explain", &self.config(), "--json"]);
        let view: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:#?}"));
        let last = view["attempts"].as_array().unwrap().last().unwrap()["diagnosis"].clone();
        let word = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
        (word("class"), word("action"))
    }
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It ended with this code and said all of these.
    #[track_caller]
    pub(crate) fn tells(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(
                self.out.contains(word) || self.err.contains(word),
                "{word:?} is missing in {self:#?}"
            );
        }
        self
    }
}

/// What `plan` said, as JSON.
#[derive(Debug)]
pub(crate) struct Plan {
    said: Said,
    view: Value,
}

impl Plan {
    /// It would start from this step.
    #[track_caller]
    pub(crate) fn starts_at(&self, step: u64) -> &Self {
        assert_eq!(self.view["would"], "launch", "{self:#?}");
        assert_eq!(self.view["from"]["step"]["step"], json!(step), "{self:#?}");
        self.passes("trainer.resume_mode=resume_path")
    }

    /// It would start from scratch, and say so to verl.
    #[track_caller]
    pub(crate) fn starts_afresh(&self) -> &Self {
        assert_eq!(
            (&self.view["would"], &self.view["from"]),
            (&json!("launch"), &json!("fresh")),
            "{self:#?}"
        );
        self.passes("trainer.resume_mode=disable")
    }

    /// It refuses the configuration, or the steps, with this code and these words.
    #[track_caller]
    pub(crate) fn refuses(&self, code: i32, words: &[&str]) -> &Self {
        self.said.tells(code, words);
        assert!(!self.said.err.contains("panicked"), "{self:#?}");
        self
    }

    /// This override is given to verl.
    #[track_caller]
    pub(crate) fn passes(&self, text: &str) -> &Self {
        assert!(
            self.overrides().iter().any(|o| o == text),
            "{text} is missing in {self:#?}"
        );
        self
    }

    /// No override of this key is given to verl.
    #[track_caller]
    pub(crate) fn leaves(&self, key: &str) -> &Self {
        assert!(
            !self.overrides().iter().any(|o| o.contains(key)),
            "{key} is overridden in {self:#?}"
        );
        self
    }

    fn overrides(&self) -> Vec<String> {
        let list = self.view["overrides"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// This is among the findings.
    #[track_caller]
    pub(crate) fn finds(&self, code: &str) -> &Self {
        assert!(self.codes().iter().any(|c| c == code), "{code} is missing in {self:#?}");
        self
    }

    /// This is not among the findings.
    #[track_caller]
    pub(crate) fn is_silent_on(&self, code: &str) -> &Self {
        assert!(!self.view.is_null(), "{self:#?}");
        assert!(!self.codes().iter().any(|c| c == code), "{code} is in {self:#?}");
        self
    }

    fn codes(&self) -> Vec<String> {
        let list = self.view["findings"].as_array().cloned().unwrap_or_default();
        list.iter()
            .filter_map(|f| f["code"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// These words stand in a reason, a finding, a note or an edit.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        assert!(self.said.out.contains(words), "{words:?} is missing in {self:#?}");
        self
    }

    /// Exactly this would be lost by the resume.
    #[track_caller]
    pub(crate) fn loses(&self, kinds: &[&str]) -> &Self {
        assert_eq!(self.view["lost"], json!(kinds), "{self:#?}");
        self
    }

    /// This is told as never restored.
    #[track_caller]
    pub(crate) fn never_restores(&self, kind: &str) -> &Self {
        let list = self.view["not_restored"].as_array().cloned().unwrap_or_default();
        assert!(list.contains(&json!(kind)), "{kind} is missing in {self:#?}");
        self
    }

    /// This variable would be set.
    #[track_caller]
    pub(crate) fn exports(&self, name: &str, end: &str) -> &Self {
        let list = self.view["env"].as_array().cloned().unwrap_or_default();
        let found = list
            .iter()
            .any(|e| e[0] == name && e[1].as_str().is_some_and(|v| v.ends_with(end)));
        assert!(found, "{name}=…{end} is missing in {self:#?}");
        self
    }

    /// This step would be moved aside first.
    #[track_caller]
    pub(crate) fn moves_aside(&self, step: u64) -> &Self {
        let name = json!(format!("global_step_{step}"));
        let list = self.view["edits"].as_array().cloned().unwrap_or_default();
        assert!(
            list.iter().any(|e| e["move_aside"]["from"] == name),
            "{name} stays in {self:#?}"
        );
        self
    }

    /// Nothing would be moved aside.
    #[track_caller]
    pub(crate) fn moves_nothing(&self) -> &Self {
        assert!(
            !self.view.is_null() && !self.view["edits"].to_string().contains("move_aside"),
            "{self:#?}"
        );
        self
    }
}

/// The folder of genuine checkpoints and logs.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// A trainer in miniature that saves as verl's PPO trainer does: two ranks, twelve steps, a save at every second one.
pub(crate) fn scene() -> Scene {
    Scene::new(super::SUPERVISE)
}
