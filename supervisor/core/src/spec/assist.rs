//! How a trainer is helped to help itself.

use serde::{Deserialize, Serialize};

/// Helps, each of which can be switched off. What the user set is never changed by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Assist {
    /// A trainer that saves before its machine is taken away is told when that is.
    pub expiry: bool,
    /// Metrics that can be read are switched on where none are.
    pub logger: bool,
    /// A relaunch leaves out the validation before the first step.
    pub skip_validation: bool,
    /// Output that tells what went wrong, at once.
    pub environment: bool,
    /// All attempts go on in one run of each tool that keeps metrics.
    pub wandb: bool,
    /// When the machine is taken away, in seconds since 1970; `None`: not known.
    pub deadline: Option<u64>,
}

impl Default for Assist {
    fn default() -> Self {
        Self {
            expiry: true,
            logger: true,
            skip_validation: false,
            environment: true,
            wandb: true,
            deadline: None,
        }
    }
}
