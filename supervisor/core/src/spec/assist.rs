//! Settings that are injected into the trainer.

use serde::{Deserialize, Serialize};

/// Variable of the workers that names the file in which they are asked for a save.
pub const SAVE_VARIABLE: &str = "SUPERVISE_SAVE_REQUEST";
/// Name of the file in an attempt's directory that holds the number of the newest request for a save. It is created empty before the
/// launch: on a network file system a name that did not exist may stay invisible for a minute.
pub const SAVE_REQUEST: &str = "save-request";

/// Injected settings, each of which can be switched off. They never change what the user set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Assist {
    /// Tell the time of the preemption to a trainer that saves before it.
    pub expiry: bool,
    /// Switch on metrics that can be read, if there are none.
    pub logger: bool,
    /// Skip the validation before the first step at a relaunch.
    pub skip_validation: bool,
    /// Make errors and output appear in full and at once.
    pub environment: bool,
    /// Continue one run of each metrics tool over all attempts.
    pub wandb: bool,
    /// Let the trainer save when the supervisor asks.
    pub save_requests: bool,
    /// Time of the preemption in seconds since 1970; `None`: not known.
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
            save_requests: true,
            deadline: None,
        }
    }
}
