//! Forecasts of resources that run out step by step.
//!
//! Keeps a few samples per attempt and thins them out as they accumulate; [`trend`] says what counts as a trend. Usage
//! that levels off, as caches do, ends no run and is not reported.

mod trend;

use crate::id::{Ms, Step, Tick};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trend::{Trend, trend};

const SAMPLES: usize = 48;
/// The first samples are at least this far apart.
const APART: Ms = Ms(250);
/// Growth below this share of the limit is noise.
const NOISE: f64 = 0.05;
/// Steps or saves are slower if the trend added this share of the initial time ...
const SLOWER: f64 = 0.5;
/// ... and at least this many milliseconds.
const SLOWER_MS: f64 = 1000.0;

/// Resources that can run out, and times that can grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchedResource {
    /// Memory of the workers' control group, if it has a limit.
    Memory,
    /// Memory of the machine.
    Node,
    /// Memory that Ray allows its workers: it kills them beyond that.
    Ray,
    /// Space in `/dev/shm`.
    Shm,
    /// Space on the file system of the checkpoints, sampled at saves.
    Disk,
    /// Open files of the process that is closest to its limit.
    Files,
    /// Milliseconds per step, including everything between steps. No limit.
    StepTime,
    /// Milliseconds per save. No limit.
    SaveTime,
}

impl WatchedResource {
    /// Its name in messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Memory => "memory of the control group",
            Self::Node => "memory of the machine",
            Self::Ray => "memory that Ray allows its workers",
            Self::Shm => "room in /dev/shm",
            Self::Disk => "room on the disk of the checkpoints",
            Self::Files => "open files of one process",
            Self::StepTime => "time of a step",
            Self::SaveTime => "time of a save",
        }
    }

    /// Returns true if a relaunch frees it.
    #[must_use]
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Memory | Self::Node | Self::Ray)
    }

    /// Returns true if it is sampled at saves, independently of the others.
    fn is_of_saves(self) -> bool {
        matches!(self, Self::Disk | Self::SaveTime)
    }
}

/// Usage of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// The resource.
    pub what: WatchedResource,
    /// Bytes or files in use.
    pub used: u64,
    /// Limit in bytes or files.
    pub of: u64,
}

/// The samples of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Creep {
    samples: BTreeMap<WatchedResource, Vec<(Step, u64, u64)>>,
    /// Time of the last samples taken at a step, and the distance between samples.
    #[serde(default)]
    last: Option<Tick>,
    #[serde(default)]
    apart: Ms,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_step: Option<Step>,
}

/// When a resource runs out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    pub what: WatchedResource,
    /// Growth per step, in bytes or files.
    pub per_step: f64,
    /// Bytes or files in use.
    pub used: u64,
    /// Limit in bytes or files.
    pub of: u64,
    /// The last step that it lasts for.
    pub until: Step,
}

impl Forecast {
    /// Bytes or files left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.of.saturating_sub(self.used)
    }
}

/// A time that grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slower {
    pub what: WatchedResource,
    /// The trend's value at the first sample.
    pub from: Ms,
    /// The trend's value now.
    pub to: Ms,
}

impl Creep {
    /// Returns true if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns true if a sample should be taken at this step.
    #[must_use]
    pub fn is_due(&self, step: Step, now: Tick) -> bool {
        self.last_step.is_none_or(|last| step > last)
            && self.last.is_none_or(|last| now.since(last) >= self.apart.max(APART))
    }

    /// Returns true if the disk should be sampled after this saved step.
    #[must_use]
    pub fn is_disk_due(&self, saved: Step) -> bool {
        let disk = self.samples.get(&WatchedResource::Disk).and_then(|s| s.last());
        disk.is_none_or(|(last, ..)| saved > *last)
    }

    /// Adds samples.
    pub fn note(&mut self, step: Step, at: Tick, usage: &[ResourceUsage]) {
        let mut is_full = false;
        for u in usage {
            is_full |= self.add(u.what, step, u.used, u.of);
        }
        if usage.iter().all(|u| u.what.is_of_saves()) {
            return;
        }
        let steps = self.last_step.map_or(0, |before| step.0.saturating_sub(before.0));
        let each = self.last.and_then(|then| at.since(then).0.checked_div(steps));
        if let Some(each) = each {
            self.add(WatchedResource::StepTime, step, each, 0);
        }
        if is_full {
            // The steps themselves may be further apart.
            let own = self.step_time().unwrap_or_default().0.saturating_mul(steps);
            self.apart = Ms(self.apart.max(APART).0.max(own).saturating_mul(2));
        }
        self.last = Some(at);
        self.last_step = Some(step);
    }

    /// Notes how long a save after this step took.
    pub fn note_save(&mut self, step: Step, took: Ms) {
        self.add(WatchedResource::SaveTime, step, took.0, 0);
    }

    /// Starts another clock: the time in between is not measured.
    pub fn restart(&mut self) {
        self.last = None;
    }

    /// Adds a sample. Returns true if there were too many, in which case every other one was dropped.
    fn add(&mut self, what: WatchedResource, step: Step, used: u64, of: u64) -> bool {
        let samples = self.samples.entry(what).or_default();
        if samples.last().is_none_or(|(last, ..)| step > *last) {
            samples.push((step, used, of));
        }
        let is_full = samples.len() > SAMPLES;
        if is_full {
            let mut keep = false;
            samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        is_full
    }

    /// Resources that run out, soonest first. `save`: bytes of one save.
    #[must_use]
    pub fn forecasts(&self, save: u64) -> Vec<Forecast> {
        let all = self.samples.iter();
        let mut all: Vec<_> = all.filter_map(|(what, s)| forecast(*what, s, save)).collect();
        all.sort_by_key(|f| f.until);
        all
    }

    /// Times that grew by much.
    #[must_use]
    pub fn slower(&self) -> Vec<Slower> {
        [WatchedResource::StepTime, WatchedResource::SaveTime]
            .into_iter()
            .filter_map(|what| slower(what, self.samples.get(&what)?))
            .collect()
    }

    /// Recent time per step, including everything between steps; `None` if not known.
    #[must_use]
    pub fn step_time(&self) -> Option<Ms> {
        let times = self.samples.get(&WatchedResource::StepTime)?;
        let mut late: Vec<u64> = times.iter().rev().take(8).map(|(_, ms, _)| *ms).collect();
        late.sort_unstable();
        late.get(late.len() / 2).copied().map(Ms)
    }
}

fn points(samples: &[(Step, u64, u64)]) -> Vec<(f64, f64)> {
    samples
        .iter()
        .map(|(step, used, _)| (step.0 as f64, *used as f64))
        .collect()
}

fn forecast(what: WatchedResource, samples: &[(Step, u64, u64)], save: u64) -> Option<Forecast> {
    let (first, last) = (samples.first()?, samples.last()?);
    if last.2 == 0 {
        return None;
    }
    let filled = || {
        (what == WatchedResource::Disk)
            .then(|| filled_by_saves(samples, save))
            .flatten()
    };
    let Trend { per_step, grown, .. } = trend(&points(samples)).or_else(filled)?;
    // On a huge file system no growth is a large share of the total, so compare with the free space at the first
    // sample.
    let room = if what == WatchedResource::Disk {
        first.2.saturating_sub(first.1)
    } else {
        last.2
    };
    let smallest = if what == WatchedResource::Files { 0.1 } else { 1.0 };
    if per_step < smallest || grown < room as f64 * NOISE {
        return None;
    }
    let mut left = last.2.saturating_sub(last.1);
    if what == WatchedResource::Disk {
        // Even if old steps are deleted, a save needs space next to them while it is written.
        let saves = (samples.len() - 1) as f64;
        let each = per_step * (last.0.0 - first.0.0) as f64 / saves.max(1.0);
        if each * 2.0 < save as f64 {
            left = left.saturating_sub(save);
        }
    }
    Some(Forecast {
        what,
        per_step,
        used: last.1,
        of: last.2,
        until: Step(last.0.0.saturating_add((left as f64 / per_step) as u64)),
    })
}

/// Detects a disk where nothing is deleted: four samples are enough if each save adds about its own size.
fn filled_by_saves(samples: &[(Step, u64, u64)], save: u64) -> Option<Trend> {
    let late = samples.get(samples.len().checked_sub(4)?..)?;
    let (first, last) = (late.first()?, late.last()?);
    let is_a_save = |pair: &[(Step, u64, u64)]| match pair {
        [before, after] => after.1.saturating_sub(before.1) >= (save / 2).max(1),
        _ => false,
    };
    let grown = last.1.saturating_sub(first.1) as f64;
    late.windows(2).all(is_a_save).then(|| Trend {
        per_step: grown / last.0.0.saturating_sub(first.0.0).max(1) as f64,
        grown,
        from: first.1 as f64,
        to: last.1 as f64,
    })
}

fn slower(what: WatchedResource, samples: &[(Step, u64, u64)]) -> Option<Slower> {
    let Trend { from, to, .. } = trend(&points(samples))?;
    let is_much = from > 0.0 && to - from >= (from * SLOWER).max(SLOWER_MS);
    is_much.then_some(Slower {
        what,
        from: Ms(from as u64),
        to: Ms(to as u64),
    })
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
                let of = |what| ResourceUsage {
                    what,
                    used: used(step),
                    of: 1000 * MIB,
                };
                creep.note(Step(step), at, &[of(WatchedResource::Memory)]);
            }
        }
        creep
    }

    fn first(creep: &Creep) -> Option<Forecast> {
        creep.forecasts(0).first().copied()
    }

    /// Free bytes after the save of every tenth step, on a disk of 1 TiB.
    fn saved(n: u64, free: impl Fn(u64) -> u64) -> Creep {
        let mut creep = Creep::default();
        for save in 1..=n {
            let of = 1 << 40;
            let usage = ResourceUsage {
                what: WatchedResource::Disk,
                used: of - free(save),
                of,
            };
            creep.note(Step(save * 10), Tick(save), &[usage]);
        }
        creep
    }

    #[test]
    fn a_leak_is_seen_and_its_end_told() {
        let creep = sampled(10, |step| 100 * MIB + step * 50 * MIB);
        let f = first(&creep).unwrap();
        assert_eq!(
            (f.what, f.left(), f.until),
            (WatchedResource::Memory, 400 * MIB, Step(18))
        );
        assert_eq!(f.per_step as u64, 50 * MIB);
        assert_eq!(creep.step_time(), Some(Ms::secs(10)));
    }

    #[test]
    fn bursts_do_not_move_it() {
        let noisy = |step: u64| 100 * MIB + step * 20 * MIB + if step.is_multiple_of(7) { 200 * MIB } else { 0 };
        let f = first(&sampled(20, noisy)).unwrap();
        assert!((18 * MIB..24 * MIB).contains(&(f.per_step as u64)), "{}", f.per_step);
    }

    #[test]
    fn what_is_steady_levels_off_or_swings_ends_nothing() {
        assert_eq!(first(&sampled(100, |_| 500 * MIB)), None);
        assert_eq!(first(&sampled(100, |step| 500 * MIB + step.min(20) * 10 * MIB)), None);
        assert_eq!(first(&sampled(100, |step| 500 * MIB + step % 2 * 300 * MIB)), None);
        assert_eq!(first(&sampled(100, |step| 500 * MIB + (step % 10) * 30 * MIB)), None);
        assert_eq!(first(&sampled(5, |step| step * 150 * MIB)), None);
        // Small noise upwards.
        assert_eq!(first(&sampled(100, |step| 500 * MIB + step * 1024)), None);
    }

    #[test]
    fn a_long_run_keeps_few_samples_and_still_sees_a_slow_leak() {
        let creep = sampled(10_000, |step| 100 * MIB + step * (MIB / 20));
        assert!(creep.samples[&WatchedResource::Memory].len() <= SAMPLES);
        let f = first(&creep).unwrap();
        assert!((17_000..19_000).contains(&f.until.0), "{f:?}");
    }

    #[test]
    fn resources_that_are_sampled_together_do_not_thin_each_other() {
        let mut creep = Creep::default();
        for step in 1..=100 {
            let usage = [WatchedResource::Memory, WatchedResource::Node, WatchedResource::Shm]
                .map(|what| ResourceUsage { what, used: 1, of: 2 });
            let at = Tick(step * 10_000);
            if creep.is_due(Step(step), at) {
                creep.note(Step(step), at, &usage);
            }
        }
        assert_eq!(creep.apart, Ms(40_000));
    }

    #[test]
    fn a_disk_that_fills_with_saves_ends_at_the_save_that_does_not_fit() {
        // Each save takes 20 GiB more; 35 GiB are left after the eighth.
        let creep = saved(8, |save| (195 - save * 20) << 30);
        let f = first(&creep).unwrap();
        assert_eq!((f.what, f.until.0), (WatchedResource::Disk, 80 + 17));
        // The trainer deletes old steps but leaves a little behind each time: a save of 20 GiB needs its space.
        let creep = saved(8, |save| (100 - save * 5) << 30);
        let until = |save: u64| creep.forecasts(save << 30).first().map(|f| f.until.0);
        assert_eq!((until(20), until(0)), (Some(80 + 80), Some(80 + 120)));
        assert_eq!(first(&saved(40, |_| 30 << 30)), None);
        // Four saves with nothing deleted are enough.
        let few = |n, size: u64| saved(n, |save| (100 - save * 20) << 30).forecasts(size << 30);
        assert_eq!(few(4, 20).first().map(|f| f.until.0), Some(40 + 10));
        assert_eq!((few(3, 20), few(4, 50)), (vec![], vec![]));
    }

    #[test]
    fn steps_that_get_slower_are_told_and_steady_ones_are_not() {
        let paced = |each: &dyn Fn(u64) -> u64| {
            let (mut creep, mut at) = (Creep::default(), 0);
            for step in 1..=200 {
                at += each(step);
                if creep.is_due(Step(step), Tick(at)) {
                    let used = ResourceUsage {
                        what: WatchedResource::Node,
                        used: 1,
                        of: 100,
                    };
                    creep.note(Step(step), Tick(at), &[used]);
                }
            }
            creep.slower()
        };
        let found = paced(&|step| 1000 + step * 10);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].what == WatchedResource::StepTime && found[0].to.0 > 2500,
            "{found:?}"
        );
        assert_eq!(paced(&|step| 1000 + step % 7 * 100), []);
        // Every tenth step is long.
        assert_eq!(paced(&|step| if step % 10 == 0 { 9000 } else { 1000 }), []);
    }
}
