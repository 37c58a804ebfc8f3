//! The supervisor's own settings.
//!
//! [`Settings::load`] merges the sources with figment, lowest first: the defaults of [`table`], files, the `supervisor:` block of the
//! trainer's YAML, `SUPERVISE_…` variables, flags. Each source is checked against the schema before it is layered, so that a wrong value
//! is reported with its file and line even if a later source hides it. Every value keeps its origin; [`Settings::explain`] lists them.
//!
//! To add a setting, add one entry to [`table`], then run `make bless`.

mod check;
mod layers;
mod pages;
mod patterns;
mod redact;
mod schema;
mod table;
mod units;
mod worded;
mod wrong;

use figment::Figment;

use crate::error::{ConfigError, ErrorKind};
use crate::tree::{ConfigNode, is_default_origin};
use layers::SettingLayer;

pub use pages::{defaults_yaml, json_schema, settings_md};
pub use redact::{
    LineRedactor, NeedleSet, know_secret, know_values, know_words, known_needles, known_secrets, line_without_secret,
    redact, redact_call, redact_lines, redact_text, redact_word, redact_words, redacted, redacted_yaml,
};
pub use schema::{edit_distance, is_setting, keys};
pub use table::*;
pub use units::{parse_bytes, parse_duration, parse_max_loss};
pub use worded::{GpuChoice, HardLimitChoice};

/// Detect the trainer framework from the YAML and the command.
pub const AUTO: &str = "auto";

/// Sources of settings. Fields are ordered from lowest to highest precedence.
#[derive(Debug, Clone, Default)]
pub struct SettingSources {
    /// Name and text of each settings file, lowest first.
    pub files: Vec<(String, String)>,
    /// The `supervisor:` block of the trainer's YAML.
    pub block: Option<ConfigNode>,
    /// Environment variables; only `SUPERVISE_…` is used.
    pub env: Vec<(String, String)>,
    /// Dotted key and value of each flag.
    pub flags: Vec<(String, String)>,
    /// Trainer frameworks that can be named besides [`AUTO`]; empty: any word.
    pub trainers: &'static [&'static str],
}

/// One line of `supervise config show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub key: String,
    /// Secrets are hidden.
    pub value: String,
    pub origin: String,
}

impl Settings {
    /// Merges the sources over the defaults. Returns all errors of all sources together.
    pub fn load(sources: &SettingSources) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut layers = vec![SettingLayer::defaults()];
        for (name, text) in &sources.files {
            layers.push(SettingLayer::file(name, text));
        }
        layers.extend(sources.block.as_ref().map(|node| Ok(SettingLayer::block(node))));
        layers.push(SettingLayer::env(&sources.env));
        layers.push(SettingLayer::flags(&sources.flags));
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

    /// Loads the defaults only.
    pub fn defaults() -> Result<Self, Vec<ConfigError>> {
        Self::load(&SettingSources::default())
    }

    /// Lists every setting with its value and origin, in the order of `defaults.yaml`. Secrets are hidden.
    pub fn explain(&self) -> Vec<(String, String, String)> {
        self.explained
            .iter()
            .map(|line| (line.key.clone(), line.value.clone(), line.origin.clone()))
            .collect()
    }

    /// Whether a file, a variable or a flag sets this key.
    #[must_use]
    pub fn is_said(&self, key: &str) -> bool {
        let mut lines = self.explained.iter().filter(|line| line.key == key);
        lines.any(|line| !is_default_origin(&line.origin))
    }

    /// Like [`Settings::explain`], as structured lines.
    pub fn explained(&self) -> &[Explained] {
        &self.explained
    }
}
