//! The work of an attempt's processes, compared with their work while the attempt got on.
//!
//! The guard counts, in windows of ten seconds, what each rank uses. Windows that were followed by progress are healthy: they make
//! a profile of the rank in that phase. A later window is *still* or *spinning* only where two families of signs agree that it is
//! unlike all of them: CPU (time, faults, switches) and traffic (bytes of files, pipes and network). Background traffic and threads
//! that wake up are in the healthy windows as well, so that nothing is compared with zero. A rank that has no profile is still where
//! it neither computes nor says anything.
//!
//! A machine that is too busy slows everything down together. The time that a rank waited for a core is known, and what it did is
//! taken as many times as it would have done on a core of its own.

use crate::durations::Clock;
use crate::id::WorkerId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Most ranks, or processes of one driver, that are looked at one by one.
pub const RANKS_LIMIT: usize = 256;
/// Healthy windows kept for a rank in a phase.
const KEPT: usize = 32;
/// A profile of fewer says nothing.
const ENOUGH: usize = 4;
/// Windows that wait for progress.
const PENDING: usize = 64;
/// Starving takes what is seen at most so many times.
const STARVED: f64 = 20.0;
/// Below this share of a core nothing is computed.
const IDLE: f64 = 0.01;
/// A share of a core that a healthy rank uses, at least, to be one that matters and can be told by it.
const USES: f64 = 0.05;
/// From this share of a core on a rank is busy.
const BUSY: f64 = 0.03;
/// A sign that a healthy rank shows so often in a second, at least, can be missed.
const OFTEN: f64 = 2.0;
/// Bytes in a second that a healthy rank moves, at least, to be missed.
const FLOWS: f64 = 1024.0;
/// Share of the least of the healthy windows below which a window is unlike them.
const LOW: f64 = 0.4;
const VERY_LOW: f64 = 0.1;
/// Windows in a row before a sign counts.
pub const IN_A_ROW: u32 = 3;

/// Counters of one rank over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pulse {
    /// The worker it belongs to.
    pub worker: WorkerId,
    /// The rank's first process.
    pub pid: i32,
    /// State letter of that process at the end of the window.
    pub state: u8,
    /// CPU time of its tree, in milliseconds.
    pub cpu_ms: u64,
    /// Time that it waited for a core, in milliseconds.
    pub wait_ms: u64,
    /// Times that it gave up its core.
    pub switches: u64,
    /// Page faults of its tree that needed no disk.
    pub faults: u64,
    /// Bytes that its tree read and wrote.
    pub bytes: u64,
}

/// One window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Window {
    /// Its length in milliseconds.
    pub over_ms: u64,
    /// Bytes on the network, of everybody who shares it.
    pub network: u64,
    /// Bytes of output of all workers.
    pub output: u64,
    /// The ranks.
    pub pulses: Vec<Pulse>,
}

/// The judgement of a rank's windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// It works, or it cannot be told.
    Alive,
    /// It waits for a disk or a device, where no signal reaches it.
    Disk,
    /// It does nothing.
    Still,
    /// It computes, but unlike any healthy window.
    Spinning,
    /// A signal stopped it.
    Stopped,
    /// Its process is gone, and the others stay.
    Gone,
}

/// A rank in a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLook {
    /// The worker.
    pub worker: WorkerId,
    /// Its process.
    pub pid: i32,
    /// The sign.
    pub sign: Sign,
    /// For so many windows in a row.
    pub windows: u32,
    /// Hundredths of a core.
    pub cpu: u32,
    /// The call that its first thread waits in, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// The ranks that matter, after a window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Look {
    /// By worker and process.
    pub ranks: Vec<RankLook>,
}

impl Look {
    /// Returns true if a rank is stopped or gone, or no rank that matters is alive, each for long enough.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let lasts = |r: &RankLook| r.windows >= IN_A_ROW;
        let lost = |r: &RankLook| matches!(r.sign, Sign::Stopped | Sign::Gone) && lasts(r);
        let idle = |r: &RankLook| r.sign >= Sign::Still && lasts(r);
        self.ranks.iter().any(lost) || !self.ranks.is_empty() && self.ranks.iter().all(idle)
    }

    /// The ranks in words, the one that others may wait for first.
    #[must_use]
    pub fn words(&self) -> String {
        const TOLD: usize = 4;
        let mut ranks: Vec<&RankLook> = self.ranks.iter().collect();
        ranks.sort_by_key(|r| std::cmp::Reverse(r.sign));
        let mut out: Vec<String> = ranks.iter().take(TOLD).map(|r| r.words()).collect();
        if let Some(more) = ranks.len().checked_sub(TOLD).filter(|n| *n > 0) {
            out.push(format!("and {more} more"));
        }
        out.join("; ")
    }
}

impl RankLook {
    fn words(&self) -> String {
        let who = format!("worker {} (pid {})", self.worker, self.pid);
        let waits = self.waits.as_ref().map(|w| format!(" ({w})")).unwrap_or_default();
        match self.sign {
            Sign::Stopped => format!("{who} is stopped (T)"),
            Sign::Gone => format!("{who} is gone"),
            Sign::Spinning => format!("{who} spins: {} % of a core, and nothing comes of it", self.cpu),
            Sign::Still => format!("{who} waits{waits}"),
            Sign::Disk => format!("{who} waits for a disk or a device (D){waits}"),
            Sign::Alive => format!("{who} works"),
        }
    }
}

/// Signs of one window, in a second.
#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: f64,
    switches: f64,
    faults: f64,
    bytes: f64,
    network: f64,
}

/// Healthy windows of a rank in a phase.
#[derive(Debug, Default)]
struct Profile {
    windows: VecDeque<Sample>,
}

impl Profile {
    fn note(&mut self, sample: Sample) {
        if self.windows.len() >= KEPT {
            self.windows.pop_front();
        }
        self.windows.push_back(sample);
    }

    fn least(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        self.windows.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    fn mean_cpu(&self) -> f64 {
        self.windows.iter().map(|s| s.cpu).sum::<f64>() / self.windows.len().max(1) as f64
    }

    /// The rank does nothing, or computes to no end: two families say so.
    fn judge(&self, now: &Sample) -> Sign {
        let least_cpu = self.least(|s| s.cpu);
        let signs = [
            (now.faults, self.least(|s| s.faults)),
            (now.switches, self.least(|s| s.switches)),
        ];
        let [faults, _] = signs;
        let low = |(value, least): (f64, f64)| least < OFTEN || value < LOW * least;
        let idles = now.cpu < IDLE || least_cpu >= USES && now.cpu < LOW * least_cpu && low(faults);
        let mut told = signs.iter().filter(|(_, least)| *least >= OFTEN).peekable();
        let spins = now.cpu >= BUSY && told.peek().is_some() && told.all(|(value, least)| *value < VERY_LOW * least);
        let flows = [
            (now.bytes, self.least(|s| s.bytes)),
            (now.network, self.least(|s| s.network)),
        ];
        let mut flows = flows.iter().filter(|(_, least)| *least >= FLOWS).peekable();
        let dry = flows.peek().is_some() && flows.all(|(value, least)| *value < LOW * least);
        match (spins || idles && now.cpu >= BUSY, idles, dry) {
            (true, _, true) => Sign::Spinning,
            (_, true, true) => Sign::Still,
            _ => Sign::Alive,
        }
    }
}

/// Follows the ranks of one attempt.
#[derive(Debug, Default)]
pub struct Watcher {
    profiles: BTreeMap<(Key, Clock), Profile>,
    pending: VecDeque<(Window, Clock)>,
    streaks: BTreeMap<Key, (Sign, u32)>,
}

/// A rank: its worker, and its process where one worker starts them all.
type Key = (WorkerId, i32);

impl Watcher {
    /// The attempt got on: what was seen since it last did was healthy.
    pub fn progress(&mut self) {
        for (window, clock) in std::mem::take(&mut self.pending) {
            let starved = starved(&window);
            for pulse in &window.pulses {
                let key = ((pulse.worker, pulse.pid), clock);
                if self.profiles.len() >= 5 * RANKS_LIMIT && !self.profiles.contains_key(&key) {
                    continue;
                }
                let sample = sample(&window, pulse, starved);
                self.profiles.entry(key).or_default().note(sample);
            }
        }
        self.streaks.clear();
    }

    /// Judges a window.
    pub fn window(&mut self, window: Window, clock: Clock) -> Look {
        let starved = starved(&window);
        let most = self.most(clock);
        let mut ranks = Vec::new();
        let mut seen = BTreeMap::new();
        for pulse in &window.pulses {
            let key = (pulse.worker, pulse.pid);
            let now = sample(&window, pulse, starved);
            let profile = self.known(key, clock);
            let matters = match profile {
                Some(p) => p.mean_cpu() >= USES.min(most) && p.mean_cpu() >= VERY_LOW * most,
                None => most == 0.0 || now.cpu >= USES,
            };
            let sign = judge(pulse, profile, &now, window.output > 0);
            let before = self.streaks.get(&key).filter(|(s, _)| same(*s, sign));
            let windows = before.map_or(1, |(_, n)| n.saturating_add(1));
            seen.insert(key, (sign, windows));
            if matters || sign == Sign::Stopped {
                ranks.push(RankLook {
                    worker: pulse.worker,
                    pid: pulse.pid,
                    sign,
                    windows,
                    cpu: (100 * pulse.cpu_ms / window.over_ms.max(1)).min(100_000) as u32,
                    waits: None,
                });
            }
        }
        ranks.truncate(RANKS_LIMIT);
        self.streaks = seen;
        if self.pending.len() >= PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((window, clock));
        Look { ranks }
    }

    fn known(&self, key: Key, clock: Clock) -> Option<&Profile> {
        self.profiles.get(&(key, clock)).filter(|p| p.windows.len() >= ENOUGH)
    }

    /// The share of a core that the busiest rank uses in healthy windows of a phase.
    fn most(&self, clock: Clock) -> f64 {
        let known = self
            .profiles
            .iter()
            .filter(|((_, p), profile)| *p == clock && profile.windows.len() >= ENOUGH);
        known.map(|(_, p)| p.mean_cpu()).fold(0.0, f64::max)
    }
}

/// Still and spinning are both no sign of life: one may turn into the other.
fn same(a: Sign, b: Sign) -> bool {
    let idle = |s| matches!(s, Sign::Still | Sign::Spinning);
    a == b || idle(a) && idle(b)
}

fn judge(pulse: &Pulse, profile: Option<&Profile>, now: &Sample, output: bool) -> Sign {
    match (pulse.state, profile) {
        (b'T', _) => Sign::Stopped,
        (b'Z' | b'X' | 0, _) => Sign::Gone,
        (b'D', _) if now.cpu < IDLE => Sign::Disk,
        (_, Some(profile)) => match profile.judge(now) {
            Sign::Alive if now.cpu < IDLE && !output => Sign::Still,
            sign => sign,
        },
        (_, None) if now.cpu < IDLE && !output => Sign::Still,
        (_, None) => Sign::Alive,
    }
}

/// How many times more the ranks would have done, each on a core of its own.
fn starved(window: &Window) -> f64 {
    window.pulses.iter().map(starving).fold(1.0, f64::max)
}

fn starving(pulse: &Pulse) -> f64 {
    (1.0 + pulse.wait_ms as f64 / pulse.cpu_ms.max(1) as f64).min(STARVED)
}

fn sample(window: &Window, pulse: &Pulse, starved: f64) -> Sample {
    let seconds = window.over_ms.max(1) as f64 / 1000.0;
    let own = starving(pulse);
    Sample {
        cpu: pulse.cpu_ms as f64 * own / 1000.0 / seconds,
        switches: pulse.switches as f64 * own / seconds,
        faults: pulse.faults as f64 * own / seconds,
        bytes: pulse.bytes as f64 * own / seconds,
        network: window.network as f64 * starved / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: Pulse = Pulse {
        worker: WorkerId(0),
        pid: 100,
        state: b'R',
        cpu_ms: 9000,
        wait_ms: 0,
        switches: 900,
        faults: 5000,
        bytes: 400_000,
    };

    fn window(pulses: &[Pulse], network: u64) -> Window {
        let pulses = pulses.iter().zip(0..).map(|(p, n)| Pulse {
            worker: WorkerId(n),
            pid: 100 + n as i32,
            ..*p
        });
        Window {
            over_ms: 10_000,
            network,
            output: 0,
            pulses: pulses.collect(),
        }
    }

    /// After a minute of two healthy ranks, so many windows of others.
    fn after(pulses: &[Pulse], network: u64, windows: u32) -> Look {
        let mut w = Watcher::default();
        for _ in 0..6 {
            w.window(window(&[HEALTHY, HEALTHY], 8_000_000), Clock::Step);
            w.progress();
        }
        let mut look = Look::default();
        for _ in 0..windows {
            look = w.window(window(pulses, network), Clock::Step);
        }
        look
    }

    const SPINS: Pulse = Pulse {
        cpu_ms: 10_000,
        switches: 2,
        faults: 0,
        bytes: 0,
        ..HEALTHY
    };
    const WAITS: Pulse = Pulse {
        state: b'S',
        cpu_ms: 40,
        switches: 20,
        faults: 1,
        bytes: 100,
        ..HEALTHY
    };

    #[test]
    fn a_rank_that_spins_while_the_other_waits_is_stuck_after_half_a_minute() {
        for spin in [
            SPINS,
            Pulse {
                cpu_ms: 500,
                switches: 100,
                ..SPINS
            },
        ] {
            assert!(!after(&[spin, WAITS], 3000, 2).is_stuck());
            let look = after(&[spin, WAITS], 3000, 3);
            assert!(look.is_stuck(), "{look:?}");
            assert!(
                look.words().starts_with("worker 0 (pid 100) spins: "),
                "{}",
                look.words()
            );
            assert!(look.words().ends_with("worker 1 (pid 101) waits"), "{}", look.words());
        }
        assert!(after(&[SPINS, SPINS], 3000, 3).is_stuck());
    }

    #[test]
    fn one_rank_that_works_is_enough_to_be_left_alone() {
        assert!(!after(&[HEALTHY, WAITS], 3000, 9).is_stuck());
        assert!(!after(&[HEALTHY, SPINS], 3000, 9).is_stuck());
        // Busy as ever, but nothing is sent: it computes on its own.
        assert!(!after(&[HEALTHY, HEALTHY], 0, 9).is_stuck());
        // It spins, and the network is as it was: somebody talks.
        assert!(
            !after(
                &[
                    Pulse {
                        bytes: 400_000,
                        ..SPINS
                    },
                    WAITS
                ],
                8_000_000,
                9
            )
            .is_stuck()
        );
    }

    #[test]
    fn a_stopped_rank_is_stuck_whatever_the_others_do_and_one_that_waits_for_a_disk_is_not() {
        let stopped = Pulse { state: b'T', ..WAITS };
        let look = after(&[HEALTHY, stopped], 8_000_000, 3);
        assert!(look.is_stuck());
        assert_eq!(
            look.words(),
            "worker 1 (pid 101) is stopped (T); worker 0 (pid 100) works"
        );
        let disk = Pulse {
            state: b'D',
            cpu_ms: 0,
            ..WAITS
        };
        assert!(!after(&[disk, disk], 0, 9).is_stuck());
    }

    #[test]
    fn a_machine_that_is_too_busy_is_no_stall() {
        let starving = Pulse {
            cpu_ms: 900,
            wait_ms: 8100,
            switches: 90,
            faults: 500,
            bytes: 40_000,
            ..HEALTHY
        };
        assert!(!after(&[starving, starving], 800_000, 9).is_stuck());
        assert!(after(&[Pulse { wait_ms: 8000, ..SPINS }, WAITS], 3000, 3).is_stuck());
    }

    #[test]
    fn without_a_profile_only_stillness_is_told() {
        let mut w = Watcher::default();
        let look = |w: &mut Watcher, p| (0..3).map(|_| w.window(window(&[p, p], 0), Clock::Startup)).last();
        assert!(look(&mut w, Pulse { cpu_ms: 50, ..WAITS }).unwrap().is_stuck());
        assert!(!look(&mut w, SPINS).unwrap().is_stuck());
        assert!(!Look::default().is_stuck());
    }
}
