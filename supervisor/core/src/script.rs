//! A script that starts the trainer: what was learnt of it, what is to be put into the call it makes, what became of that.
//!
//! Most users start verl with a shell script. What it calls is known only by running it: once under a recorder that ends it
//! where it would start the trainer, and then, at every launch, with our words put into that one call.

use crate::id::fnv64;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The call of the trainer that a script made when it was run to learn it. It is read, never executed. In memory it is whole, for
/// its configuration is read from it; on disk values that look like secrets are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learnt {
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
}

/// Key of a script before it is known which run it is: the directory and the command it is started with.
#[must_use]
pub fn key(cwd: &Utf8Path, command: &[String]) -> String {
    let text = format!("{cwd}\0{}", command.join("\0"));
    format!("{:016x}", fnv64(text.as_bytes()))
}
