//! Collapse of a policy: follows its entropy and reward over the training records of a run.
//!
//! The operator is notified, but nothing is ended: a confident policy, or a harder part of the data, may be intended.
//! Both are compared with the run's own history, so no unit or scale of a reward is assumed. A whole streak of records
//! must show it; a single non-finite value breaks the streak.

use crate::id::Step;
use crate::observe::numbers::{MetricValue, StepNumbers, TrainingMetric};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Records from which the initial values are taken.
const EARLY: usize = 16;
/// Records in a row that must show a collapse.
pub const STREAK: usize = 20;
/// An entropy below this share of the early median has collapsed.
const LEFT: f64 = 0.05;
/// A reward within this share of its range above the lowest value is at its floor.
const FLAT: f64 = 0.02;

/// A collapse that the newest records show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Collapse {
    pub what: TrainingMetric,
    /// The first step of the streak.
    pub since: Step,
    /// What it is compared with: the early median of the entropy, or the best median of a streak of rewards.
    pub before: f64,
    pub now: f64,
}

/// The history of a run's entropy and reward, in bounded memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CollapseTracker {
    step: Option<Step>,
    early: Vec<MetricValue>,
    entropies: VecDeque<(Step, MetricValue)>,
    rewards: VecDeque<(Step, MetricValue)>,
    lowest: Option<MetricValue>,
    best: Option<MetricValue>,
}

impl CollapseTracker {
    /// Returns true if no record was taken in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.step.is_none()
    }

    /// Takes in training records. If one is older than the newest, the run went back, so the streak restarts.
    pub fn note(&mut self, records: &[StepNumbers]) {
        for record in records {
            let Some(step) = record.step else { continue };
            if self.step >= Some(step) {
                self.entropies.clear();
                self.rewards.clear();
            }
            self.step = Some(step);
            if let Some(n) = record.of.get(TrainingMetric::Entropy) {
                if self.early.len() < EARLY && n.is_finite() {
                    self.early.push(MetricValue(n));
                }
                push(&mut self.entropies, step, n);
            }
            if let Some(n) = record.of.get(TrainingMetric::Reward) {
                push(&mut self.rewards, step, n);
                self.lowest = best_of(self.lowest, n, f64::min);
                if let Some(median) = streak(&self.rewards).as_deref().and_then(median) {
                    self.best = best_of(self.best, median, f64::max);
                }
            }
        }
    }

    /// Collapses that the newest records show.
    #[must_use]
    pub fn collapses(&self) -> Vec<Collapse> {
        [self.entropy(), self.reward()].into_iter().flatten().collect()
    }

    fn entropy(&self) -> Option<Collapse> {
        let early: Vec<f64> = self.early.iter().map(|r| r.0).collect();
        let before = median(&early).filter(|m| early.len() == EARLY && *m > 0.0)?;
        let lies_low = streak(&self.entropies)?.iter().all(|n| *n < LEFT * before);
        collapse(TrainingMetric::Entropy, &self.entropies, before).filter(|_| lies_low)
    }

    fn reward(&self) -> Option<Collapse> {
        let (lowest, best) = (self.lowest?.0, self.best?.0);
        let range = best - lowest;
        let limit = lowest + FLAT * range;
        // A reward that was never above its floor has not been learned yet; far from zero, rounding errors are no
        // range.
        let has_learnt = range > FLAT * best.abs().max(lowest.abs()) && limit > lowest;
        let lies_flat = streak(&self.rewards)?.iter().all(|n| *n <= limit);
        collapse(TrainingMetric::Reward, &self.rewards, best).filter(|_| has_learnt && lies_flat)
    }
}

fn collapse(what: TrainingMetric, of: &VecDeque<(Step, MetricValue)>, before: f64) -> Option<Collapse> {
    let ((since, _), (_, now)) = (of.front()?, of.back()?);
    Some(Collapse {
        what,
        since: *since,
        before,
        now: now.0,
    })
}

fn push(to: &mut VecDeque<(Step, MetricValue)>, step: Step, n: f64) {
    if to.len() >= STREAK {
        to.pop_front();
    }
    to.push_back((step, MetricValue(n)));
}

fn best_of(known: Option<MetricValue>, n: f64, choose: impl Fn(f64, f64) -> f64) -> Option<MetricValue> {
    let chosen = known.map_or(n, |k| choose(k.0, n));
    Some(MetricValue(chosen)).filter(|r| r.0.is_finite()).or(known)
}

fn streak(of: &VecDeque<(Step, MetricValue)>) -> Option<Vec<f64>> {
    let numbers: Vec<f64> = of.iter().map(|(_, n)| n.0).collect();
    (numbers.len() >= STREAK && numbers.iter().all(|n| n.is_finite())).then_some(numbers)
}

fn median(of: &[f64]) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::numbers::StepMetrics;
    use proptest::prelude::*;

    fn told(series: impl IntoIterator<Item = (TrainingMetric, f64)>) -> Vec<(usize, Collapse)> {
        let mut course = CollapseTracker::default();
        let mut out = Vec::new();
        for (step, (what, n)) in series.into_iter().enumerate() {
            let mut of = StepMetrics::default();
            of.set(what, n);
            let step_of = Some(Step(step as u64));
            course.note(&[StepNumbers { step: step_of, of }]);
            out.extend(course.collapses().into_iter().map(|c| (step, c)));
        }
        out
    }

    fn entropy(n: f64) -> (TrainingMetric, f64) {
        (TrainingMetric::Entropy, n)
    }

    fn reward(n: f64) -> (TrainingMetric, f64) {
        (TrainingMetric::Reward, n)
    }

    #[test]
    fn an_entropy_that_fell_is_told_once_a_streak_shows_it() {
        let fell = (0..100).map(|n| entropy(if n < 40 { 0.8 } else { 0.01 }));
        let told = told(fell);
        let (at, first) = told[0];
        assert_eq!((at, first.since, first.what), (59, Step(40), TrainingMetric::Entropy));
        assert_eq!((first.before, first.now), (0.8, 0.01));
    }

    #[test]
    fn a_reward_that_fell_to_its_floor_is_told_and_one_that_never_rose_is_not() {
        for floor in [0.0, -1.0, 3.0] {
            let fell = (0..100).map(|n| reward(floor + if n < 60 { 0.01 * f64::from(n) } else { 0.0 }));
            let told = told(fell);
            assert_eq!((told[0].0, told[0].1.since), (79, Step(60)), "{floor}");
        }
        // Nothing is solved yet, except for a lucky batch.
        let sparse = (0..1000).map(|n| reward(if n % 90 == 7 { 0.25 } else { 0.0 }));
        assert_eq!(told(sparse), []);
        assert_eq!(told((0..100).map(|_| reward(1.0))), []);
    }

    #[test]
    fn no_streak_goes_over_a_step_back_or_a_number_that_is_none() {
        let mut course = CollapseTracker::default();
        let note = |course: &mut CollapseTracker, step: u64, n: f64| {
            let mut of = StepMetrics::default();
            of.set(TrainingMetric::Entropy, n);
            let step = Some(Step(step));
            course.note(&[StepNumbers { step, of }]);
        };
        (0..30).for_each(|n| note(&mut course, n, 1.0));
        (30..45).for_each(|n| note(&mut course, n, 0.0));
        (30..45).for_each(|n| note(&mut course, n, 0.0));
        assert_eq!(course.collapses(), []);
        note(&mut course, 45, f64::NAN);
        (46..60).for_each(|n| note(&mut course, n, 0.0));
        assert_eq!(course.collapses(), []);
        (60..66).for_each(|n| note(&mut course, n, 0.0));
        assert_eq!(course.collapses().len(), 1);
        let text = serde_json::to_string(&course).unwrap();
        assert_eq!(serde_json::from_str::<CollapseTracker>(&text).unwrap(), course);
    }

    proptest! {
        /// An entropy that scatters by a factor of four either way and sinks to a fifth is normal training.
        #[test]
        fn an_entropy_that_sinks_slowly_is_no_collapse(
            scale in -6.0..6.0_f64,
            noise in prop::collection::vec(-2.0..2.0_f64, 400),
        ) {
            let level = |n: usize| scale - 2.3 * n as f64 / 400.0;
            let series = noise.iter().enumerate().map(|(n, e)| entropy((level(n) + e).exp2()));
            prop_assert_eq!(told(series), []);
        }

        /// A reward that scatters about any level, at any scale, with a floor of its own, is no collapse.
        #[test]
        fn a_reward_that_scatters_is_no_collapse(
            center in -1e3..1e3_f64,
            spread in 1e-3..1e3_f64,
            noise in prop::collection::vec(0.0..1.0_f64, 400),
        ) {
            let series = noise.iter().map(|e| reward(center + spread * e));
            prop_assert_eq!(told(series), []);
        }

        /// Any values: no panic, and nothing is reported for a run that is too short.
        #[test]
        fn odd_numbers_do_no_harm(numbers in prop::collection::vec(any::<f64>(), 0..80)) {
            let found = told(numbers.iter().map(|n| entropy(*n)).chain(numbers.iter().map(|n| reward(*n))));
            let streaks = numbers.len() >= STREAK;
            prop_assert!(streaks || found.is_empty());
        }
    }
}
