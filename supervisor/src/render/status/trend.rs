//! Loss and reward of the last steps, in one line.

use supervise_core::observe::numbers::{TrainingMetric, keep};
use supervise_core::state::RunState;

/// Columns of the drawing.
const WIDTH: usize = 24;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Drawn where a value is not finite.
const ODD: char = '×';

/// The newest values of a metric, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricTrend {
    pub name: &'static str,
    values: Vec<f64>,
}

impl MetricTrend {
    pub(super) fn of(s: &RunState) -> Vec<Self> {
        let mut steps = s.progress.before.clone();
        if let Some(a) = &s.attempt {
            keep(&mut steps, &a.training.numbers);
        }
        let trend = |what: TrainingMetric| Self {
            name: what.words(),
            values: steps.iter().filter_map(|n| n.of.get(what)).collect(),
        };
        let all = [TrainingMetric::Loss, TrainingMetric::Reward].map(trend);
        all.into_iter().filter(|t| t.values.len() > 1).collect()
    }

    /// `▁▂▄█ 0.2500, 0.2500 to 2.000 in 120 steps`; `None`: there is nothing to draw.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let last = short(*self.values.last()?);
        let (low, high) = range(&self.values);
        let range = match low <= high {
            true => format!(", {} to {}", short(low), short(high)),
            false => String::new(),
        };
        let count = self.values.len();
        Some(format!("{} {last}{range} in {count} steps", self.drawn()))
    }

    fn drawn(&self) -> String {
        let columns = self.values.len().min(WIDTH);
        let ends = (0..=columns).map(|n| n * self.values.len() / columns.max(1));
        let ends: Vec<usize> = ends.collect();
        let means: Vec<f64> = ends
            .windows(2)
            .map(|w| self.values.get(w[0]..w[1]).unwrap_or_default())
            // Halved first: the sum of the largest numbers overflows.
            .map(|part| part.iter().map(|v| v / part.len() as f64).sum())
            .collect();
        let (low, high) = range(&means);
        let bar = |mean: &f64| {
            let part = (mean / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0).max(f64::MIN_POSITIVE);
            let at = (part * (BARS.len() - 1) as f64).round() as usize;
            match mean.is_finite() {
                true => BARS.get(at).copied().unwrap_or('█'),
                false => ODD,
            }
        };
        means.iter().map(bar).collect()
    }
}

/// The smallest and the largest finite value; the first is larger if there is none.
fn range(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().filter(|v| v.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(*v), high.max(*v))
    })
}

/// Formats with four significant digits.
pub(in crate::render) fn short(n: f64) -> String {
    let size = n.abs();
    match () {
        () if !n.is_finite() || n == 0.0 => n.to_string(),
        () if (1e-3..1e6).contains(&size) => {
            let digits = (3.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{n:.digits$}")
        }
        () => format!("{n:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[f64]) -> Option<String> {
        let trend = MetricTrend {
            name: "loss",
            values: values.to_vec(),
        };
        trend.words()
    }

    #[test]
    fn a_trend_is_drawn_from_low_to_high_with_its_numbers() {
        let down: Vec<f64> = (0..8).rev().map(f64::from).collect();
        assert_eq!(words(&down).unwrap(), "█▇▆▅▄▃▂▁ 0, 0 to 7.000 in 8 steps");
        assert_eq!(words(&[2.0, 2.0]).unwrap(), "▁▁ 2.000, 2.000 to 2.000 in 2 steps");
        let long: Vec<f64> = (0..256).map(f64::from).collect();
        let drawn = words(&long).unwrap();
        assert!(
            drawn.starts_with("▁▁▂▂▂▃") && drawn.ends_with("▇██ 255.0, 0 to 255.0 in 256 steps"),
            "{drawn}"
        );
        assert_eq!(drawn.split(' ').next().unwrap().chars().count(), WIDTH);
        assert_eq!(words(&[]), None);
    }

    #[test]
    fn what_is_no_number_has_a_sign_of_its_own() {
        assert_eq!(words(&[1.0, f64::NAN]).unwrap(), "▁× NaN, 1.000 to 1.000 in 2 steps");
        assert_eq!(words(&[f64::NAN, f64::INFINITY]).unwrap(), "×× inf in 2 steps");
        assert_eq!(
            words(&[f64::MIN, f64::MAX]).unwrap(),
            "▁█ 1.80e308, -1.80e308 to 1.80e308 in 2 steps"
        );
    }
}
