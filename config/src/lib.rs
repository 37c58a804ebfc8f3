//! Configuration layers, value origins and the trainers' YAML dialect.
//!
//! This crate parses two things, both from texts passed in by the caller. It opens no file and reads no environment variable.
//!
//! - **A trainer's configuration.** [`parse_trainer_yaml`] types scalars as the trainer's own loader does, [`compose`] follows Hydra's
//!   defaults lists, [`interpolation`] evaluates `${…}`, and the result is a [`ConfigTree`] in which every value has a [`ValueOrigin`].
//! - **The supervisor's settings.** [`settings`] layers defaults, files, a block in the trainer's YAML, the environment and flags.
//!
//! Every error is a [`ConfigError`] with a location and a hint.

pub mod compose;
mod cut;
mod dialect;
mod error;
pub mod interpolation;
pub mod literal;
mod pystr;
pub mod settings;
mod tree;
mod yaml;

pub use cut::without_block;
pub use error::{ConfigError, ConfigFinding, ErrorKind};
pub use pystr::value as python_str;
pub use settings::{
    LineRedactor, NeedleSet, Settings, edit_distance, know_secret, know_values, know_words, known_needles,
    known_secrets, line_without_secret, redact, redact_call, redact_lines, redact_text, redact_word, redact_words,
    redacted, redacted_yaml,
};
pub use tree::{
    ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin, is_default_origin, join_path, split_path,
};
pub use yaml::{MAX_BYTES, MAX_DEPTH, MAX_NODES, parse_scalar, parse_supervisor_yaml, parse_trainer_yaml};
