//! Whether the trainer would accept the overrides of a relaunch, tried while the first attempt runs.

use crate::id::Term;
use serde::{Deserialize, Serialize};

/// Result of one rehearsal, and what it was of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// The term that asked.
    pub term: Term,
    /// Hash of the effective configuration.
    pub config: u64,
    /// Version of the trainer, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its result.
    pub result: RehearsalResult,
}

/// The trainer's reading of the overrides of a relaunch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RehearsalResult {
    /// Its configuration has all of them.
    Taken,
    /// A relaunch would fail, or would not get what it is given.
    Refused {
        /// Each in words; never empty.
        what: Vec<String>,
    },
    /// It could not be tried.
    Unknown {
        /// Why, in words.
        why: String,
    },
}
