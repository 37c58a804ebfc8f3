//! Answers to a failure, and the lines that a user names as one.

mod answer;

pub use answer::Action;

use crate::taxonomy::FailureClass;
use serde::{Deserialize, Serialize};

/// A line of output that tells a failure, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// Regular expression over a line without colours and launcher prefixes.
    pub pattern: String,
    /// Class of the failure: one of the table, or `user.` and a name.
    pub class: FailureClass,
}
