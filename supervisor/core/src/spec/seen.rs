//! A trainer that the command does not name, as recognized while it ran.

use crate::id::Step;
use crate::spec::{RunSpec, TrainerKind};
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// The training that the processes of an attempt started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerSeen {
    /// The trainer.
    pub trainer: TrainerKind,
    /// Its checkpoint root, absolute.
    pub root: Utf8PathBuf,
    /// Save interval in steps, if it is set in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// How many steps it keeps itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// The last planned step, if it is set in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step: Option<Step>,
    /// Whether it asks for a step to resume from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// Why the run is only observed, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<String>,
}

impl TrainerSeen {
    /// Adds what was recognized to the specification of a run whose command does not name it; unchanged if the run is
    /// only observed. Nothing is deleted on behalf of the trainer's own number of kept steps.
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

    /// What this means for the run, for messages.
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
