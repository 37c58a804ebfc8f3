//! The settings of the demo trainer: verl's keys out of a YAML file and overrides, and
//! its own `demo` block. Anything else in the file is somebody else's business.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::faults::Fault;
use super::overrides;

const DEFAULTS: &str = include_str!("defaults.yaml");

/// Parts of the state in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// A list of names.
    List(Vec<String>),
    /// One string where a list was meant. Python's `in` then looks for substrings.
    Text(String),
}

impl Contents {
    /// Returns true if the part called `name` is meant, as Python's `in` answers.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Contents::List(names) => names.iter().any(|n| n == name),
            Contents::Text(text) => text.contains(name),
        }
    }

    fn read(value: Option<&Value>) -> Option<Self> {
        match value? {
            Value::Array(items) => {
                let names = items.iter().filter_map(|i| i.as_str().map(str::to_owned));
                Some(Contents::List(names.collect()))
            }
            Value::String(text) if text != "${.save_contents}" => Some(Contents::Text(text.clone())),
            _ => None,
        }
    }
}

/// All that the demo trainer is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The checkpoint root, absolute.
    pub root: PathBuf,
    /// Save at multiples of this step and at the last; never where not positive.
    pub save_freq: i64,
    /// The last step, if set.
    pub total_training_steps: Option<u64>,
    /// The number of epochs, where no last step is set.
    pub total_epochs: u64,
    /// The number of ranks.
    pub world: usize,
    /// How many checkpoints of this process stay.
    pub keep: Option<usize>,
    /// A critic is trained and saved too.
    pub critic: bool,
    /// How many checkpoints of the critic stay.
    pub keep_critic: Option<usize>,
    /// `auto`, `disable` or `resume_path`.
    pub resume_mode: String,
    /// The checkpoint of `resume_path`.
    pub resume_from_path: Option<String>,
    /// True if to validate before the first step.
    pub val_before_train: bool,
    /// Contents saved.
    pub save_contents: Contents,
    /// Contents loaded.
    pub load_contents: Contents,
    /// Everything random follows from this.
    pub seed: u64,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// The number of samples of the task.
    pub samples: usize,
    /// Samples of one rank in one step.
    pub batch: usize,
    /// The least duration of one step in milliseconds.
    pub step_ms: u64,
    /// How long a save pauses after its first files, in milliseconds.
    pub save_ms: u64,
    /// True if each rank records when it lived.
    pub lives: bool,
    /// The step before which rank 0 waits for a file called `go` beside the root.
    pub hold_at: Option<u64>,
    /// Write `fsdp_config.json`.
    pub fsdp_config: bool,
    /// Added to each printed loss of an attempt that resumed.
    pub shift_resumed: u64,
    /// The step whose loss is printed as no number.
    pub nan_at: Option<u64>,
    /// True if a loss that is no number is printed as 1: weights that the batches do not reach are of no effect on it.
    pub hide_nan: bool,
    /// True if requests for a save are answered.
    pub answers_requests: bool,
    /// The faults.
    pub faults: Vec<Fault>,
    /// True if each fault happens in every attempt.
    pub repeat_fault: bool,
}

impl Settings {
    /// Reads a trainer YAML (its text) and the overrides after it.
    pub fn read(yaml: Option<&str>, overrides: &[String], cwd: &Path) -> Result<Self, String> {
        let mut tree: Value = serde_yaml::from_str(DEFAULTS).map_err(|e| e.to_string())?;
        if let Some(yaml) = yaml {
            merge(&mut tree, serde_yaml::from_str(yaml).map_err(|e| e.to_string())?);
        }
        for text in overrides {
            overrides::apply(&mut tree, text)?;
        }
        Reader { tree: &tree }.settings(cwd)
    }

    /// The last step of the run.
    pub fn total_steps(&self) -> u64 {
        self.total_training_steps
            .unwrap_or(self.total_epochs * self.steps_per_epoch())
    }

    /// The number of steps in one pass over the samples.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.samples / (self.batch * self.world).max(1)).max(1) as u64
    }

    /// A path beside the checkpoint root.
    pub fn beside_root(&self, name: &str) -> PathBuf {
        self.root.parent().unwrap_or(&self.root).join(name)
    }
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

struct Reader<'a> {
    tree: &'a Value,
}

impl Reader<'_> {
    fn settings(&self, cwd: &Path) -> Result<Settings, String> {
        let checkpoint = |key: &str| format!("actor_rollout_ref.actor.checkpoint.{key}");
        let all = || Contents::List(["model", "optimizer", "extra"].map(str::to_owned).to_vec());
        let save_contents = Contents::read(self.get(&checkpoint("save_contents")));
        let save_contents = save_contents.unwrap_or_else(all);
        let load = self.get(&checkpoint("load_contents"));
        let load_contents = match load {
            Some(Value::Null) => all(),
            other => Contents::read(other).unwrap_or_else(|| save_contents.clone()),
        };
        let world = self.int("trainer.n_gpus_per_node")? * self.int("trainer.nnodes")?;
        let hidden = self.get("demo.hidden").cloned().unwrap_or_default();
        let faults = self.get("demo.faults").cloned().unwrap_or_default();
        let keep = |role: &str| {
            let number = self.optional_int(&format!("trainer.max_{role}_ckpt_to_keep"));
            number.filter(|k| *k > 0).map(|k| k as usize)
        };
        let by_estimator = self.get("algorithm.adv_estimator").and_then(Value::as_str) == Some("gae");
        let critic = self.get("critic.enable").and_then(Value::as_bool);
        Ok(Settings {
            root: cwd.join(self.text("trainer.default_local_dir")?),
            save_freq: self.int("trainer.save_freq")?,
            total_training_steps: self.optional_int("trainer.total_training_steps"),
            total_epochs: self.int("trainer.total_epochs")?.unsigned_abs(),
            world: usize::try_from(world).map_err(|e| e.to_string())?,
            keep: keep("actor"),
            critic: critic.unwrap_or(by_estimator),
            keep_critic: keep("critic"),
            resume_mode: self.text("trainer.resume_mode")?,
            resume_from_path: self.text("trainer.resume_from_path").ok(),
            val_before_train: self.flag("trainer.val_before_train"),
            save_contents,
            load_contents,
            seed: self.int("demo.seed")?.unsigned_abs(),
            hidden: serde_json::from_value(hidden).map_err(|e| format!("demo.hidden: {e}"))?,
            samples: self.positive("demo.samples")?,
            batch: self.positive("demo.batch")?,
            step_ms: self.int("demo.step_ms")?.unsigned_abs(),
            save_ms: self.int("demo.save_ms")?.unsigned_abs(),
            lives: self.flag("demo.lives"),
            hold_at: self.optional_int("demo.hold_at"),
            fsdp_config: self.flag("demo.fsdp_config"),
            shift_resumed: self.optional_int("demo.shift_resumed").unwrap_or_default(),
            nan_at: self.optional_int("demo.nan_at"),
            hide_nan: self.flag("demo.hide_nan"),
            answers_requests: self.flag("demo.answers_requests"),
            faults: serde_json::from_value(faults).map_err(|e| format!("demo.faults: {e}"))?,
            repeat_fault: self.flag("demo.repeat_fault"),
        })
    }

    fn get(&self, key: &str) -> Option<&Value> {
        overrides::get(self.tree, key)
    }

    fn int(&self, key: &str) -> Result<i64, String> {
        let value = self.get(key).and_then(Value::as_i64);
        value.ok_or_else(|| format!("Value at '{key}' could not be converted to Integer"))
    }

    fn positive(&self, key: &str) -> Result<usize, String> {
        let value = usize::try_from(self.int(key)?).ok().filter(|n| *n > 0);
        value.ok_or_else(|| format!("'{key}' must be positive"))
    }

    fn optional_int(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn text(&self, key: &str) -> Result<String, String> {
        let text = self.get(key).and_then(Value::as_str);
        self.resolve(text.ok_or_else(|| format!("'{key}' is not a string"))?, 0)
    }

    /// Puts values in place of `${key}` and `${oc.env:NAME,default}`; `\${` stays `${`.
    fn resolve(&self, text: &str, depth: u8) -> Result<String, String> {
        if depth > 8 {
            return Err(format!("Recursive interpolation in '{text}'"));
        }
        let Some(start) = text.find("${") else {
            return Ok(text.to_owned());
        };
        let (before, rest) = (&text[..start], &text[start + 2..]);
        if let Some(before) = before.strip_suffix('\\') {
            return Ok(format!("{before}${{{}", self.resolve(rest, depth)?));
        }
        let (name, rest) = rest
            .split_once('}')
            .ok_or_else(|| format!("no closing brace in '{text}'"))?;
        let value = match name.strip_prefix("oc.env:") {
            Some(variable) => {
                let (variable, default) = match variable.split_once(',') {
                    Some((variable, default)) => (variable, Some(default.to_owned())),
                    None => (variable, None),
                };
                let value = std::env::var(variable).ok().or(default);
                value.ok_or_else(|| format!("Environment variable '{variable}' not found"))?
            }
            None => match self.get(name) {
                Some(Value::String(text)) => self.resolve(text, depth + 1)?,
                Some(value) => value.to_string(),
                None => return Err(format!("Interpolation key '{name}' not found")),
            },
        };
        Ok(format!("{before}{value}{}", self.resolve(rest, depth)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str, overrides: &[&str]) -> Result<Settings, String> {
        let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
        Settings::read(Some(yaml), &overrides, Path::new("/data"))
    }

    #[test]
    fn the_file_covers_the_defaults_and_overrides_cover_the_file() {
        let yaml =
            "trainer: {project_name: p, experiment_name: e, n_gpus_per_node: 4, save_freq: 2}\nsupervisor: {x: 1}";
        let settings = read(yaml, &["trainer.save_freq=3", "demo.hidden=[8]"]).unwrap();
        assert_eq!(settings.root, Path::new("/data/checkpoints/p/e"));
        assert_eq!((settings.world, settings.save_freq, settings.batch), (4, 3, 4));
        assert_eq!(settings.hidden, [8]);
        assert_eq!(settings.load_contents, settings.save_contents);
    }

    #[test]
    fn load_contents_follow_save_contents_and_a_string_half_works() {
        let key = "actor_rollout_ref.actor.checkpoint";
        let one = read("{}", &[&format!("{key}.save_contents=[model]")]).unwrap();
        assert!(one.load_contents.has("model") && !one.load_contents.has("optimizer"));
        let text = read("{}", &[&format!("{key}.load_contents=\"['model']\"")]).unwrap();
        assert!(text.load_contents.has("model") && !text.load_contents.has("extra"));
    }

    #[test]
    fn paths_may_hold_anything() {
        let path = "trainer.default_local_dir='/a b/it\\'s=\\${x},[1]'";
        assert_eq!(read("{}", &[path]).unwrap().root, Path::new("/a b/it's=${x},[1]"));
        assert!(read("trainer: {default_local_dir: '${nope}'}", &[]).is_err());
    }
}
