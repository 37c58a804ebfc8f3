//! The ranks' ten-second windows, and what they mean.

use crate::guard::counters::{RankCounter, WatchedRank, WindowCounts, name_of, waits_in};
use crate::guard::nodes::Gathered;
use supervise_core::event::gpu;
use supervise_core::observe::activity::{ActivitySample, ActivityWindow, DevicePulse, RankState, Watcher};
use supervise_core::observe::creep::ResourceUsage;
use supervise_core::observe::durations::DurationKind;

/// A sample is reported after this long without progress.
const QUIET_MS: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct RankWatch {
    watcher: Watcher,
    counter: RankCounter,
    output: u64,
    devices: gpu::DeviceWindow,
    device_works: bool,
    /// A rank had no core for most of the last window.
    starved: bool,
    progress: u64,
}

impl RankWatch {
    pub(crate) fn new(now: u64, ms_per_tick: u64) -> Self {
        Self {
            watcher: Watcher::default(),
            counter: RankCounter::new(now, ms_per_tick),
            output: 0,
            devices: gpu::DeviceWindow::default(),
            device_works: false,
            starved: false,
            progress: now,
        }
    }

    pub(crate) fn due(&self) -> u64 {
        self.counter.due()
    }

    pub(crate) fn helper(&self) -> Option<i32> {
        self.counter.helper()
    }

    pub(crate) fn was_helper(&mut self, pid: i32) -> bool {
        self.counter.was_helper(pid)
    }

    pub(crate) fn on_progress(&mut self, now: u64) {
        self.progress = now;
        self.watcher.progress();
    }

    /// Open files of the process nearest to its limit, returned once per window.
    pub(crate) fn take_files(&mut self) -> Option<ResourceUsage> {
        self.counter.files.take()
    }

    pub(crate) fn on_devices(&mut self, pulses: Vec<DevicePulse>) {
        pulses.into_iter().for_each(|p| self.devices.add(p));
    }

    /// Returns true if a GPU was as busy in the last window as it is while the attempt makes progress.
    pub(crate) fn is_device_at_work(&self) -> bool {
        self.device_works
    }

    /// Returns true if a rank was runnable for most of the last window, and had no core.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    pub(crate) fn on_output(&mut self, bytes: u64) {
        self.output = self.output.saturating_add(bytes);
    }

    /// Ends a window. `Some`: the state of the ranks, after a while without progress.
    pub(crate) fn window(
        &mut self,
        now: u64,
        workers: &[WatchedRank],
        known: impl Iterator<Item = i32>,
        clock: DurationKind,
    ) -> Option<ActivitySample> {
        let (output, devices) = (std::mem::take(&mut self.output), self.devices.take());
        (self.device_works, self.starved) = (false, false);
        let single = workers.len() == 1;
        let counts = self.counter.window(now, workers, single, known)?;
        let mut look = self.judge(now, counts, output, devices, clock)?;
        for rank in &mut look.ranks {
            rank.name = single.then(|| name_of(rank.pid)).flatten();
            rank.waits = may_wait(rank.sign).then(|| waits_in(rank.pid)).flatten();
        }
        Some(look)
    }

    /// Like [`Self::window`], for the ranks of all nodes. Their GPU activity is not reported.
    pub(crate) fn of_nodes(&mut self, now: u64, told: Gathered, clock: DurationKind) -> Option<ActivitySample> {
        let output = std::mem::take(&mut self.output);
        let mut look = self.judge(now, told.counts, output, Vec::new(), clock)?;
        for rank in &mut look.ranks {
            if let Some(place) = told.places.get(&(rank.worker, rank.pid)) {
                rank.name.clone_from(&place.name);
                rank.node = Some(place.node.clone());
                rank.waits = place.waits.clone().filter(|_| may_wait(rank.sign));
            }
        }
        Some(look)
    }

    fn judge(
        &mut self,
        now: u64,
        counts: WindowCounts,
        output: u64,
        devices: Vec<DevicePulse>,
        clock: DurationKind,
    ) -> Option<ActivitySample> {
        let window = ActivityWindow {
            over_ms: counts.over_ms,
            network: counts.network,
            output,
            pulses: counts.pulses,
            devices,
        };
        self.starved = window.is_starved();
        let look = self.watcher.window(window, clock);
        self.device_works = look.is_device_at_work();
        (now.saturating_sub(self.progress) >= QUIET_MS).then_some(look)
    }
}

fn may_wait(sign: RankState) -> bool {
    matches!(sign, RankState::Still | RankState::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::nodes::RankLocation;
    use supervise_core::id::WorkerId;
    use supervise_core::observe::activity::RankSample;

    fn of_two_nodes(second: RankSample, network: u64) -> Gathered {
        let rank = |n: u32, pulse: RankSample| RankSample {
            worker: WorkerId(n),
            pid: 4710 + n as i32,
            ..pulse
        };
        let first = if network > 0 { HEALTHY } else { WAITS };
        let place = |node: &str| RankLocation {
            node: node.to_owned(),
            name: None,
            waits: Some("futex".to_owned()),
        };
        Gathered {
            counts: WindowCounts {
                over_ms: 10_000,
                network: Some(network),
                pulses: vec![rank(0, first), rank(1, second)],
            },
            places: [((WorkerId(0), 4710), place("n1")), ((WorkerId(1), 4711), place("n2"))].into(),
        }
    }

    const HEALTHY: RankSample = RankSample {
        worker: WorkerId(0),
        pid: 0,
        state: b'S',
        cpu_ms: 5000,
        wait_ms: 0,
        switches: 900,
        faults: 5000,
        bytes: 400_000,
    };
    const WAITS: RankSample = RankSample {
        cpu_ms: 0,
        switches: 10,
        faults: 0,
        bytes: 0,
        ..HEALTHY
    };

    #[test]
    fn a_hang_names_worker_and_node() {
        let mut pulses = RankWatch::new(0, 10);
        let mut now = 0;
        let mut looks = |second: RankSample, network, gets_on: bool| {
            now += 10_000;
            let look = pulses.of_nodes(now, of_two_nodes(second, network), DurationKind::Step);
            if gets_on {
                pulses.on_progress(now);
            }
            look
        };
        for _ in 0..6 {
            assert_eq!(looks(HEALTHY, 8_000_000, true), None);
        }
        let spins = RankSample { cpu_ms: 3000, ..WAITS };
        assert_eq!(looks(spins, 0, false), None, "not for long yet");
        assert!(!looks(spins, 0, false).unwrap().is_stuck());
        let look = looks(spins, 0, false).unwrap();
        assert!(look.is_stuck());
        assert_eq!(
            look.words(),
            "worker 1 on node n2 (pid 4711) spins: 30 % of a core, and nothing comes of it; \
             worker 0 on node n1 (pid 4710) waits (futex)"
        );
    }
}
