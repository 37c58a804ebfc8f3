//! Requests that an operator or a signal makes of a running supervisor.

use crate::id::{Ms, Step};
use serde::{Deserialize, Serialize};

/// A request from an operator or from the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRequest {
    /// Stop the run.
    Stop {
        /// Whether to wait for the next proven step first.
        after_save: bool,
        /// Who asked: `operator`, `SIGTERM`, `SIGINT`, `hang-up`.
        by: String,
        /// Time until the scheduler kills everything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Ms>,
    },
    /// Preemption: stop in time, and resume when the scheduler restarts the run.
    HandBack {
        /// Who asked: `SIGUSR1`.
        by: String,
        /// Time until the preemption, if known.
        left: Option<Ms>,
    },
    /// Save at the next step boundary, and go on.
    Save {
        /// Who asked.
        by: String,
    },
    /// Hold: an operator works on the run. Failures and hangs end nothing, and nothing is launched.
    Hold {
        /// Who asked.
        by: String,
        /// Why, in their words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Release the hold.
    Unhold {
        /// Who asked.
        by: String,
    },
    /// Clear a final failure, so that the next start resumes the run.
    Resume {
        /// Who asked.
        by: String,
        /// The failure that is cleared, as text; missing if there was only a hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<String>,
    },
    /// Resume from exactly this step at the next launch, once.
    RollBack {
        /// Who asked.
        by: String,
        /// The step to resume from.
        to: Step,
    },
    /// Stop the run now, without a grace period (second SIGINT).
    StopNow {
        /// Who asked.
        by: String,
    },
}
