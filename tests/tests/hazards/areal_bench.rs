//! A configuration of AReaL's, what its own trainer left beside it, and what `supervise plan` says of both.

use crate::bench::fixtures;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use supervise_tests::harness::copy_tree;

const YAML: &str = "\
experiment_name: real
trial_name: t0
cluster: {fileroot: {root}, n_nodes: 1, n_gpus_per_node: 2}
total_train_epochs: 4
total_train_steps: 16
train_dataset: {path: p, type: sft, batch_size: 16}
actor:
  experiment_name: real
  trial_name: t0
  path: m
  backend: 'fsdp:d2'
  optimizer: {lr_scheduler_type: constant, warmup_steps_proportion: 0.0}
recover: {mode: auto, freq_steps: 2, experiment_name: real, trial_name: t0, fileroot: '${cluster.fileroot}'}
saver: {experiment_name: real, trial_name: t0, fileroot: '${cluster.fileroot}'}
evaluator: {experiment_name: real, trial_name: t0, fileroot: '${cluster.fileroot}'}
stats_logger: {experiment_name: real, trial_name: t0, fileroot: '${cluster.fileroot}'}
supervisor:
  gang: {launcher: gang, gpus: none}
";

/// A file root with a YAML beside it.
pub(crate) struct Areal {
    _keep: tempfile::TempDir,
    dir: PathBuf,
    yaml: String,
    file: &'static str,
    command: Vec<&'static str>,
    user: &'static str,
}

impl Areal {
    pub(crate) fn new() -> Self {
        let keep = tempfile::Builder::new().prefix("supervise-areal.").tempdir().unwrap();
        let dir = keep.path().canonicalize().unwrap();
        let yaml = YAML.replace("{root}", dir.to_str().unwrap());
        Self {
            _keep: keep,
            dir,
            yaml,
            file: "x.yaml",
            command: vec!["python3", "sft.py"],
            user: "trainer",
        }
    }

    /// With what areal's own trainer left after two steps, on two ranks.
    pub(crate) fn genuine() -> Self {
        let bench = Self::new();
        copy_tree(
            &fixtures().join("areal_sft_w2/checkpoints"),
            &bench.dir.join("checkpoints"),
        )
        .unwrap();
        bench
    }

    /// Other text in the YAML; what it replaces has to be there.
    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.yaml.contains(from), "{from:?} is not in the YAML");
        self.yaml = self.yaml.replace(from, to);
        self
    }

    /// With a critic beside the actor.
    pub(crate) fn with_critic(self) -> Self {
        let critic = "critic: {experiment_name: real, trial_name: t0, path: m, backend: 'fsdp:d2'}\n";
        self.with("recover: {", &format!("{critic}recover: {{"))
    }

    pub(crate) fn file(mut self, name: &'static str) -> Self {
        self.file = name;
        self
    }

    pub(crate) fn command(mut self, command: &[&'static str]) -> Self {
        self.command = command.to_vec();
        self
    }

    pub(crate) fn user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    /// A path in the trial.
    pub(crate) fn trial(&self, below: &str) -> PathBuf {
        self.dir.join("checkpoints/trainer/real/t0").join(below)
    }

    /// What `supervise checkpoints` lists.
    pub(crate) fn checkpoints(&self) -> Value {
        let root = self.trial("");
        let output = self
            .supervise(&["checkpoints", root.to_str().unwrap(), "--json"])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn supervise(&self, words: &[&str]) -> Command {
        let mut command = Command::new(super::SUPERVISE);
        command
            .args(words)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.join("home"))
            .env("LOGNAME", self.user);
        command
    }

    /// What `run` would do now.
    pub(crate) fn plan(&self) -> Plan {
        let yaml = self.dir.join(self.file);
        fs::write(&yaml, &self.yaml).unwrap();
        let output = self
            .supervise(&["plan", yaml.to_str().unwrap(), "--json", "--"])
            .args(&self.command)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        Plan {
            code: output.status.code().unwrap_or(-1),
            view: serde_json::from_str(&out).unwrap_or(Value::Null),
            said: out + &String::from_utf8_lossy(&output.stderr),
        }
    }
}

/// What `plan` said.
#[derive(Debug)]
pub(crate) struct Plan {
    code: i32,
    view: Value,
    said: String,
}

impl Plan {
    /// It would launch from the live set.
    #[track_caller]
    pub(crate) fn resumes(&self) -> &Self {
        assert_eq!(self.view["would"], "launch", "{}", self.said);
        let from = self.view["from"].to_string();
        assert!(from.contains("live."), "{from}: {}", self.said);
        self
    }

    /// It would launch from scratch.
    #[track_caller]
    pub(crate) fn begins_anew(&self) -> &Self {
        let would = (&self.view["would"], &self.view["from"]);
        assert_eq!(would, (&"launch".into(), &"fresh".into()), "{}", self.said);
        self
    }

    /// It would not launch.
    #[track_caller]
    pub(crate) fn does_not_launch(&self, words: &[&str]) -> &Self {
        assert_ne!(self.view["would"], "launch", "{}", self.said);
        self.says(words)
    }

    /// The configuration is refused.
    #[track_caller]
    pub(crate) fn refuses(&self, words: &[&str]) -> &Self {
        assert_eq!(self.code, 78, "{}", self.said);
        self.says(words)
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.said.contains(word), "{word:?} is missing in {}", self.said);
        }
        self
    }

    #[track_caller]
    pub(crate) fn is_silent_on(&self, word: &str) -> &Self {
        assert!(!self.said.contains(word), "{word:?} is in {}", self.said);
        self
    }
}
