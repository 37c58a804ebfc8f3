//! Rehearsal: whether the trainer would accept the overrides of a relaunch, tried while the first attempt runs.

use crate::id::Term;
use serde::{Deserialize, Serialize};

/// What was rehearsed, and the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// The term that asked for it.
    pub term: Term,
    /// Hash of the effective configuration.
    pub config: u64,
    /// Version of the trainer, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The result.
    pub result: RehearsalResult,
}

/// How the trainer reads the overrides of a relaunch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RehearsalResult {
    /// Its configuration accepts all of them.
    Taken,
    /// A relaunch would fail, or would ignore some overrides.
    Refused {
        /// The problems; never empty.
        what: Vec<String>,
    },
    /// It could not be tried.
    Unknown {
        /// The cause, as text.
        why: String,
    },
}
