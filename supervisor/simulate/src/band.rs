//! Several seeds together: means, and the band that holds nine of ten.

use crate::run::SimulatedRun;
use std::collections::BTreeMap;
use supervise_core::ledger::TimeCategory;

/// Mean, and the 5th and 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SeedBand {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl SeedBand {
    /// The band of these values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1) as f64;
        let at = |share: f64| {
            let place = share * last;
            let (below, part) = (place.floor() as usize, place.fract());
            let low = values.get(below).copied().unwrap_or_default();
            let high = values.get(below + 1).copied().unwrap_or(low);
            low + (high - low) * part
        };
        Self {
            mean: values.iter().sum::<f64>() / (values.len().max(1) as f64),
            low: at(0.05),
            high: at(0.95),
        }
    }
}

/// The runs of all seeds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeedSummary {
    pub goodput: SeedBand,
    /// Wall time in ms.
    pub wall_ms: SeedBand,
    pub failures: SeedBand,
    pub calls: SeedBand,
    /// Mean share of the time by category.
    pub parts: BTreeMap<TimeCategory, f64>,
    pub seeds: u64,
    /// Seeds whose run finished.
    pub finished: u64,
}

impl SeedSummary {
    #[must_use]
    pub fn of(runs: &[SimulatedRun]) -> Self {
        let band = |of: &dyn Fn(&SimulatedRun) -> f64| SeedBand::of(runs.iter().map(of));
        let mut parts = BTreeMap::new();
        for run in runs {
            let whole = run.parts.whole().0.max(1) as f64;
            for (part, ms) in run.parts.iter() {
                *parts.entry(part).or_insert(0.0) += ms.0 as f64 / whole / runs.len() as f64;
            }
        }
        Self {
            goodput: band(&|run| run.parts.goodput().unwrap_or_default()),
            wall_ms: band(&|run| run.parts.whole().0 as f64),
            failures: band(&|run| run.failures as f64),
            calls: band(&|run| run.calls as f64),
            parts,
            seeds: runs.len() as u64,
            finished: runs.iter().filter(|run| run.finished).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_interpolated() {
        let band = SeedBand::of((0..=100).rev().map(f64::from));
        assert_eq!((band.mean, band.low, band.high), (50.0, 5.0, 95.0));
        let one = SeedBand::of([0.5]);
        assert_eq!((one.mean, one.low, one.high), (0.5, 0.5, 0.5));
    }
}
