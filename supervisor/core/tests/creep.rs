//! Creep over many made-up series: what is flat, noisy or collected is no danger; what leaks is one, in time.

use supervise_core::id::{Step, Tick};
use supervise_core::observe::creep::{Creep, Forecast, ResourceUsage, WatchedResource};

const LIMIT: u64 = 1 << 36;
const SERIES: u64 = 40;
const STEPS: u64 = 160;

/// The same numbers each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }
}

/// Feeds shares of the limit, one a step, and returns the forecast after each sample.
fn told(shares: impl Iterator<Item = f64>) -> Vec<(u64, Option<Forecast>)> {
    let (mut creep, mut out) = (Creep::default(), Vec::new());
    for (step, share) in (1..).zip(shares) {
        let at = Tick(step * 10_000);
        if creep.is_due(Step(step), at) {
            let usage = ResourceUsage {
                what: WatchedResource::Node,
                used: (share.clamp(0.0, 1.0) * LIMIT as f64) as u64,
                of: LIMIT,
            };
            creep.note(Step(step), at, &[usage]);
            out.push((step, creep.forecasts(0).first().copied()));
        }
    }
    out
}

#[test]
fn flat_series_with_noise_and_bursts_end_nothing() {
    let mut n = Numbers(1);
    for series in 0..SERIES {
        let (level, noise, burst) = (n.between(0.1, 0.9), n.between(0.0, 0.3), n.between(0.0, 0.5));
        let shares: Vec<f64> = (0..STEPS)
            .map(|_| level + noise * (n.share() - 0.5) + if n.share() < 0.05 { burst } else { 0.0 })
            .collect();
        let found = told(shares.into_iter()).into_iter().find(|(_, f)| f.is_some());
        assert_eq!(found, None, "series {series}: level {level}, noise {noise}");
    }
}

#[test]
fn heaps_that_are_collected_end_nothing() {
    let mut n = Numbers(2);
    for series in 0..SERIES {
        let (low, high) = (n.between(0.1, 0.5), n.between(0.6, 0.95));
        let period = 2 + n.next() % 40;
        let noise = n.between(0.0, 0.05);
        let shares: Vec<f64> = (0..STEPS)
            .map(|step| low + (high - low) * (step % period) as f64 / period as f64 + noise * (n.share() - 0.5))
            .collect();
        // The first growth of many samples cannot be told from a leak: a fall is waited for.
        let seen = |step: u64| period < 8 || step > period;
        let found = told(shares.into_iter());
        let found = found.into_iter().find(|(step, f)| f.is_some() && seen(*step));
        assert_eq!(
            found, None,
            "series {series}: period {period}, {low} to {high}, noise {noise}"
        );
    }
}

#[test]
fn what_levels_off_ends_nothing_once_it_has() {
    let mut n = Numbers(3);
    for series in 0..SERIES {
        let (low, high, over) = (n.between(0.1, 0.5), n.between(0.6, 0.95), n.between(2.0, 25.0));
        let noise = n.between(0.0, 0.02);
        let shares: Vec<f64> = (0..STEPS)
            .map(|step| high - (high - low) * (-(step as f64) / over).exp() + noise * (n.share() - 0.5))
            .collect();
        for (step, found) in told(shares.into_iter()) {
            // Four time constants on, less than a fiftieth is still to come.
            let is_level = step as f64 > over * 4.0 + 8.0;
            let told = found.filter(|f| is_level && f.until.0 < step + 20);
            assert_eq!(
                told, None,
                "series {series} at step {step}: from {low} to {high} over {over}"
            );
        }
    }
}

#[test]
fn leaks_are_told_well_before_their_end_and_the_end_is_right() {
    let mut n = Numbers(4);
    for series in 0..SERIES {
        let (start, life) = (n.between(0.1, 0.5), n.between(30.0, 150.0));
        let slope = (1.0 - start) / life;
        let noise = n.between(0.0, 0.05);
        let shares: Vec<f64> = (1..life as u64)
            .map(|step| start + slope * step as f64 + noise * (n.share() - 0.5))
            .collect();
        let late = told(shares.into_iter());
        let late = late.iter().filter(|(step, _)| *step as f64 > life * 0.7);
        for (step, found) in late {
            let until = found.map(|f| f.until.0 as f64);
            let is_right = until.is_some_and(|until| (until - life).abs() < life * 0.2);
            assert!(
                is_right,
                "series {series} at step {step}: {until:?} of {life}, noise {noise}"
            );
        }
    }
}
