//! A trainer of which its command tells nothing, as it was seen to be while it ran.

use crate::id::Step;
use crate::spec::{RunSpec, TrainerKind};
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// The training that the processes of an attempt began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerSeen {
    /// The trainer.
    pub trainer: TrainerKind,
    /// Its checkpoint root, absolute.
    pub root: Utf8PathBuf,
    /// It saves every so many steps, where that is said in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Its own number of steps to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// The last planned step, where it is said in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step: Option<Step>,
    /// It asks for a step to resume from by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// Why it is watched only, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<String>,
}

impl TrainerSeen {
    /// The specification of a run whose command tells nothing, with what was seen; the same where the run is watched only. Its own
    /// number of steps to keep stays its own affair: nothing is deleted for it.
    #[must_use]
    pub fn applied(&self, spec: &RunSpec) -> RunSpec {
        let mut out = spec.clone();
        if self.watched.is_some() || spec.root.is_some() {
            return out;
        }
        out.trainer = self.trainer;
        out.root = Some(self.root.clone());
        out.cadence.every = self.every;
        out.last_step = self.last_step;
        out.may_end_early = true;
        out.has_tail = true;
        out
    }

    /// What it means for the run, in words.
    #[must_use]
    pub fn words(&self) -> String {
        if let Some(why) = &self.watched {
            return format!("the trainer saves in {}; it is watched only: {why}", self.root);
        }
        let every = self.every.map_or_else(String::new, |n| format!(" every {n} steps"));
        let begins = match self.asks {
            true => "it asks for a step to resume from by itself, and finds the proven one as the newest",
            false => "a restart is given the newest proven one",
        };
        format!(
            "the trainer saves in {}{every}: its steps are proven from now on, and {begins}",
            self.root
        )
    }
}
