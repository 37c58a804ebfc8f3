//! What an operator or a signal asks of a running supervisor.

use crate::id::{Ms, Step};
use serde::{Deserialize, Serialize};

/// Request of a person or the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRequest {
    /// End the run; `after_save`: at the next proven step.
    Stop {
        /// Wait for the next proven step first.
        after_save: bool,
        /// The asker: `operator`, `SIGTERM`, `SIGINT`, `hang-up`.
        by: String,
        /// A scheduler ends everything by itself after this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Ms>,
    },
    /// The machine is taken away soon: stop in time, and go on when the scheduler starts the run again.
    HandBack {
        /// The asker: `SIGUSR1`.
        by: String,
        /// Time until then, where it is known.
        left: Option<Ms>,
    },
    /// A person works on the run: nothing of it is ended because it fails or hangs, and nothing is launched.
    Hold {
        /// The asker.
        by: String,
        /// Its purpose, in their words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The run is left to the supervisor again.
    Unhold {
        /// The asker.
        by: String,
    },
    /// An end that needed a person counts no more: the next start goes on.
    Resume {
        /// The asker.
        by: String,
        /// That end, in words; not there: a hold alone stood against it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<String>,
    },
    /// The next launch resumes from exactly this step, once.
    RollBack {
        /// The asker.
        by: String,
        /// The step.
        to: Step,
    },
    /// End the run now, without grace (second SIGINT).
    StopNow {
        /// The asker.
        by: String,
    },
}
