//! Promises of the readers for any bytes.
//!
//! A target is a function that takes bytes, hands them to one reader and panics where a promise is broken. Beyond "no
//! panic" these are: the answer is the same each time; memory stays within the limits that were given; nothing outside
//! the file is read, and no more of it than its structure needs; every place that a finding names lies in the file; every
//! answer has a verdict and a reason.
//!
//! Two drivers share them: `tests/replay.rs` here, with a fixed number of seeded [`mutate`]d cases, and the libFuzzer
//! programs in `tests/fuzz`, which run as long as one lets them.

#![expect(clippy::expect_used, reason = "a broken promise ends the run")]

mod archive;
mod files;
pub mod memory;
mod models;
pub mod mutate;
mod source;
mod texts;
mod words;

/// One reader under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus folder and its libFuzzer program.
    pub name: &'static str,
    /// Hands bytes to it and checks what it promises.
    pub run: fn(&[u8]),
    /// Pieces that mean something to it.
    pub words: &'static [&'static [u8]],
}

/// All readers that see bytes from outside.
pub const TARGETS: &[Target] = &[
    target("torch_zip", files::torch_zip, words::ZIP),
    target("torch_pickle", files::torch_pickle, words::PICKLE),
    target("pickle", files::pickle, words::PICKLE),
    target("safetensors", files::safetensors, words::JSON),
    target("json", files::json, words::JSON),
    target("dcp_metadata", files::dcp_metadata, words::PICKLE),
    target("distcp", files::distcp, words::ZIP),
    target("deepspeed", models::deepspeed, words::PICKLE),
    target("record", texts::record, words::JSON),
    target("journal", texts::journal, words::JSON),
    target("yaml", texts::yaml, words::YAML),
    target("compose", texts::compose, words::YAML),
    target("hydra", texts::hydra, words::HYDRA),
];

const fn target(name: &'static str, run: fn(&[u8]), words: &'static [&'static [u8]]) -> Target {
    Target { name, run, words }
}

/// The target of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
