//! The cost of failures, and how long each attempt took to come back.

use super::parts::{TimeCategory, WaitFor};
use crate::id::{AttemptNo, Ms, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Classes that are told apart; further ones are counted together.
const CLASSES: usize = 128;
/// The name of those.
const OTHERS: &str = "others";

/// Cost of the failures of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Attempts that ended so.
    pub ends: u64,
    /// Steps that had to be trained again.
    pub lost_steps: u64,
    /// Wall time from such an end until a step was trained that had not been before, without saves, without waiting for a
    /// person and without what nobody saw.
    pub lost: Ms,
}

/// The failure that the time is charged to which is spent until the run is where it was before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CostOwner {
    /// None.
    #[default]
    Nobody,
    /// One whose class is not known yet, and the time so far.
    Pending(Ms),
    /// One of this class.
    Class(String),
}

/// Costs by class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Costs {
    pub(super) by: BTreeMap<String, Cost>,
    pub(super) blame: CostOwner,
}

impl Costs {
    fn of(&mut self, class: &str) -> &mut Cost {
        let is_new = !self.by.contains_key(class) && self.by.len() >= CLASSES;
        let name = if is_new { OTHERS } else { class };
        self.by.entry(name.to_owned()).or_default()
    }

    pub(super) fn charge(&mut self, ms: u64) {
        match &mut self.blame {
            CostOwner::Nobody => {}
            CostOwner::Pending(sum) => sum.0 = sum.0.saturating_add(ms),
            CostOwner::Class(class) => {
                let class = class.clone();
                let cost = self.of(&class);
                cost.lost.0 = cost.lost.0.saturating_add(ms);
            }
        }
    }

    pub(super) fn lose(&mut self, steps: u64) {
        if let CostOwner::Class(class) = &self.blame {
            let class = class.clone();
            let cost = self.of(&class);
            cost.lost_steps = cost.lost_steps.saturating_add(steps);
        }
    }

    /// The class of the newest failure is known now.
    pub(super) fn name(&mut self, class: &str) {
        if let CostOwner::Pending(sum) = self.blame {
            let cost = self.of(class);
            cost.ends = cost.ends.saturating_add(1);
            cost.lost.0 = cost.lost.0.saturating_add(sum.0);
            self.blame = CostOwner::Class(class.to_owned());
        }
    }
}

/// How an attempt came to be: the time from the end of the one before to its first step, in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryTime {
    /// The attempt that was launched last; 0: none yet.
    pub attempt: AttemptNo,
    /// Class of the failure that made it necessary.
    pub after: Option<String>,
    /// The failure of the attempt before, until it was noticed.
    pub notice: Ms,
    /// Until no process of it was left.
    pub end: Ms,
    /// Until a resume point was chosen.
    pub prove: Ms,
    /// Waiting, but for a person.
    pub wait: Ms,
    /// Until its workers ran.
    pub launch: Ms,
    /// Until it printed its first step.
    pub first_step: Ms,
    /// The run waited for a person, or was stopped by its people.
    pub person: Ms,
    /// Nobody saw.
    pub unknown: Ms,
    /// Steps of the attempt before that it trains again.
    pub lost_steps: u64,
    /// The step it started from.
    pub from: Step,
    /// It printed a step.
    pub complete: bool,
}

impl RecoveryTime {
    /// All of it, but for what people took.
    #[must_use]
    pub fn took(&self) -> Ms {
        let parts = [
            self.notice,
            self.end,
            self.prove,
            self.wait,
            self.launch,
            self.first_step,
            self.unknown,
        ];
        Ms(parts.iter().fold(0, |sum, ms| sum.saturating_add(ms.0)))
    }

    /// `loads`: the workers run.
    pub(super) fn add(&mut self, part: TimeCategory, ms: u64, loads: bool) {
        let field = match part {
            TimeCategory::Noticing => &mut self.notice,
            TimeCategory::Ending => &mut self.end,
            TimeCategory::Proving => &mut self.prove,
            TimeCategory::Launching if loads => &mut self.first_step,
            TimeCategory::Launching => &mut self.launch,
            TimeCategory::Waiting(WaitFor::Person) | TimeCategory::Stopped => &mut self.person,
            TimeCategory::Waiting(_) => &mut self.wait,
            TimeCategory::Unknown => &mut self.unknown,
            TimeCategory::Productive | TimeCategory::Repeated | TimeCategory::Saving => return,
        };
        field.0 = field.0.saturating_add(ms);
    }
}
