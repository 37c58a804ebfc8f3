//! What to expect if failures are exponential: the closed form, and the save interval at which it is best.

use crate::plan::SimulationPlan;
use supervise_core::id::Ms;

/// What decides the expected goodput. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodputModel {
    /// How long a save stops the training.
    pub stall: f64,
    /// From a failure until the training continues.
    pub back: f64,
    /// Mean time between failures.
    pub mean: f64,
    /// Share of the failures that cost one more save interval.
    pub damaged: f64,
}

impl GoodputModel {
    #[must_use]
    pub fn of(plan: &SimulationPlan) -> Self {
        let seconds = |ms: Ms| ms.0 as f64 / 1000.0;
        // What is trained while a save is not proven yet is lost with it.
        let unproven = plan.save.0.saturating_sub(plan.stall.0);
        let replaced = plan.replaced * seconds(plan.replace);
        Self {
            stall: seconds(plan.stall),
            back: seconds(plan.detect) + seconds(plan.launch) + replaced + seconds(Ms(unproven)),
            mean: seconds(plan.failures.mean()),
            damaged: plan.damaged,
        }
    }

    /// Expected goodput with this training between saves: Daly's renewal argument, where a restart can fail as well.
    #[must_use]
    pub fn goodput(&self, interval: f64) -> f64 {
        let cycle = interval + self.stall;
        let back = self.back + self.damaged * cycle;
        let wall = self.mean * (back / self.mean).exp() * (cycle / self.mean).exp_m1();
        if wall > 0.0 { interval / wall } else { 0.0 }
    }

    /// The interval in steps with the best expected goodput, from `least` to `most`.
    #[must_use]
    pub fn best(&self, step: Ms, least: u64, most: u64) -> u64 {
        let of = |every: u64| self.goodput(every as f64 * step.0 as f64 / 1000.0);
        // The goodput rises up to one interval and falls from there on.
        let (mut low, mut high) = (least.max(1), most.max(least).max(1));
        while low < high {
            let middle = low + (high - low) / 2;
            if of(middle) < of(middle + 1) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The shortest interval in steps at which a save ends before the next one begins.
#[must_use]
pub fn least_interval(plan: &SimulationPlan) -> u64 {
    plan.save
        .0
        .saturating_sub(plan.stall.0)
        .div_ceil(plan.step.0.max(1))
        .max(1)
}

/// The save interval in steps at which the expected goodput of the plan is best.
#[must_use]
pub fn best_interval(plan: &SimulationPlan) -> u64 {
    GoodputModel::of(plan).best(plan.step, least_interval(plan), plan.steps)
}

/// What halving one time would do to the expected goodput, if the interval is `fixed` or else the best one each time.
#[must_use]
pub fn gain(plan: &SimulationPlan, fixed: bool, halve: fn(&mut SimulationPlan)) -> f64 {
    let goodput = |plan: &SimulationPlan| {
        let every = if fixed { plan.every } else { best_interval(plan) };
        GoodputModel::of(plan).goodput(every as f64 * plan.step.0 as f64 / 1000.0)
    };
    let mut other = plan.clone();
    halve(&mut other);
    (goodput(&other) - goodput(plan)).max(0.0)
}
