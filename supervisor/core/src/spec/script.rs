//! A script that starts the trainer: what was learnt of it, what is to be put into the call it makes, what became of that.
//!
//! Most users start verl with a shell script. What it calls is known only by running it: once under a recorder that ends it
//! where it would start the trainer, and then, at every launch, with our words put into that one call.

mod book;
mod dates;

pub use book::{CallAnswer, CallBook, CallPlace, StartedCall, worker_of};
pub use dates::differs_in_dates;

use crate::id::{WorkerId, fnv64};
use crate::observe::exit::ExitStatus;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The call of the trainer that a script made when it was run to learn it. It is read, never executed. In memory it is whole, for
/// its configuration is read from it; on disk values that look like secrets are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedCall {
    /// The call, word by word.
    pub command: Vec<String>,
    /// Words that the user's YAML adds right behind the entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<String>,
    /// The directory it was made in.
    pub cwd: Utf8PathBuf,
    /// Variables that its configuration mentions, or by which its interpreter is found.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The script ran `ray start` before the call: the trainer finds that cluster by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_ray: bool,
    /// The call went past our programs: only `{overrides}` in the command can carry our words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past: bool,
}

/// The order for the call of the trainer in one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallOrder {
    /// The entry point that was learnt.
    pub entry: String,
    /// Settings that must be said as they were learnt: key and value.
    pub expect: BTreeMap<String, String>,
    /// Keys that are not compared: ours decide them.
    pub pinned: Vec<String>,
    /// Right behind the entry point.
    pub ahead: Vec<String>,
    /// At the end, exactly once.
    pub ours: Vec<String>,
    /// The name of the job, where the call submits one to a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
    /// Settings that tell this training from another, as the script wrote them when it was learnt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// The step to resume from: what the script does before its call may have removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Utf8PathBuf>,
}

/// Acts of a script at a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptNews {
    /// It calls something else than was learnt: nothing was started.
    Refused {
        /// In words.
        why: String,
    },
    /// A trainer runs that was not given our words.
    Unmarked {
        /// Its command line, secrets redacted.
        what: String,
    },
    /// It starts a trainer again, in the same attempt: that was not done.
    Again,
    /// The call of the trainer begins.
    Called {
        /// The worker that runs the script.
        worker: WorkerId,
        /// Lines that the script had printed before.
        line: u64,
        /// The call, shortened, secrets redacted.
        what: String,
    },
    /// A call of the trainer ended.
    Returned {
        /// The call, shortened, secrets redacted.
        what: String,
        /// How the trainer ended.
        status: ExitStatus,
    },
    /// Another training was called in the same script: it was not started.
    HeldBack {
        /// The call, shortened, secrets redacted.
        what: String,
        /// The first one was still running.
        at_once: bool,
    },
    /// The script changed the step to resume from before it called the trainer, which was not started.
    Spoilt {
        /// In words.
        what: String,
    },
    /// Each training ended well, and the script did not.
    Failed {
        /// How the script ended.
        status: ExitStatus,
    },
}

impl ScriptNews {
    /// Whether it is a fault, rather than the course of a call.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Called { .. } | Self::Returned { .. })
    }

    /// What the script left undone although its training ended well.
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

/// Key of a script before it is known which run it is: the directory and the command it is started with.
#[must_use]
pub fn key(cwd: &Utf8Path, command: &[String]) -> String {
    let text = format!("{cwd}\0{}", command.join("\0"));
    format!("{:016x}", fnv64(text.as_bytes()))
}
