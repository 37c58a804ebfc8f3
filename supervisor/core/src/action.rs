//! Answers to a failure, and the lines that a user names as one.

use serde::{Deserialize, Serialize};

/// Answer of the failure table to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Relaunch now.
    Relaunch,
    /// Relaunch with back-off.
    RelaunchLater,
    /// Relaunch once, then stop.
    RelaunchOnce,
    /// Stop and tell why.
    Stop,
    /// Fall back one step.
    FallBack,
    /// Relaunch without that node.
    Node,
    /// Wait for a condition, then relaunch.
    Wait,
    /// Take evidence, end what hangs, then relaunch.
    Kill,
}

/// A line of output that tells a failure, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// Regular expression over a line without colours and launcher prefixes.
    pub pattern: String,
    /// Class of the failure: one of the table, or `user.` and a name.
    pub class: String,
}
