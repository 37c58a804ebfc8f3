//! How often to save: the interval at which saves, and the training that a failure repeats, cost least together.
//!
//! The optimum is Daly's third-order estimate (J. T. Daly, "A higher order estimate of the optimum checkpoint interval
//! for restart dumps", 2006). Only the time for which a save *stops* the training counts there; the time until it is
//! proven only adds to what a failure can cost. The failure rate is what the run has seen, with a weak prior for what
//! is usual on so many nodes.

mod promise;
mod spans;
mod times;

pub use promise::{LossBound, PromiseObstacle};
pub use spans::SaveSpans;
pub use times::SaveTimes;

use crate::ledger::TimeLedger;
use crate::rulebook::taxonomy::{self, FailureKind};

/// Sudden failures per node and second: 4 per 1,000 node-days. Published clusters report 2.3 to 6.5.
const PRIOR_NODE: f64 = 4.0 / 1000.0 / 86_400.0;
/// Sudden failures per second of the job's own software, whatever its size. This is a guess.
const PRIOR_JOB: f64 = 1.0 / (96.0 * 3600.0);
/// The prior counts as this many failures.
const PRIOR_WEIGHT: f64 = 0.5;
/// Share of the time that saves may take at most, ...
const SHARE: f64 = 0.10;
/// ... and if that is needed to lose no more than the user allows.
const SHARE_FOR_LOSS: f64 = 0.25;
/// An interval this close to the best one is not changed.
const CLOSE: f64 = 0.25;
/// Slow steps take this many times the median, until that is measured.
const SLOW_STEP: f64 = 1.25;
/// A save that stops the training for less than this share of a step counts as this long.
const LEAST_STALL: f64 = 0.01;

/// What a run has shown. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SaveMeasurements {
    /// Median duration of a step.
    pub step: f64,
    /// 90th percentile of it; 0: not known.
    pub slow_step: f64,
    /// Validations and other pauses, on average per step.
    pub between: f64,
    /// Median time for which a save stops the training.
    pub stall: f64,
    /// 90th percentile of the time from the beginning of a save until it is proven; at least `stall`.
    pub save: f64,
    /// Sudden failures.
    pub failures: u64,
    /// Training during which they were counted.
    pub trained: f64,
    pub nodes: u32,
}

impl SaveMeasurements {
    /// Expected time between two sudden failures.
    #[must_use]
    pub fn mean_time_between_failures(&self) -> f64 {
        let prior = f64::from(self.nodes.max(1)) * PRIOR_NODE + PRIOR_JOB;
        (PRIOR_WEIGHT / prior + self.trained) / (PRIOR_WEIGHT + self.failures as f64)
    }

    fn whole_step(&self) -> f64 {
        self.step + self.between
    }

    fn longest_step(&self) -> f64 {
        let slow = if self.slow_step > 0.0 {
            self.slow_step
        } else {
            SLOW_STEP * self.step
        };
        slow + self.between
    }

    /// Most training that a sudden failure can cost with this interval, if the newest step is whole: the failure comes
    /// just before the next step is proven.
    #[must_use]
    pub fn most_lost(&self, every: u64) -> f64 {
        every as f64 * self.longest_step() + self.save
    }

    /// Share of the time that saves and repeated training take together with this interval, to first order.
    #[must_use]
    pub fn cost(&self, every: u64) -> SaveCost {
        let trains = every as f64 * self.whole_step();
        let stall = self.stall / (self.stall + trains).max(f64::MIN_POSITIVE);
        let lost = trains / 2.0 + self.save;
        SaveCost {
            saving: stall,
            repeating: (lost / self.mean_time_between_failures()).min(1.0),
        }
    }
}

/// Expected shares of the time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaveCost {
    pub saving: f64,
    pub repeating: f64,
}

impl SaveCost {
    #[must_use]
    pub fn whole(&self) -> f64 {
        self.saving + self.repeating
    }
}

/// What bounds the interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SaveLimits {
    /// Most training in seconds that the user accepts to lose; `None`: not said.
    pub max_loss: Option<f64>,
    /// Saves that still fit on the disk, and the steps left, if nothing deletes older steps.
    pub room: Option<SaveCapacity>,
    /// The interval must be a multiple of this; 0 and 1: of anything.
    pub multiple_of: u64,
    /// The planned steps: a longer interval would never save.
    pub last: Option<u64>,
    /// The interval of today; `None`: it never saves between, or that is not known.
    pub now: Option<u64>,
}

/// Disk space if nothing deletes older steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaveCapacity {
    pub saves: u64,
    pub steps_left: u64,
}

/// What decided the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalReason {
    /// It costs least.
    Cost,
    /// More steps would lose more than the user accepts.
    MaxLoss,
    /// A single step takes longer than what the user accepts to lose.
    StepTooLong,
    /// More saves would take too much of the time.
    Stall,
    /// A save must end before the next begins.
    SaveLength,
    /// More saves would not fit on the disk.
    Disk,
    /// The present interval is as good.
    Unchanged,
}

/// The interval to use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaveInterval {
    /// In steps.
    pub every: u64,
    pub reason: IntervalReason,
    /// Most training in seconds that a sudden failure can cost, if the newest step is whole.
    pub most_lost: f64,
    /// Whether that is within what the user accepts.
    pub kept: bool,
}

/// Seconds of training between saves that stop it for `stall`, with failures every `between`.
fn daly(stall: f64, between: f64) -> f64 {
    if stall >= 2.0 * between {
        return between;
    }
    let x = stall / (2.0 * between);
    ((2.0 * stall * between).sqrt() * (1.0 + x.sqrt() / 3.0 + x / 9.0) - stall).max(0.0)
}

/// Chooses the interval.
#[must_use]
pub fn choose(seen: &SaveMeasurements, limits: &SaveLimits) -> SaveInterval {
    let step = seen.whole_step().max(f64::MIN_POSITIVE);
    let save = seen.save;
    let stall = seen.stall.max(LEAST_STALL * step);
    let mut every = ((daly(stall, seen.mean_time_between_failures()) / step).round() as u64).max(1);
    let mut reason = IntervalReason::Cost;
    if let Some(max_loss) = limits.max_loss {
        let most = ((max_loss - save) / seen.longest_step()).floor().max(0.0) as u64;
        if every > most {
            reason = if most >= 1 {
                IntervalReason::MaxLoss
            } else {
                IntervalReason::StepTooLong
            };
            every = most.max(1);
        }
    }
    let share = if reason == IntervalReason::Cost {
        SHARE
    } else {
        SHARE_FOR_LOSS
    };
    let by_stall = (seen.stall * (1.0 - share) / share / step).ceil() as u64;
    let by_length = (1.25 * (save - seen.stall) / step).ceil() as u64;
    let by_disk = limits.room.map_or(0, |room| match room.saves {
        0 => room.steps_left,
        saves => room.steps_left.div_ceil(saves),
    });
    let mut least = 1;
    let mut bound = None;
    for (steps, why) in [
        (by_stall, IntervalReason::Stall),
        (by_length, IntervalReason::SaveLength),
        (by_disk, IntervalReason::Disk),
    ] {
        if steps > least {
            (least, bound) = (steps, Some(why));
        }
    }
    if let Some(why) = bound.filter(|_| least > every) {
        (every, reason) = (least, why);
    }
    let multiple = limits.multiple_of.max(1);
    every = (every / multiple * multiple).max(multiple);
    if let Some(last) = limits.last.filter(|last| *last > 0) {
        every = every.min(last);
    }
    let accepted = |every: u64| limits.max_loss.is_none_or(|most| seen.most_lost(every) <= most + 1e-9);
    if let Some(now) = limits
        .now
        .filter(|now| *now >= least && *now != every && now % multiple == 0)
    {
        let close = every.abs_diff(now) as f64 <= CLOSE * now as f64;
        if close && accepted(now) {
            (every, reason) = (now, IntervalReason::Unchanged);
        }
    }
    SaveInterval {
        every,
        reason,
        most_lost: seen.most_lost(every),
        kept: accepted(every),
    }
}

/// Failures that no save could have been asked for beforehand, and that do not repeat at one step.
#[must_use]
pub fn sudden_failures(ledger: &TimeLedger) -> u64 {
    let counts = ledger.costs().iter().filter(|(class, _)| is_sudden(class));
    counts.map(|(_, cost)| cost.ends).fold(0, u64::saturating_add)
}

fn is_sudden(class: &str) -> bool {
    match taxonomy::rows().find(|row| row.code == class) {
        Some(row) => !matches!(
            row.kind,
            FailureKind::Operator | FailureKind::Deterministic | FailureKind::Report
        ),
        None => class != crate::ledger::HAND_BACK,
    }
}

#[cfg(test)]
mod tests;
