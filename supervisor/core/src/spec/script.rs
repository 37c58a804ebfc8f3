//! Launch scripts: the trainer call that was learned from one, what is injected into that call, and how it went.
//!
//! Most users start verl with a shell script. What it calls is only known by running it: once under a recorder that
//! stops it where it would start the trainer, and then at every launch with our words injected into that one call.

mod book;
mod dates;

pub use book::{CallAnswer, CallBook, CallPlace, StartedCall, worker_of};
pub use dates::differs_in_dates;

use crate::id::{WorkerId, fnv64};
use crate::observe::exit::ExitStatus;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The trainer call that a script made when it was run to learn it. It is read, never executed. In memory it is
/// complete, because its configuration is read from it; on disk, values that look like secrets are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedCall {
    pub command: Vec<String>,
    /// Words that the user's YAML adds right after the entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<String>,
    pub cwd: Utf8PathBuf,
    /// Variables that its configuration mentions, or that its interpreter is found by.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the script ran `ray start` before the call, so that the trainer finds that cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_ray: bool,
    /// Whether the call bypassed our programs, so that only `{overrides}` in the command can carry our words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past: bool,
}

/// What to inject into the trainer call of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallOrder {
    pub entry: String,
    /// Settings that must be the same as when the call was learned.
    pub expect: BTreeMap<String, String>,
    /// Keys that are not compared because we set them.
    pub pinned: Vec<String>,
    /// Words to insert right after the entry point.
    pub ahead: Vec<String>,
    /// Words to append exactly once.
    pub ours: Vec<String>,
    /// Name of the job, if the call submits one to a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
    /// Settings that identify this training, as the script wrote them when it was learned.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// The step to resume from, which the script may have removed before its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Utf8PathBuf>,
}

/// What a script did at a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptNews {
    /// It calls something other than was learned: nothing was started.
    Refused {
        /// Description.
        why: String,
    },
    /// A trainer is running without our words.
    Unmarked {
        /// Its command line, secrets redacted.
        what: String,
    },
    /// It started a trainer again in the same attempt: that was refused.
    Again,
    /// The trainer call starts.
    Called {
        /// The worker that runs the script.
        worker: WorkerId,
        /// Number of lines that the script had printed before.
        line: u64,
        /// The call, shortened, secrets redacted.
        what: String,
    },
    /// A trainer call ended.
    Returned {
        /// The call, shortened, secrets redacted.
        what: String,
        /// Exit status of the trainer.
        status: ExitStatus,
    },
    /// The same script called another training, which was not started.
    HeldBack {
        /// The call, shortened, secrets redacted.
        what: String,
        /// Whether the first training was still running.
        at_once: bool,
    },
    /// The script changed the step to resume from before its trainer call, which was refused.
    Spoilt {
        /// Description.
        what: String,
    },
    /// Each training succeeded, but the script failed.
    Failed {
        /// Exit status of the script.
        status: ExitStatus,
    },
}

impl ScriptNews {
    /// Returns true if it is a fault rather than a normal event.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Called { .. } | Self::Returned { .. })
    }

    /// What the script did not do although its training succeeded.
    #[must_use]
    pub fn left_undone(&self) -> Option<String> {
        match self {
            Self::HeldBack { what, at_once } => {
                let when = if *at_once {
                    "while the first was running"
                } else {
                    "after it"
                };
                Some(format!(
                    "the script called another training {when}, which was held back: {what}; supervise each training by itself: one `supervise run` per training"
                ))
            }
            Self::Failed { status } => Some(format!(
                "the training finished, and the launch script {} after it; only the rest of the script is left to do",
                status.words()
            )),
            _ => None,
        }
    }
}

/// Key of a script before its run is known: its directory and the command that starts it.
#[must_use]
pub fn key(cwd: &Utf8Path, command: &[String]) -> String {
    let text = format!("{cwd}\0{}", command.join("\0"));
    format!("{:016x}", fnv64(text.as_bytes()))
}
