//! Lines of output that the user names as a failure.

use crate::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};

/// What the user's rules say of a class, if any does: the first that says it counts.
pub fn said_of<T>(lines: &[FailureLine], class: &FailureClass, what: impl Fn(&FailureLine) -> Option<T>) -> Option<T> {
    lines.iter().filter(|line| line.class == *class).find_map(what)
}

/// A line of output that tells a failure, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// Regular expression over a line without colours and launcher prefixes.
    pub pattern: String,
    /// Class of the failure: one of the table, or `user.` and a name.
    pub class: FailureClass,
    /// Of the user's own class: the next thing for a person to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Of the user's own class: a relaunch after it costs a retry. It does unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs_retry: Option<bool>,
    /// Of the user's own class: a checkpoint may be the cause. It may unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blames_checkpoint: Option<bool>,
}
