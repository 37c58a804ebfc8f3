//! Lines of output that the user names as a failure.

use crate::rulebook::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};

/// Looks up a key of a class in the user's rules: the first rule of the class that sets it counts.
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
    /// The next thing for a person to do. This and the keys below are for classes of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// A relaunch after it costs a retry; true if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs_retry: Option<bool>,
    /// A checkpoint may be the cause; true if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blames_checkpoint: Option<bool>,
}
