//! Comparison of steps that are trained twice: the metrics of a relaunch against those of the previous attempt.
//!
//! A deterministic trainer prints the same metrics. Another one prints metrics that differ no more than the run's own
//! steps do; that scale is taken from earlier steps. A much larger difference is a jump: what was resumed is not what
//! was saved.

use crate::id::Step;
use crate::observe::numbers::{KEPT, StepNumbers, TrainingMetric};

/// Differences between steps needed to know a run's own scatter.
const ENOUGH: usize = 8;
/// A jump is at least this many times the usual difference between two steps,
const USUAL: f64 = 8.0;
/// and this many times the largest one seen.
const LARGEST: f64 = 2.0;
/// Values whose relative difference is at most this were printed from the same value.
const SAME: f64 = 1e-6;

/// Result of the comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Equivalence {
    Equal {
        /// Number of steps that both printed.
        steps: usize,
    },
    /// They differ by no more than the run's own scatter.
    Within {
        /// Number of steps that both printed.
        steps: usize,
    },
    /// They differ, but too few steps are known to estimate the scatter.
    Unknown {
        /// Number of steps that both printed.
        steps: usize,
    },
    /// One of them jumped.
    Jump {
        what: TrainingMetric,
        step: Step,
        before: f64,
        now: f64,
    },
}

/// Compares the steps that both printed; `None` if there are none.
#[must_use]
pub fn compare(before: &[StepNumbers], now: &[StepNumbers]) -> Option<Equivalence> {
    let of = |step: Option<Step>| before.iter().find(|b| b.step == step && step.is_some());
    let both: Vec<(&StepNumbers, &StepNumbers)> = now.iter().filter_map(|n| Some((of(n.step)?, n))).collect();
    if both.is_empty() {
        return None;
    }
    let steps = both.len();
    let mut out = Equivalence::Equal { steps };
    for what in KEPT {
        let pairs = both
            .iter()
            .filter_map(|(b, n)| Some((n.step?, b.of.get(what)?, n.of.get(what)?)));
        let pairs: Vec<(Step, f64, f64)> = pairs.collect();
        if pairs.iter().all(|(_, b, n)| is_same(*b, *n)) {
            continue;
        }
        match judged(what, &pairs, before) {
            jump @ Equivalence::Jump { .. } => return Some(jump),
            worse @ Equivalence::Unknown { .. } => out = worse,
            other if matches!(out, Equivalence::Equal { .. }) => out = other,
            _ => {}
        }
    }
    Some(out)
}

fn judged(what: TrainingMetric, pairs: &[(Step, f64, f64)], before: &[StepNumbers]) -> Equivalence {
    let steps = pairs.len();
    let jump = |(step, before, now): (Step, f64, f64)| Equivalence::Jump {
        what,
        step,
        before,
        now,
    };
    if let Some(odd) = pairs.iter().find(|(_, b, n)| b.is_finite() && !n.is_finite()) {
        return jump(*odd);
    }
    let known: Vec<f64> = before
        .iter()
        .filter_map(|b| b.of.get(what))
        .filter(|n| n.is_finite())
        .collect();
    let mut changes: Vec<f64> = known.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    if changes.len() < ENOUGH {
        return Equivalence::Unknown { steps };
    }
    changes.sort_by(f64::total_cmp);
    let usual = changes[changes.len() / 2];
    let largest = changes[changes.len() - 1];
    let limit = (USUAL * usual).max(LARGEST * largest);
    let mut apart: Vec<(f64, (Step, f64, f64))> = pairs
        .iter()
        .filter(|(_, b, n)| b.is_finite() && n.is_finite())
        .map(|p| ((p.2 - p.1).abs(), *p))
        .collect();
    apart.sort_by(|a, b| a.0.total_cmp(&b.0));
    // One odd step among several is no jump: the median counts.
    match apart.get(apart.len() / 2) {
        Some((by, pair)) if *by > limit => jump(*pair),
        _ => Equivalence::Within { steps },
    }
}

fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= SAME * a.abs().max(b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::numbers::{MetricValue, StepMetrics};

    fn series(from: u64, values: &[f64]) -> Vec<StepNumbers> {
        let one = |(n, v): (usize, &f64)| StepNumbers {
            step: Some(Step(from + n as u64)),
            of: StepMetrics {
                loss: Some(MetricValue(*v)),
                ..StepMetrics::default()
            },
        };
        values.iter().enumerate().map(one).collect()
    }

    /// A simple generator for this test: uniform in 0..1.
    struct Random(u64);

    impl Random {
        fn unit(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 11) as f64) / (1_u64 << 53) as f64
        }

        fn noise(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }

        /// Heavy-tailed: Pareto with tail index 1.5, either sign.
        fn heavy(&mut self) -> f64 {
            let sign = if self.unit() < 0.5 { -1.0 } else { 1.0 };
            sign * (1.0 - self.unit()).powf(-1.0 / 1.5)
        }
    }

    #[test]
    fn the_same_numbers_are_equal_and_no_common_step_is_nothing() {
        let before = series(1, &[3.0, 2.5, 2.25, 2.0]);
        assert_eq!(compare(&before, &before[2..]), Some(Equivalence::Equal { steps: 2 }));
        assert_eq!(compare(&before, &series(5, &[1.9])), None);
        assert_eq!(compare(&[], &before), None);
        let nan = series(1, &[f64::NAN]);
        assert_eq!(compare(&nan, &nan), Some(Equivalence::Equal { steps: 1 }));
    }

    #[test]
    fn few_steps_tell_no_scatter() {
        let before = series(1, &[3.0, 2.5, 2.25]);
        assert_eq!(
            compare(&before, &series(3, &[9.0])),
            Some(Equivalence::Unknown { steps: 1 })
        );
        let odd = compare(&before, &series(3, &[f64::NAN]));
        assert!(matches!(odd, Some(Equivalence::Jump { .. })), "{odd:?}");
    }

    #[test]
    fn scatter_is_no_jump_and_a_lost_optimizer_is_one() {
        for kind in 0..2 {
            let mut random = Random(7 + kind);
            let mut false_alarms = 0;
            let mut found = 0;
            for _ in 0..2000 {
                let mut value = |n: u64, off: f64| {
                    let noise = if kind == 0 { random.noise() } else { random.heavy() };
                    2.0 - 0.002 * n as f64 + 0.05 * noise + off
                };
                let all: Vec<f64> = (0..60).map(|n| value(n, 0.0)).collect();
                let again: Vec<f64> = (50..60).map(|n| value(n, 0.0)).collect();
                let jumped: Vec<f64> = (50..60).map(|n| value(n, 5.0)).collect();
                let is_jump = |now: &[f64]| {
                    matches!(
                        compare(&series(0, &all), &series(50, now)),
                        Some(Equivalence::Jump { .. })
                    )
                };
                false_alarms += u32::from(is_jump(&again));
                found += u32::from(is_jump(&jumped));
            }
            assert_eq!(false_alarms, 0, "kind {kind}");
            // If single steps scatter as much as the jump, it is not detected.
            assert!(found > if kind == 0 { 1999 } else { 1200 }, "kind {kind}: {found}");
        }
    }
}
