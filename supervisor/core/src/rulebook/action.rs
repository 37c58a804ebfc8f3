//! Answers to a failure, as named in settings and the rulebook. The build script uses them too.

use serde::{Deserialize, Serialize};

/// Answer to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// Relaunch now.
    Relaunch,
    /// Relaunch with back-off.
    RelaunchLater,
    /// Relaunch once, then stop.
    RelaunchOnce,
    /// Stop and report why.
    Stop,
    /// Fall back one step.
    FallBack,
    /// Relaunch without the failed node.
    Node,
    /// Wait for a condition, then relaunch.
    Wait,
    /// Collect evidence, stop what hangs, then relaunch.
    Kill,
}

impl FailureAction {
    /// All actions.
    pub const ALL: [Self; 8] = [
        Self::Relaunch,
        Self::RelaunchLater,
        Self::RelaunchOnce,
        Self::Stop,
        Self::FallBack,
        Self::Node,
        Self::Wait,
        Self::Kill,
    ];

    /// The name in settings and the rulebook. A setting cannot choose `other_node` or `end_and_relaunch`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Relaunch => "relaunch",
            Self::RelaunchLater => "relaunch_later",
            Self::RelaunchOnce => "relaunch_once",
            Self::Stop => "stop",
            Self::FallBack => "step_back",
            Self::Node => "other_node",
            Self::Wait => "wait",
            Self::Kill => "end_and_relaunch",
        }
    }

    /// The action with this name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}
