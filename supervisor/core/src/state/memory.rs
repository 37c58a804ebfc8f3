//! What is remembered between attempts and terms.

use super::EndCause;
use crate::checkpoint::{CkptId, PinsHash};
use crate::id::{AttemptNo, Step, Term, Tick, WallMs};
use crate::journal::record::Diagnosis;
use crate::spec::ResumeIntent;
use serde::{Deserialize, Serialize};

/// A failure that is remembered until the configuration changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastFailure {
    pub attempt: AttemptNo,
    pub diagnosis: Diagnosis,
    /// Whether it came after a new step, so that the checkpoint it resumed from is not the cause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trained: bool,
}

/// Where the run was adopted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptionPoint {
    /// The step chosen then; `None`: a fresh start.
    pub step: Option<Step>,
    /// What the configuration requested.
    pub intent: ResumeIntent,
    pub term: Term,
    /// The first attempt after it. Until its launch the disk edits may be half done.
    #[serde(default)]
    pub attempt: AttemptNo,
    /// Whether steps of another run had to be moved aside.
    #[serde(default)]
    pub cleared: bool,
}

/// A live set that could not be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    pub ckpt: CkptId,
    /// Its pins then. If a save writes on, there is something new to copy.
    pub pins: PinsHash,
    pub why: String,
}

/// A requested stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWish {
    /// Only at the next proven step.
    pub after_save: bool,
    pub by: String,
    /// The high-water mark at the time of the request.
    #[serde(default)]
    pub mark: Option<Step>,
    #[serde(default)]
    pub at: Tick,
    /// Whether the run resumes when the scheduler restarts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hand_back: bool,
    /// When the scheduler kills everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Tick>,
}

impl StopWish {
    /// The request as the cause of an attempt's end.
    pub(super) fn cause(&self) -> EndCause {
        let text = match (self.hand_back, self.after_save) {
            (true, _) => format!("the machine is taken away: {}", self.by),
            (false, true) => format!("{} asked to stop at the next proven step", self.by),
            (false, false) => format!("{} asked to stop", self.by),
        };
        EndCause::Other(text)
    }
}

/// An operator's hold on the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHold {
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
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

/// A run that ended until an operator checked it, and that was cleared: no launch has followed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetGo {
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    pub since: WallMs,
}

impl LetGo {
    /// Text for display.
    #[must_use]
    pub fn words(&self) -> String {
        let ended = self.was.as_ref().map(|was| format!("; it had ended: {was}"));
        format!("goes on, as {} said{}", self.by, ended.unwrap_or_default())
    }
}

/// A step that an operator rolled the run back to: the next launch resumes from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollBack {
    pub to: Step,
    pub by: String,
    pub since: WallMs,
}

/// The scheduler's job that a term runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerJob {
    pub job: String,
    pub restarts: u32,
    /// When it ends; `None`: no limit, or not known.
    pub ends: Option<WallMs>,
}
