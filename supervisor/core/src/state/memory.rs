//! Things remembered between attempts, and between terms.

use crate::checkpoint::{CkptId, PinsHash};
use crate::id::{AttemptNo, Step, Term, Tick, WallMs};
use crate::journal::record::Diagnosis;
use crate::spec::ResumeIntent;
use serde::{Deserialize, Serialize};

/// A failure that is remembered until the configuration changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastFailure {
    /// The attempt.
    pub attempt: AttemptNo,
    /// Its earlier form.
    pub diagnosis: Diagnosis,
    /// It came after a new step: the checkpoint that was resumed from before it does not bear it in itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trained: bool,
}

/// Place where the run was taken into care.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptionPoint {
    /// The step chosen then; `None`: from nothing.
    pub step: Option<Step>,
    /// Request of the configuration.
    pub intent: ResumeIntent,
    /// The term that did.
    pub term: Term,
    /// The first attempt that belongs to it: until its launch the disk edits may be half done.
    #[serde(default)]
    pub attempt: AttemptNo,
    /// Steps of another run had to go aside.
    #[serde(default)]
    pub cleared: bool,
}

/// A live set of which no copy could be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// As it was proven.
    pub ckpt: CkptId,
    /// Its form then: a save that is written on is another thing to copy.
    pub pins: PinsHash,
    /// Why, in words.
    pub why: String,
}

/// A stop that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWish {
    /// At the next proven step only.
    pub after_save: bool,
    /// The asker.
    pub by: String,
    /// The high-water mark when it was asked for.
    #[serde(default)]
    pub mark: Option<Step>,
    /// When it was asked for.
    #[serde(default)]
    pub at: Tick,
    /// The run goes on when the scheduler starts it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hand_back: bool,
    /// A scheduler ends everything by itself then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Tick>,
}

/// A person who works on the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHold {
    /// The asker.
    pub by: String,
    /// Its purpose, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when.
    pub since: WallMs,
}

impl RunHold {
    /// The holder and the purpose.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.why {
            Some(why) => format!("held by {}: {why}", self.by),
            None => format!("held by {}", self.by),
        }
    }
}

/// A run that ended until somebody looked at it, and that somebody lets go on: no launch has followed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetGo {
    /// The asker.
    pub by: String,
    /// How it had ended, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// Since when.
    pub since: WallMs,
}

impl LetGo {
    /// For people.
    #[must_use]
    pub fn words(&self) -> String {
        let ended = self.was.as_ref().map(|was| format!("; it had ended: {was}"));
        format!("goes on, as {} said{}", self.by, ended.unwrap_or_default())
    }
}

/// A step that a person sent the run back to: the next launch resumes from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollBack {
    /// The step.
    pub to: Step,
    /// The asker.
    pub by: String,
    /// Since when.
    pub since: WallMs,
}

/// The scheduler's job that a term runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerJob {
    /// Its number.
    pub job: String,
    /// How often the scheduler started it again.
    pub restarts: u32,
    /// Its end; `None`: it has none, or nobody says.
    pub ends: Option<WallMs>,
}
