//! The cost of failures, and how long each attempt took to recover.

use super::parts::{TimeCategory, WaitFor};
use crate::id::{AttemptNo, Ms, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most classes counted separately; the others are counted together.
const CLASSES: usize = 128;
const OTHERS: &str = "others";

/// Cost of the failures of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Number of attempts that ended with it.
    pub ends: u64,
    pub lost_steps: u64,
    /// Wall time from the failure until a new step was trained, without saves, without waiting for an operator and
    /// without unobserved time.
    pub lost: Ms,
}

/// The failure that pays for the time until the run is back where it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CostOwner {
    #[default]
    Nobody,
    /// A failure whose class is not known yet, and the time so far.
    Pending(Ms),
    Class(String),
}

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

    /// Names the class of the newest failure.
    pub(super) fn name(&mut self, class: &str) {
        if let CostOwner::Pending(sum) = self.blame {
            let cost = self.of(class);
            cost.ends = cost.ends.saturating_add(1);
            cost.lost.0 = cost.lost.0.saturating_add(sum.0);
            self.blame = CostOwner::Class(class.to_owned());
        }
    }
}

/// How an attempt recovered: the time from the end of the previous one to its first step, by phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryTime {
    /// The attempt that was launched last; 0: none yet.
    pub attempt: AttemptNo,
    /// Class of the failure before it.
    pub after: Option<String>,
    /// Until the failure was detected.
    pub notice: Ms,
    /// Until all processes of the previous attempt had exited.
    pub end: Ms,
    /// Until a resume point was chosen.
    pub prove: Ms,
    /// Waiting, except for an operator.
    pub wait: Ms,
    /// Until its workers were running.
    pub launch: Ms,
    /// Until it printed its first step.
    pub first_step: Ms,
    /// Time in which the run waited for an operator or was stopped by one.
    pub person: Ms,
    /// Time that was not observed.
    pub unknown: Ms,
    /// Steps of the previous attempt that it trains again.
    pub lost_steps: u64,
    /// The step it started from.
    pub from: Step,
    /// Whether it has printed a step.
    pub complete: bool,
}

impl RecoveryTime {
    /// The total, without the time that operators took.
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

    /// Adds time to a phase. `loads`: the workers are running.
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
