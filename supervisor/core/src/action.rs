//! Answers to a failure.

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
