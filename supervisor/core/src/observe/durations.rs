//! Durations: a small store for each clock of a run, kept over all its attempts.
//!
//! Durations are counted in bins whose edges are a factor of 1.19 apart, which bounds memory. Once the counts become
//! large, all are halved, so recent durations dominate. A few samples say little about the tail, so it is extrapolated
//! as that of a Pareto distribution, which counts less as samples accumulate.

use crate::id::Ms;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bins per doubling.
const BINS: f64 = 4.0;
/// All counts are halved when their sum reaches this.
const WINDOW: u32 = 2048;
/// Prior for the tail: a Pareto distribution with a tail index of 1.5.
const TAIL: f64 = 2.0 / 3.0;
/// Weight of the prior, in samples of the tail.
const PRIOR: f64 = 2.0;
/// With few samples the tail ends at this many times the longest one.
const ROOM: f64 = 4.0;

/// Measurements of the time of a step that are kept: a save among them does not change their median.
const RECENT: usize = 15;

/// A clock of a run, which measures from one sign of progress to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurationKind {
    /// From the launch to the first sign.
    Startup,
    /// The first step after another sign of life.
    FirstStep,
    Step,
    Save,
    /// From the beginning of a save until its step was proven.
    SaveProven,
    Validate,
    /// From the announced end to the exit.
    Exit,
}

/// The durations of one clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durations {
    bins: BTreeMap<u16, u32>,
    count: u32,
}

impl Durations {
    /// Adds a duration.
    pub fn note(&mut self, took: Ms) {
        let bin = self.bins.entry(bin_of(took)).or_default();
        *bin = bin.saturating_add(1);
        self.count = self.count.saturating_add(1);
        if self.count >= WINDOW {
            self.bins.retain(|_, n| {
                *n /= 2;
                *n > 0
            });
            self.count = self.bins.values().sum();
        }
    }

    /// Number of samples that count.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The 99.9th percentile; `None` without samples.
    #[must_use]
    pub fn high(&self) -> Option<Ms> {
        let n = f64::from(self.count);
        let longest = edge(*self.bins.keys().next_back()?);
        let tail = (self.count / 10).max(1);
        let begin = self.nth_longest(tail.saturating_add(1));
        let mut left = tail;
        let mut excess = 0.0;
        for (bin, count) in self.bins.iter().rev() {
            let taken = left.min(*count);
            excess += f64::from(taken) * (edge(*bin) / begin).ln();
            left -= taken;
        }
        let index = (excess + PRIOR * TAIL) / (f64::from(tail) + PRIOR);
        let extrapolated = begin * (1000.0 * f64::from(tail) / n).max(1.0).powf(index);
        let room = longest * (1000.0 / n).powf(TAIL).clamp(1.0, ROOM);
        let seen = self.nth_longest(self.count / 1000 + 1);
        Some(Ms(extrapolated.min(room).max(seen) as u64))
    }

    /// The median; `None` without samples.
    #[must_use]
    pub fn median(&self) -> Option<Ms> {
        self.percentile(50)
    }

    /// The value that this percentage of the samples does not exceed; `None` without samples.
    #[must_use]
    pub fn percentile(&self, percent: u32) -> Option<Ms> {
        self.bins.keys().next()?;
        let above = u64::from(self.count) * u64::from(100_u32.saturating_sub(percent));
        let nth = u32::try_from(above.div_ceil(100)).unwrap_or(self.count).max(1);
        Some(Ms(self.nth_longest(nth) as u64))
    }

    /// Upper edge of the bin with the nth longest sample, or with the shortest.
    fn nth_longest(&self, nth: u32) -> f64 {
        let mut left = nth;
        for (bin, count) in self.bins.iter().rev() {
            if left <= *count {
                return edge(*bin);
            }
            left -= count;
        }
        self.bins.keys().next().map_or(0.0, |b| edge(*b))
    }
}

fn bin_of(took: Ms) -> u16 {
    ((took.0.max(1) as f64).log2() * BINS).floor() as u16
}

/// Upper edge of a bin in milliseconds.
fn edge(bin: u16) -> f64 {
    ((f64::from(bin) + 1.0) / BINS).exp2()
}

/// The clocks of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clocks {
    by: BTreeMap<DurationKind, Durations>,
    longest: Ms,
    /// Microseconds per step, as last measured, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recent: Vec<u64>,
}

impl Clocks {
    /// Returns true if nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Notes that a clock ended.
    pub fn note(&mut self, clock: DurationKind, took: Ms) {
        self.by.entry(clock).or_default().note(took);
    }

    /// Notes the time between two steps.
    pub fn note_gap(&mut self, gap: Ms) {
        self.longest = self.longest.max(gap);
    }

    /// Notes that this many steps took so long, with everything that happened in between.
    pub fn note_steps(&mut self, took: Ms, steps: u64) {
        if self.recent.len() >= RECENT {
            self.recent.remove(0);
        }
        self.recent.push(took.0.saturating_mul(1000) / steps.max(1));
    }

    /// The usual time of a step: the median of the last measurements; `None` without any.
    #[must_use]
    pub fn step_time(&self) -> Option<Ms> {
        let mut recent = self.recent.clone();
        recent.sort_unstable();
        Some(Ms(recent.get(recent.len() / 2)?.div_ceil(1000)))
    }

    /// Longest time between two steps, whatever happened in between.
    #[must_use]
    pub fn longest_gap(&self) -> Ms {
        self.longest
    }

    /// Durations of a clock; `None` if it never ended.
    #[must_use]
    pub fn of(&self, clock: DurationKind) -> Option<&Durations> {
        self.by.get(&clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = u64>) -> Durations {
        let mut d = Durations::default();
        durations.into_iter().for_each(|ms| d.note(Ms(ms)));
        d
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        assert_eq!(Durations::default().high(), None);
        assert!(of([0]).high().is_some());
        assert!(of([u64::MAX]).high().is_some());
    }

    #[test]
    fn few_samples_leave_room_and_many_do_not() {
        let high = |n: usize| of(std::iter::repeat_n(10_000, n)).high().unwrap().0;
        assert!((40_000..50_000).contains(&high(1)), "{}", high(1));
        assert!((10_000..30_000).contains(&high(100)), "{}", high(100));
        assert!((10_000..13_000).contains(&high(1900)), "{}", high(1900));
        assert!(high(1) >= high(10) && high(10) >= high(100) && high(100) >= high(1000));
    }

    #[test]
    fn the_usual_time_of_a_step_is_no_pause_and_no_old_one() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.step_time(), None);
        (0..20).for_each(|_| clocks.note_steps(Ms(5000), 1));
        (0..20).for_each(|n| clocks.note_steps(Ms(if n % 4 == 0 { 60_000 } else { 1000 }), 5));
        assert_eq!(clocks.step_time(), Some(Ms(200)));
        clocks.note_steps(Ms(1), u64::MAX);
        assert_eq!(clocks.recent.len(), RECENT);
    }

    #[test]
    fn the_recent_dominates_and_memory_is_bounded() {
        let mut d = of((0..10_000).map(|n| 1000 + n % 7));
        let short = d.high().unwrap();
        (0..4000).for_each(|n| d.note(Ms(5000 + n % 7)));
        assert!(d.high().unwrap().0 > 3 * short.0);
        (0..20_000).for_each(|n| d.note(Ms(1000 + n % 7)));
        assert!(d.high().unwrap() <= Ms(2 * short.0));
        (0..64).for_each(|bit| d.note(Ms(1 << bit)));
        assert!(d.bins.len() < 300 && d.count() < WINDOW);
    }
}
