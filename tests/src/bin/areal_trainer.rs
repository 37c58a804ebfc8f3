//! A trainer that keeps its only checkpoint as AReaL does: overwritten in place, resumed without a question, begun anew without
//! a word that stops anybody.
//!
//! `areal_trainer --config FILE [key=value…]` reads `recover`, `total_train_steps` and, beneath `miniature`, how it lives:
//! `step_ms`, `epoch`, `until_kept` (it goes on when its save was copied), and `fault`: `{step: 6, operations: 3}` ends it with
//! SIGKILL after so many operations of the save of that step, `{step: 6}` in the middle of the step; once, unless `always` is said. What it trains on is written to `trained.jsonl`
//! beside the YAML: the step, and from which step's weights. `own: true` makes it one of the newer builds, which write each save beside
//! the one before and let `LATEST` name it.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::print_stdout, reason = "a trainer speaks on its output")]

use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use supervise_tests::areal_set::{Shape, named, save, save_until, weights_of};

/// A copy that is not there after so long is not made.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let at = words.iter().position(|w| w == "--config").unwrap();
    let file = PathBuf::from(&words[at + 1]);
    let yaml: Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let get = |path: &str| path.split('.').fold(&yaml, |at, key| &at[key]).clone();
    assert!(
        yaml.get("supervisor").is_none(),
        "ConfigKeyError: Key 'supervisor' not in 'SFTConfig'"
    );
    let on = words.iter().any(|w| w == "++recover.mode=auto");
    let text = |path: &str| get(path).as_str().unwrap().to_owned();
    let user = ["LOGNAME", "USER"]
        .iter()
        .find_map(|n| std::env::var(n).ok())
        .unwrap_or("nobody".to_owned());
    let fileroot = PathBuf::from(text("recover.fileroot"));
    let root = fileroot
        .join("checkpoints")
        .join(&user)
        .join(text("recover.experiment_name"))
        .join(text("recover.trial_name"));
    let kept = fileroot
        .join("supervise")
        .join(user)
        .join(text("recover.experiment_name"))
        .join(text("recover.trial_name"))
        .join("protected");
    let shape = Shape {
        data_ranks: 1,
        epoch: get("miniature.epoch").as_u64().unwrap_or(1000),
        by: std::process::id(),
        own: get("miniature.own") == Value::Bool(true),
        ..Shape::default()
    };
    let trainer = Trainer {
        last: get("total_train_steps").as_u64().unwrap(),
        every: get("recover.freq_steps").as_u64().unwrap(),
        step: Duration::from_millis(get("miniature.step_ms").as_u64().unwrap_or(20)),
        fault: get("miniature.fault"),
        trained: fileroot.join("trained.jsonl"),
        kept: get("miniature.until_kept").as_bool().unwrap_or(false).then_some(kept),
        root,
        shape,
    };
    trainer.train(on);
}

struct Trainer {
    root: PathBuf,
    /// Place of the copies of its saves, if it waits for each.
    kept: Option<PathBuf>,
    shape: Shape,
    last: u64,
    every: u64,
    step: Duration,
    fault: Value,
    trained: PathBuf,
}

impl Trainer {
    fn train(&self, on: bool) {
        let mut weights = 0;
        let mut done = 0;
        if on {
            say(
                "Recover",
                "INFO",
                &format!("Loading recover info from {}", self.root.join("recover_info").display()),
            );
            match self.resume() {
                Some((step, loaded)) => (done, weights) = (step, loaded),
                None => say(
                    "Recover",
                    "WARNING",
                    "Resume info not found at it. This should not be a resumed experiment!",
                ),
            }
        }
        while done < self.last {
            std::thread::sleep(self.step);
            if self.fault["operations"].is_null() && self.fault_at(done + 1).is_some() {
                kill();
            }
            done += 1;
            self.note(done, weights);
            weights = done;
            if on && done.is_multiple_of(self.every) {
                self.may_save(done);
                match self.fault_at(done) {
                    Some(Some(operations)) => {
                        save_until(&self.root, done, &self.shape, operations).unwrap();
                        kill();
                    }
                    _ => save(&self.root, done, &self.shape).unwrap(),
                }
                self.wait_for_copy(done);
                say(
                    "Recover",
                    "INFO",
                    &format!("Saved recover checkpoint to {}", self.root.display()),
                );
            }
            say(
                "StatsLogger",
                "INFO",
                &format!("Epoch 1/1 Step {done}/{0} Train step {done}/{0} done.", self.last),
            );
        }
    }

    /// A real step takes minutes, and a copy less: here nothing else says that the copy comes first.
    fn wait_for_copy(&self, step: u64) {
        let Some(kept) = &self.kept else { return };
        let begin = format!("step_{step}.");
        let is_there = || {
            let names = fs::read_dir(kept).into_iter().flatten().flatten();
            names
                .map(|e| e.file_name())
                .any(|n| n.to_string_lossy().starts_with(&begin))
        };
        let patience = Instant::now() + PATIENCE;
        while !is_there() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The step, and the step whose weights were loaded: AReaL asks for nothing more than that the files can be read.
    fn resume(&self) -> Option<(u64, u64)> {
        let info = self.info();
        let text = |name: &str| fs::read_to_string(info.join(name)).ok();
        let step: Value = serde_json::from_str(&text("step_info.json")?).ok()?;
        for name in [
            "saver_info.json",
            "evaluator_info.json",
            "stats_logger_info.json",
            "checkpoint_info.json",
        ] {
            serde_json::from_str::<Value>(&text(name)?).ok()?;
        }
        fs::read(info.join("dataloader_info.pkl"))
            .ok()
            .filter(|b| b.last() == Some(&b'.'))?;
        let next = step["global_step"].as_u64()? + 1;
        let line = format!(
            "Recovering from StepInfo(epoch=0, epoch_step={next}, global_step={next}, steps_per_epoch={}).",
            self.shape.epoch
        );
        say("Recover", "INFO", &line);
        // What cannot be read ends AReaL, as a CheckpointException does.
        let weights = weights_of(&self.root).unwrap();
        Some((next, weights))
    }

    /// Place where it would be loaded from. A pointer that is there must be right.
    fn info(&self) -> PathBuf {
        if !self.shape.own || !self.root.join("LATEST").exists() {
            return self.root.join("recover_info");
        }
        let info = named(&self.root).map(|generation| generation.join("manifest"));
        match info.filter(|dir| dir.is_dir()) {
            Some(dir) => dir,
            None => panic!("CheckpointConsistencyError: the pointer names no generation that is there"),
        }
    }

    fn note(&self, step: u64, weights: u64) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.trained)
            .unwrap();
        writeln!(file, "{}", serde_json::json!({ "step": step, "on": weights })).unwrap();
    }

    /// A newer build saves no step that is not above the one its pointer names.
    fn may_save(&self, step: u64) {
        let name = named(&self.root).filter(|_| self.shape.own);
        let number = name
            .as_ref()
            .and_then(|n| n.to_str()?.rsplit("step").next()?.parse::<u64>().ok());
        assert!(
            number.is_none_or(|n| step > n + 1),
            "CheckpointConsistencyError: refusing to save step {step}"
        );
    }

    /// `Some(None)`: in the step; `Some(Some(n))`: after n operations of its save. Once, by a mark in the file root.
    fn fault_at(&self, step: u64) -> Option<Option<usize>> {
        if self.fault["step"].as_u64() != Some(step) {
            return None;
        }
        let mark = self.trained.with_file_name("fault-was-there");
        let saving = self.fault["operations"].as_u64().map(|n| n as usize);
        let first = Path::new(&mark).exists();
        if first && self.fault["always"] != Value::Bool(true) {
            return None;
        }
        // The step comes before its save: only what is about to happen is marked.
        Some(saving).filter(|_| {
            fs::write(&mark, "").unwrap();
            true
        })
    }
}

fn say(logger: &str, level: &str, text: &str) {
    println!("(AReaL) 20260101-00:00:00.000 {logger} {level}: {text}");
}

fn kill() {
    nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}
