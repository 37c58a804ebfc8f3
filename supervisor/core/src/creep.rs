//! Creep: memory or room that shrinks step by step, and the step at which none is left.
//!
//! A few samples of each attempt are kept, thinned as they get more. The slope is the median of the slopes between all pairs (Theil and
//! Sen): a burst or a collection does not move it. What levels off, as caches do, ends no run and is not told.

use crate::id::{Ms, Step, Tick};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Samples that are kept of one resource.
const SAMPLES: usize = 48;
/// Fewer samples tell nothing.
const FEW: usize = 6;
/// The first samples come at least so far apart.
const APART: Ms = Ms(250);
/// Growth below this share of the limit is noise.
const NOISE: f64 = 0.05;

/// Things that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory of the workers' control group, where that has a limit.
    Memory,
    /// Memory of the machine.
    Node,
    /// Room in `/dev/shm`.
    Shm,
}

impl Resource {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Memory => "memory of the control group",
            Self::Node => "memory of the machine",
            Self::Shm => "room in /dev/shm",
        }
    }

    /// A relaunch gives it back.
    #[must_use]
    pub fn is_memory(self) -> bool {
        self != Self::Shm
    }
}

/// How much of something is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of what.
    pub what: Resource,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that there are.
    pub of: u64,
}

/// The samples of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Creep {
    samples: BTreeMap<Resource, Vec<(Step, u64, u64)>>,
    /// When the last ones were taken, and how far apart they are.
    #[serde(default)]
    last: Option<Tick>,
    #[serde(default)]
    apart: Ms,
}

/// When something runs out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The resource.
    pub what: Resource,
    /// Bytes more with each step.
    pub per_step: u64,
    /// Bytes that are left.
    pub left: u64,
    /// The last step that it lasts for.
    pub until: Step,
}

impl Creep {
    /// Nothing was sampled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// A sample at this step is of use.
    #[must_use]
    pub fn is_due(&self, step: Step, now: Tick) -> bool {
        let newer = self
            .samples
            .values()
            .all(|s| s.last().is_none_or(|(last, ..)| step > *last));
        newer && self.last.is_none_or(|last| now.since(last) >= self.apart.max(APART))
    }

    /// Takes a sample in.
    pub fn note(&mut self, step: Step, at: Tick, usage: &[Usage]) {
        self.last = Some(at);
        for u in usage {
            let samples = self.samples.entry(u.what).or_default();
            if samples.last().is_none_or(|(last, ..)| step > *last) {
                samples.push((step, u.used, u.of));
            }
            if samples.len() > SAMPLES {
                let mut keep = false;
                samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.apart = Ms(self.apart.max(APART).0.saturating_mul(2));
            }
        }
    }

    /// The first thing to run out, if anything does.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        let all = self
            .samples
            .iter()
            .filter_map(|(what, samples)| forecast(*what, samples));
        all.min_by_key(|f| f.until)
    }
}

fn forecast(what: Resource, samples: &[(Step, u64, u64)]) -> Option<Forecast> {
    let (first, last) = (samples.first()?, samples.last()?);
    if samples.len() < FEW || last.2 == 0 {
        return None;
    }
    let (all, late) = (slopes(samples), slopes(&samples[samples.len() / 2..]));
    let slope = quantile(&all, 0.5)?;
    // The later half alone, and most pairs of it, have to grow as well: else it levels off.
    let steady = quantile(&late, 0.5)? >= slope * 0.5 && quantile(&late, 0.2)? > 0.0 && quantile(&all, 0.2)? > 0.0;
    let grown = last.1.saturating_sub(first.1) as f64;
    if slope < 1.0 || !steady || grown < last.2 as f64 * NOISE {
        return None;
    }
    let left = last.2.saturating_sub(last.1);
    Some(Forecast {
        what,
        per_step: slope as u64,
        left,
        until: Step(last.0.0.saturating_add((left as f64 / slope) as u64)),
    })
}

/// The slopes between all pairs, in order.
fn slopes(samples: &[(Step, u64, u64)]) -> Vec<f64> {
    let mut out = Vec::with_capacity(samples.len() * samples.len() / 2);
    for (n, (from, before, _)) in samples.iter().enumerate() {
        for (to, after, _) in samples.iter().skip(n + 1) {
            let steps = to.0.saturating_sub(from.0).max(1) as f64;
            out.push((*after as f64 - *before as f64) / steps);
        }
    }
    out.sort_unstable_by(f64::total_cmp);
    out
}

fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len().saturating_sub(1) as f64 * share) as usize;
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sampled(n: u64, used: impl Fn(u64) -> u64) -> Creep {
        let mut creep = Creep::default();
        for step in 1..=n {
            let at = Tick(step * 10_000);
            if creep.is_due(Step(step), at) {
                let what = Resource::Memory;
                let usage = Usage {
                    what,
                    used: used(step),
                    of: 1000 * MIB,
                };
                creep.note(Step(step), at, &[usage]);
            }
        }
        creep
    }

    #[test]
    fn a_leak_is_seen_and_its_end_told() {
        let f = sampled(10, |step| 100 * MIB + step * 50 * MIB).forecast().unwrap();
        assert_eq!(
            (f.what, f.per_step, f.left, f.until),
            (Resource::Memory, 50 * MIB, 400 * MIB, Step(18))
        );
    }

    #[test]
    fn bursts_do_not_move_it() {
        let noisy = |step: u64| 100 * MIB + step * 20 * MIB + if step.is_multiple_of(7) { 200 * MIB } else { 0 };
        let f = sampled(20, noisy).forecast().unwrap();
        assert!((18 * MIB..24 * MIB).contains(&f.per_step), "{}", f.per_step);
    }

    #[test]
    fn what_is_steady_levels_off_or_swings_ends_nothing() {
        assert_eq!(sampled(100, |_| 500 * MIB).forecast(), None);
        assert_eq!(
            sampled(100, |step| 500 * MIB + step.min(20) * 10 * MIB).forecast(),
            None
        );
        assert_eq!(sampled(100, |step| 500 * MIB + step % 2 * 300 * MIB).forecast(), None);
        assert_eq!(sampled(100, |step| 500 * MIB + (step % 10) * 30 * MIB).forecast(), None);
        assert_eq!(sampled(5, |step| step * 150 * MIB).forecast(), None);
        // Small noise upwards.
        assert_eq!(sampled(100, |step| 500 * MIB + step * 1024).forecast(), None);
    }

    #[test]
    fn a_long_run_keeps_few_samples_and_still_sees_a_slow_leak() {
        let creep = sampled(10_000, |step| 100 * MIB + step * (MIB / 20));
        assert!(creep.samples[&Resource::Memory].len() <= SAMPLES);
        let f = creep.forecast().unwrap();
        assert!((17_000..19_000).contains(&f.until.0), "{f:?}");
    }
}
