//! True if a relaunch would be taken by the trainer: asked while the first attempt runs, hours before a failure needs it.

use crate::id::Term;
use crate::spec::RunSpec;
use crate::state::RunState;
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

/// Returns true if a rehearsal is to be asked for now that workers run: once for each configuration and release, and once more in
/// a later term where it could not be tried.
#[must_use]
pub fn is_due(s: &RunState, spec: &RunSpec) -> bool {
    let relaunches = spec.policy.recovery && !spec.policy.observe;
    let is_known = s.rehearsal.as_ref().is_some_and(|r| {
        let same = r.config == spec.config_hash && r.version == spec.trainer_version;
        same && (r.term == s.term || !matches!(r.result, RehearsalResult::Unknown { .. }))
    });
    spec.policy.rehearse && relaunches && !is_known
}
