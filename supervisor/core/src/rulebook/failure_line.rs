//! Failure lines defined by the user.

use crate::rulebook::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};

/// Looks up a key of a class in the user's rules; the first rule of the class that sets it counts.
pub fn said_of<T>(lines: &[FailureLine], class: &FailureClass, what: impl Fn(&FailureLine) -> Option<T>) -> Option<T> {
    lines.iter().filter(|line| line.class == *class).find_map(what)
}

/// A line of output that the user defines as a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// Regular expression for a line without colors and launcher prefixes.
    pub pattern: String,
    /// Class of the failure: one of the rulebook, or `user.` and a name.
    pub class: FailureClass,
    /// What the operator should do next. This and the keys below are for the user's own classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Whether a relaunch after it is charged as a retry; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs_retry: Option<bool>,
    /// Whether a checkpoint may be the cause; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blames_checkpoint: Option<bool>,
}
