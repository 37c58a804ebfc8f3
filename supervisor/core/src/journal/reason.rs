//! Reasons: every decision has at least one, and every reason names its evidence.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A past fact that a decision is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable name in snake_case (`worker_failed`, `newest_whole`).
    pub code: Cow<'static, str>,
    /// The fact as text.
    pub text: String,
    /// The evidence for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// Points to what shows a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A line of a worker's output.
    Line {
        /// Worker number.
        worker: u32,
        /// Line number from 1.
        line: u64,
        /// The line itself, shortened.
        text: String,
    },
    /// A file of a checkpoint.
    File {
        /// Path relative to the checkpoint root.
        path: String,
        /// What was found in it.
        finding: String,
    },
    /// A setting and its source.
    Setting(String),
    /// How a worker exited.
    Exit(String),
}

impl Reason {
    /// A reason without evidence.
    #[must_use]
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code: Cow::Borrowed(code),
            text: text.into(),
            evidence: Vec::new(),
        }
    }

    /// Adds evidence.
    #[must_use]
    pub fn with(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
