//! Activity of GPUs in a window, as a third family of signs.
//!
//! A kernel that waits for others, as NCCL's do, keeps its device busy all the time but hardly uses its memory, and
//! draws a third of the power of a step; a device whose process sleeps does nothing. Measured on two H100
//! (`tests/fixtures/activity/cuda*.json`): a training step is 0 to 84 % busy, uses its memory 0 to 59 % of the time and
//! draws 127 to 405 W; a spinning kernel is 100 % busy, 0 %, 124 to 133 W. The shares are samples: a step of 350 W may
//! show 0 % in a window, but its power tells it from an idle device.

use super::{ENOUGH, KEPT, LOW, RankState, VERY_LOW};
use crate::observe::durations::DurationKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

pub const DEVICES_LIMIT: usize = 64;
/// A share that is at least this high in healthy windows can be missed, in thousandths.
const SHOWS: u32 = 20;
/// From this share of the time on, a device is constantly busy, ...
const ALL: u32 = 950;
/// ... and below this one it does not use its memory.
const NOTHING: u32 = 10;
/// A device without a profile works if it uses its memory for this share of the time.
const WORKS: u32 = 50;
/// A device that draws less than this share of the least power of healthy windows computes nothing.
const LOW_POWER: f64 = 0.6;

/// One device over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DevicePulse {
    /// Device index.
    pub index: u32,
    /// Power in milliwatts; 0: not reported.
    pub milliwatts: u32,
    /// Share of the time in which any kernel ran, in thousandths.
    pub busy: u32,
    /// Share of the time in which its memory was read or written, in thousandths.
    pub memory: u32,
    /// Whether the run names it. Work of other devices is no sign of life, because it may be someone else's.
    #[serde(default)]
    pub own: bool,
}

/// A device in a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLook {
    /// The window.
    pub pulse: DevicePulse,
    /// Verdict on it; `None`: not known.
    pub sign: Option<RankState>,
}

impl DeviceLook {
    pub(super) fn words(&self) -> String {
        let p = &self.pulse;
        let power = match p.milliwatts {
            0 => String::new(),
            mw => format!(", {} W", mw / 1000),
        };
        let (busy, memory) = (p.busy / 10, p.memory / 10);
        let what = match self.sign {
            Some(RankState::Spinning) => "spins",
            Some(RankState::Still) => "does nothing",
            Some(_) => "works",
            None => "cannot be told",
        };
        format!(
            "GPU {} {what} ({busy} % busy, {memory} % at its memory{power})",
            p.index
        )
    }
}

/// Healthy windows of each device in each phase.
#[derive(Debug, Default)]
pub(super) struct Devices {
    profiles: BTreeMap<(u32, DurationKind), VecDeque<DevicePulse>>,
}

impl Devices {
    pub(super) fn note(&mut self, pulses: &[DevicePulse], clock: DurationKind) {
        for pulse in pulses.iter().take(DEVICES_LIMIT) {
            if self.profiles.len() >= 5 * DEVICES_LIMIT && !self.profiles.contains_key(&(pulse.index, clock)) {
                continue;
            }
            let windows = self.profiles.entry((pulse.index, clock)).or_default();
            if windows.len() >= KEPT {
                windows.pop_front();
            }
            windows.push_back(*pulse);
        }
    }

    pub(super) fn look(&self, pulses: &[DevicePulse], clock: DurationKind) -> Vec<DeviceLook> {
        let looked = pulses.iter().take(DEVICES_LIMIT).filter_map(|pulse| {
            let windows = self.profiles.get(&(pulse.index, clock));
            let healthy = windows.filter(|w| w.len() >= ENOUGH);
            let idles = healthy
                .is_some_and(|w| w.iter().all(|h| h.busy < SHOWS) && !(pulse.own && is_powerless(pulse, w)))
                && pulse.busy < SHOWS;
            let sign = healthy.map_or_else(|| unknown(pulse), |healthy| judge(pulse, healthy));
            let sign = sign.filter(|s| pulse.own || *s != RankState::Alive);
            (!idles).then_some(DeviceLook { pulse: *pulse, sign })
        });
        looked.collect()
    }
}

/// All devices together: alive if one is, still or spinning if none does anything, `None` if not known.
pub(super) fn all(looked: &[DeviceLook]) -> Option<RankState> {
    if looked.iter().any(|d| d.sign == Some(RankState::Alive)) {
        return Some(RankState::Alive);
    }
    let signs: Option<Vec<RankState>> = looked.iter().map(|d| d.sign).collect();
    signs?.into_iter().max()
}

fn unknown(now: &DevicePulse) -> Option<RankState> {
    (now.memory >= WORKS).then_some(RankState::Alive)
}

fn is_below(now: u32, least: u32, share: f64) -> bool {
    f64::from(now) < share * f64::from(least)
}

/// Returns true if it draws less power than in any healthy window. A throttled device draws little too, but keeps using
/// its memory.
fn is_powerless(now: &DevicePulse, healthy: &VecDeque<DevicePulse>) -> bool {
    let power = healthy.iter().map(|h| h.milliwatts).min().unwrap_or_default();
    now.memory < WORKS && now.milliwatts > 0 && is_below(now.milliwatts, power, LOW_POWER)
}

fn judge(now: &DevicePulse, healthy: &VecDeque<DevicePulse>) -> Option<RankState> {
    let least = |of: fn(&DevicePulse) -> u32| healthy.iter().map(of).min().unwrap_or_default();
    let (busy, memory) = (least(|h| h.busy), least(|h| h.memory));
    let powerless = is_powerless(now, healthy);
    let moves_nothing = |p: &DevicePulse| p.busy >= ALL && p.memory < NOTHING;
    if now.busy >= ALL && powerless || moves_nothing(now) && !healthy.iter().any(moves_nothing) {
        return Some(RankState::Spinning);
    }
    // An idle device that is not ours shows nothing about this run.
    if now.busy < SHOWS && powerless && now.own || busy >= SHOWS && is_below(now.busy, busy, VERY_LOW) {
        return Some(RankState::Still);
    }
    (memory >= SHOWS && !is_below(now.memory, memory, LOW)).then_some(RankState::Alive)
}
