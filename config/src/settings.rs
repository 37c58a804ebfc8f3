//! The supervisor's own settings.
//!
//! [`Settings::load`] lays the sources over each other with figment, lowest first: the defaults compiled in from `defaults.yaml`, files,
//! the `supervisor:` block of the trainer's YAML, `SUPERVISE_…` variables, flags. Each source is checked against the schema before it is
//! layered, so that a wrong value is reported with its file and line even where a later source hides it. Every value remembers its
//! origin; [`Settings::explain`] lists them.
//!
//! Adding a setting: a row in [`schema`], a field here, a commented default in `defaults.yaml`. A test keeps the three together.

mod layers;
mod redact;
mod schema;
mod units;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use figment::Figment;
use serde::{Deserialize, Deserializer};

use crate::error::{ConfigError, ErrorKind};
use crate::tree::Node;
use layers::Layer;

pub use redact::{redact, redact_text, redact_word, redact_words};
pub use schema::edit_distance;
pub use schema::{RESERVED_VARIABLES, is_known, keys};
pub use units::{parse_bytes, parse_duration};
pub use words::split_words;

/// The commented defaults.
pub const DEFAULTS: &str = include_str!("../defaults.yaml");

/// The trainer framework is found out from the YAML and the command.
pub const AUTO: &str = "auto";

/// Where settings come from, lowest first within each field; the fields in this order.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Settings files: name and text, lowest first.
    pub files: Vec<(String, String)>,
    /// The `supervisor:` block of the trainer's YAML.
    pub block: Option<Node>,
    /// Environment variables; only `SUPERVISE_…` is looked at.
    pub env: Vec<(String, String)>,
    /// Flags: dotted key and value.
    pub flags: Vec<(String, String)>,
    /// Trainer frameworks that can be named beside [`AUTO`]; empty: any word.
    pub trainers: &'static [&'static str],
}

/// One line of `supervise config show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The dotted key.
    pub key: String,
    /// The value, secrets hidden.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

/// How workers are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherChoice {
    /// Found out from the command.
    Auto,
    /// One command that starts its own workers.
    Driver,
    /// One command per worker.
    Gang,
}

/// How deep a proof goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofDepth {
    /// Sizes, indices and headers.
    Structure,
    /// Every byte.
    Full,
}

/// What a resumed checkpoint may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DegradedResume {
    /// Nothing.
    Never,
    /// The order of the data.
    DataOrder,
    /// Everything but the model.
    ModelOnly,
    /// Nothing; the run ends with a question.
    Ask,
}

/// Whether weights may be newer than what is kept beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptAhead {
    /// No.
    Never,
    /// The run ends with a question.
    Ask,
    /// Yes; what is repeated is said.
    Always,
}

/// Whether a control group is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupChoice {
    /// Where one may be made.
    Auto,
    /// Never.
    Off,
}

/// Which devices the workers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gpus {
    /// All that are there.
    Auto,
    /// None.
    None,
    /// These.
    List(Vec<u32>),
}

/// The settings of one run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The trainer framework: [`AUTO`], or one of [`Sources::trainers`].
    pub trainer: String,
    /// The trainer's version, if its interpreter is not to be asked.
    pub trainer_version: Option<String>,
    /// The command that starts the trainer, if set.
    pub command: Option<Vec<String>>,
    /// Where journal and attempts are kept, if not in the usual place.
    pub run_dir: Option<String>,
    /// The checkpoint root, if not the configuration's.
    pub root: Option<String>,
    /// Attempts without progress before giving up.
    pub retries: u32,
    /// How often a repeated failure may be answered by an earlier checkpoint.
    pub step_backs: u32,
    /// Waiting before a new attempt.
    pub backoff: Backoff,
    /// How long things may take once they have to end.
    pub grace: Grace,
    /// How the workers are started.
    pub gang: Gang,
    /// Proving a checkpoint.
    pub proof: Proof,
    /// What a resumed checkpoint may lack.
    pub degraded_resume: DegradedResume,
    /// How the only checkpoint of a trainer is kept from being lost.
    pub protect: Protect,
    /// When a silent run counts as stalled.
    pub stall: Stall,
    /// The workers' output.
    pub output: Output,
    /// Killing what does not end.
    pub kill: Kill,
    /// Old checkpoints.
    pub retention: Retention,
    /// The lease on the checkpoint root.
    pub lease: Lease,
    /// Supervisors on other machines may be started on the same checkpoint root: workers do not outlive a lease that cannot be renewed.
    pub multi_host: bool,
    /// Start from nothing where nothing can be proven.
    pub allow_fresh: bool,
    /// Restart after failures.
    pub recovery: bool,
    /// How long a script may take to start its trainer when it is run to learn that.
    #[serde(deserialize_with = "millis")]
    pub learn_within: Duration,
    /// How long a step of it may take then that is neither the trainer nor known to prepare.
    #[serde(deserialize_with = "millis")]
    pub learn_step: Duration,
    /// How often the checkpoint root is looked at.
    #[serde(deserialize_with = "millis")]
    pub scan_interval: Duration,
    /// Whether a relaunch is tried in advance, once workers run.
    pub rehearse: bool,
    /// How the trainer is helped to help itself.
    pub assist: Assist,
    /// When the machine is taken away, in seconds since 1970, if set.
    pub deadline: Option<u64>,
    /// Environment variables for the trainer.
    pub env: BTreeMap<String, String>,
    #[serde(skip)]
    explained: Vec<Explained>,
}

/// How the only checkpoint of a trainer is kept from being lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protect {
    /// Each proven save is copied.
    pub enabled: bool,
    /// Copies that are kept.
    pub keep: u32,
    /// Bytes a second that a copy may read.
    pub rate: u64,
    /// Bytes that stay free.
    pub reserve: u64,
    /// Whether weights may be newer than what is kept beside them.
    pub accept_ahead: AcceptAhead,
}

/// Waiting before a new attempt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// The first wait.
    #[serde(deserialize_with = "millis")]
    pub initial: Duration,
    /// How much longer each further wait is.
    pub factor: f64,
    /// The longest wait.
    #[serde(deserialize_with = "millis")]
    pub max: Duration,
    /// The random share of a wait.
    pub jitter: f64,
}

/// How long things may take once they have to end.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grace {
    /// From asking to killing.
    #[serde(deserialize_with = "millis")]
    pub stop: Duration,
    /// For a save under way.
    #[serde(deserialize_with = "millis")]
    pub save: Duration,
    /// How long the guard waits for a new supervisor.
    #[serde(deserialize_with = "millis")]
    pub orphan: Duration,
}

/// How the workers are started.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gang {
    /// One command or one per worker.
    pub launcher: LauncherChoice,
    /// How many workers, if set.
    pub workers: Option<u32>,
    /// Their devices.
    pub gpus: Gpus,
}

/// Proving a checkpoint.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// How deep.
    pub depth: ProofDepth,
    /// Whether at all.
    pub enabled: bool,
    /// What a checkpoint may import: `module.name`, `module.*`, `*`.
    pub trust_globals: Vec<String>,
    /// What is on the danger list does not condemn.
    pub trust_unsafe: bool,
    /// Bytes a second that reading in the background may take.
    pub background_rate: u64,
    /// Bytes of memory that looking into checkpoints may take, in each process.
    pub memory: u64,
}

/// When a silent run counts as stalled.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Until the first sign of life.
    #[serde(deserialize_with = "millis")]
    pub startup: Duration,
    /// Times the usual duration of a step.
    pub factor: f64,
    /// Never less than this.
    #[serde(deserialize_with = "millis")]
    pub minimum: Duration,
    /// A save.
    #[serde(deserialize_with = "millis")]
    pub save: Duration,
}

/// The workers' output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Size at which a file is rotated.
    pub max_bytes: u64,
    /// Rotated files kept.
    pub keep: u32,
}

/// Killing what does not end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Whether a control group is used.
    pub cgroup: CgroupChoice,
}

/// Old checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Delete proven steps beyond the number to keep.
    pub prune: bool,
    /// How many more the trainer is told to keep.
    pub raise_by: u32,
}

/// How the trainer is helped to help itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assist {
    /// It is told when its machine is taken away.
    pub expiry: bool,
    /// Metrics that can be read are switched on.
    pub logger: bool,
    /// A relaunch leaves out the first validation.
    pub skip_validation: bool,
    /// Output that tells what went wrong.
    pub environment: bool,
    /// One run of Weights & Biases for all attempts.
    pub wandb: bool,
}

/// The lease on the checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// After this time a silent holder elsewhere loses it.
    #[serde(deserialize_with = "millis")]
    pub ttl: Duration,
}

impl Settings {
    /// Lays the sources over the defaults. All mistakes of all sources are returned together.
    pub fn load(sources: &Sources) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut layers = vec![Layer::defaults()];
        for (name, text) in &sources.files {
            layers.push(Layer::file(name, text));
        }
        layers.extend(sources.block.as_ref().map(|node| Ok(Layer::block(node))));
        layers.push(Layer::env(&sources.env));
        layers.push(Layer::flags(&sources.flags));
        let mut checked = Vec::new();
        for layer in layers {
            match layer {
                Ok(mut layer) => {
                    errors.extend(layer.check(sources.trainers));
                    checked.push(layer);
                }
                Err(found) => errors.push(found),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let figment = checked
            .iter()
            .enumerate()
            .fold(Figment::new(), |figment, (at, layer)| figment.merge(layer.provider(at)));
        let mut settings: Self = figment.extract().map_err(|error| {
            error
                .into_iter()
                .map(|error| ConfigError::new(ErrorKind::WrongType, error.to_string()))
                .collect::<Vec<_>>()
        })?;
        settings.explained = layers::explain(&figment, &checked);
        Ok(settings)
    }

    /// The defaults alone.
    pub fn defaults() -> Result<Self, Vec<ConfigError>> {
        Self::load(&Sources::default())
    }

    /// Every setting with its value and where it came from, in the order of `defaults.yaml`. Secrets are hidden.
    pub fn explain(&self) -> Vec<(String, String, String)> {
        self.explained
            .iter()
            .map(|line| (line.key.clone(), line.value.clone(), line.origin.clone()))
            .collect()
    }

    /// Somebody set it: a file, a variable or a flag.
    #[must_use]
    pub fn is_said(&self, key: &str) -> bool {
        let mut lines = self.explained.iter().filter(|line| line.key == key);
        lines.any(|line| !line.origin.starts_with("default of"))
    }

    /// The same as structured lines.
    pub fn explained(&self) -> &[Explained] {
        &self.explained
    }
}

fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

impl<'de> Deserialize<'de> for Gpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The schema lets through `auto`, `none` and lists; the layer writes the words as one-element lists of text.
        let items = Vec::<String>::deserialize(deserializer)?;
        match items.first().map(String::as_str) {
            Some("auto") => Ok(Self::Auto),
            Some("none") => Ok(Self::None),
            _ => items
                .iter()
                .map(|item| item.parse().map_err(serde::de::Error::custom))
                .collect::<Result<_, _>>()
                .map(Self::List),
        }
    }
}
