//! Work of an attempt's processes, compared with their work while the attempt made progress.
//!
//! The guard counts in windows of ten seconds what each rank uses. Windows followed by progress are healthy: they form
//! a profile of the rank in that phase. A later window is *still* or *spinning* only if two families of signs agree
//! that it differs from all healthy ones: CPU (time, faults, switches) and traffic (bytes of files, pipes and network).
//! Healthy windows contain background traffic and periodic wake-ups too, so nothing is compared with zero. A rank
//! without a profile is still if it neither computes nor prints.
//!
//! GPUs are a third family, if they can be read ([`devices`]): together with either of the others they make two, and
//! one GPU that works as in healthy windows is a sign of life for all ranks. Which rank uses which GPU does not matter,
//! because in a step they wait for each other.
//!
//! An overloaded machine slows everything down. The time that a rank waited for a core is known, so its counts are
//! scaled up to what it would have done without waiting. A process that wakes up a hundred times a second to poll, as
//! each Ray process does, waits for a core each time but would do no more without waiting: it does not count as
//! starved.

use crate::id::WorkerId;
use crate::observe::durations::DurationKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod devices;
use devices::Devices;
pub use devices::{DEVICES_LIMIT, DeviceLook, DevicePulse};

/// Most ranks (or processes of one driver) that are sampled one by one.
pub const RANKS_LIMIT: usize = 256;
/// Healthy windows kept per rank and phase.
const KEPT: usize = 32;
/// A profile with fewer windows is not used.
const ENOUGH: usize = 4;
/// Profiles kept: enough for all phases of hundreds of ranks.
const PROFILES: usize = 16 * RANKS_LIMIT;
/// Windows that wait for progress.
const PENDING: usize = 64;
/// Largest factor by which the counts of a starved rank are scaled. If a rank had even less of a core, nothing can be
/// said about it.
const STARVED: f64 = 20.0;
/// Below this share of a core a rank computes nothing, ...
const IDLE: f64 = 0.01;
/// ... or below this one, if it uses ten times as much in healthy windows: threads that wake up to poll use some CPU.
const LOOKS_AROUND: f64 = 0.02;
/// Least share of a core that a rank must use in healthy windows to matter.
const USES: f64 = 0.05;
/// From this share of a core on a rank is busy.
const BUSY: f64 = 0.03;
/// A count that is at least this high per second in healthy windows can be missed.
const OFTEN: f64 = 2.0;
/// Bytes per second that a healthy rank must move for their absence to count.
const FLOWS: f64 = 1024.0;
/// A window differs from the healthy ones if a count is below this share of their minimum.
const LOW: f64 = 0.4;
const VERY_LOW: f64 = 0.1;
/// Windows in a row before a sign counts.
pub const IN_A_ROW: u32 = 3;

/// Counters of one rank over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RankSample {
    pub worker: WorkerId,
    /// First process of the rank.
    pub pid: i32,
    /// State letter of that process at the end of the window.
    pub state: u8,
    /// CPU time of its process tree, in milliseconds.
    pub cpu_ms: u64,
    /// Time that it waited for a core, in milliseconds.
    pub wait_ms: u64,
    /// Context switches by which it gave up its core.
    pub switches: u64,
    /// Minor page faults of its process tree.
    pub faults: u64,
    /// Bytes that its process tree read and wrote.
    pub bytes: u64,
}

/// Counters of all ranks and devices over one window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivityWindow {
    pub over_ms: u64,
    /// Bytes on the network, by everyone who shares it; `None`: not all could be counted.
    pub network: Option<u64>,
    /// Bytes that all workers printed.
    pub output: u64,
    pub pulses: Vec<RankSample>,
    /// The GPUs, if they can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DevicePulse>,
}

impl ActivityWindow {
    /// Returns true if a rank was runnable for most of the window but got no core.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.pulses.iter().any(|p| p.wait_ms.saturating_mul(2) > self.over_ms)
    }
}

/// Verdict on a rank, from its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// It works, or nothing can be said.
    Alive,
    /// It waits for a disk or a device, where no signal reaches it.
    Disk,
    /// It does nothing.
    Still,
    /// It computes, but unlike any healthy window.
    Spinning,
    /// A signal stopped it.
    Stopped,
    /// Its process exited while the others keep running.
    Gone,
}

/// One rank in a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLook {
    /// The worker.
    pub worker: WorkerId,
    /// First process of the rank.
    pub pid: i32,
    /// Verdict on it.
    pub sign: RankState,
    /// For how many windows in a row.
    pub windows: u32,
    /// CPU use in hundredths of a core.
    pub cpu: u32,
    /// Name of its process, if one driver starts the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The system call that its first thread waits in, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The node it runs on, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The ranks that matter, after a window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivitySample {
    /// Ranks, by worker and process.
    pub ranks: Vec<RankLook>,
    /// The GPUs that the attempt uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceLook>,
}

impl ActivitySample {
    /// Returns true if a rank has been stopped or gone, or all ranks that matter have been idle, for long enough.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let lasts = |r: &RankLook| r.windows >= IN_A_ROW;
        let lost = |r: &RankLook| matches!(r.sign, RankState::Stopped | RankState::Gone) && lasts(r);
        let idle = |r: &RankLook| r.sign >= RankState::Still && lasts(r);
        self.ranks.iter().any(lost) || !self.ranks.is_empty() && self.ranks.iter().all(idle)
    }

    /// The ranks as text, first the one that the others may be waiting for.
    #[must_use]
    pub fn words(&self) -> String {
        const TOLD: usize = 4;
        let mut ranks: Vec<&RankLook> = self.ranks.iter().collect();
        ranks.sort_by_key(|r| std::cmp::Reverse(r.sign));
        let mut out: Vec<String> = ranks.iter().take(TOLD).map(|r| r.words()).collect();
        if let Some(more) = ranks.len().checked_sub(TOLD).filter(|n| *n > 0) {
            out.push(format!("and {more} more"));
        }
        out.extend(self.devices.iter().take(TOLD).map(DeviceLook::words));
        out.join("; ")
    }

    /// Returns true if a GPU works as in healthy windows.
    #[must_use]
    pub fn is_device_at_work(&self) -> bool {
        devices::all(&self.devices) == Some(RankState::Alive)
    }
}

impl RankLook {
    fn words(&self) -> String {
        let on = self.node.as_ref().map(|n| format!(" on node {n}")).unwrap_or_default();
        let name = self.name.as_ref().map(|n| format!("{n}, ")).unwrap_or_default();
        let who = format!("worker {}{on} ({name}pid {})", self.worker, self.pid);
        let waits = self.waits.as_ref().map(|w| format!(" ({w})")).unwrap_or_default();
        match self.sign {
            RankState::Stopped => format!("{who} is stopped (T)"),
            RankState::Gone => format!("{who} is gone"),
            RankState::Spinning => format!("{who} spins: {} % of a core, and nothing comes of it", self.cpu),
            RankState::Still => format!("{who} waits{waits}"),
            RankState::Disk => format!("{who} waits for a disk or a device (D){waits}"),
            RankState::Alive => format!("{who} works"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: f64,
    switches: f64,
    faults: f64,
    bytes: f64,
    network: Option<f64>,
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

    /// The share of a core below which the rank computes nothing.
    fn idle(&self) -> f64 {
        (VERY_LOW * self.mean_cpu()).clamp(IDLE, LOOKS_AROUND)
    }

    /// Finds out whether the rank is still or spins, which takes two families. `devices`: the verdict on all GPUs
    /// together.
    fn judge(&self, now: &Sample, devices: Option<RankState>) -> RankState {
        // Each count now, and its minimum over the healthy windows.
        let cpu = (now.cpu, self.least(|s| s.cpu));
        let faults = (now.faults, self.least(|s| s.faults));
        let switches = (now.switches, self.least(|s| s.switches));
        let bytes = (now.bytes, self.least(|s| s.bytes));
        // If the network was not counted, it is no sign.
        let counted: Vec<f64> = self.windows.iter().filter_map(|s| s.network).collect();
        let least = counted
            .iter()
            .copied()
            .reduce(f64::min)
            .filter(|_| counted.len() >= ENOUGH);
        let network = now.network.zip(least).unwrap_or_default();
        let few_faults = faults.1 < OFTEN || is_below(faults, LOW);
        let idles = now.cpu < self.idle() || cpu.1 >= USES && is_below(cpu, LOW) && few_faults;
        // Other threads that poll keep switching, and Python's threads compete with the spinning one for its lock.
        let is_cut_off = network.1 >= FLOWS && is_below(network, VERY_LOW);
        let moves_nothing = match (faults.1 >= OFTEN, bytes.1 >= FLOWS) {
            (true, true) => few_faults && is_below(bytes, VERY_LOW),
            // Traffic on sockets alone shows in the network count.
            (true, false) => is_below(faults, VERY_LOW) && is_cut_off,
            // On a busy machine a healthy window may contain few faults and switches, so all of its traffic must have
            // stopped.
            (false, true) => faults.0 < OFTEN && is_below(bytes, VERY_LOW) && is_cut_off,
            (false, false) => false,
        };
        let spins = now.cpu >= BUSY && (are_below([faults, switches], OFTEN, VERY_LOW) || moves_nothing);
        let is_dry = are_below([bytes, network], FLOWS, LOW);
        // Others also use the network, but not the files and pipes of this rank.
        let has_stopped = bytes.1 >= FLOWS && is_below(bytes, VERY_LOW);
        let two_say_so = match devices {
            Some(RankState::Alive) => false,
            Some(RankState::Spinning) => spins || idles || is_dry || has_stopped,
            // A GPU that waits while a process computes as usual is no hang: a metric, a tokenizer, a compiler.
            Some(_) => spins || idles,
            None => (spins || idles) && is_dry,
        };
        let is_busy = now.cpu >= BUSY || !idles && devices == Some(RankState::Spinning);
        match (two_say_so, is_busy) {
            (false, _) => RankState::Alive,
            (true, true) => RankState::Spinning,
            (true, false) => RankState::Still,
        }
    }
}

/// Returns true if a count is below a share of its healthy minimum.
fn is_below((now, least): (f64, f64), share: f64) -> bool {
    now < share * least
}

/// Returns true if each count that is frequent in healthy windows is below a share of its minimum, and there is one.
fn are_below(signs: [(f64, f64); 2], often: f64, share: f64) -> bool {
    let mut told = signs.into_iter().filter(|(_, least)| *least >= often).peekable();
    told.peek().is_some() && told.all(|sign| is_below(sign, share))
}

/// Follows the ranks of one attempt.
#[derive(Debug, Default)]
pub struct Watcher {
    profiles: BTreeMap<(RankKey, DurationKind), Profile>,
    pending: VecDeque<(ActivityWindow, DurationKind)>,
    streaks: BTreeMap<RankKey, (RankState, u32)>,
    devices: Devices,
}

/// A rank: its worker, and its process if one worker starts them all.
type RankKey = (WorkerId, i32);

impl Watcher {
    /// Takes in progress: all windows since the last progress were healthy.
    pub fn progress(&mut self) {
        // Processes come and go: if the table is full, drop those that exited.
        if let Some((last, _)) = self.pending.back().filter(|_| self.profiles.len() >= PROFILES) {
            let there: BTreeSet<RankKey> = last.pulses.iter().map(|p| (p.worker, p.pid)).collect();
            self.profiles.retain(|(key, _), _| there.contains(key));
        }
        for (window, clock) in std::mem::take(&mut self.pending) {
            let starved = starved(&window);
            self.devices.note(&window.devices, clock);
            for pulse in &window.pulses {
                let key = ((pulse.worker, pulse.pid), clock);
                if self.profiles.len() >= PROFILES && !self.profiles.contains_key(&key) {
                    continue;
                }
                let sample = sample(&window, pulse, starved);
                self.profiles.entry(key).or_default().note(sample);
            }
        }
        self.streaks.clear();
    }

    /// Judges a window.
    pub fn window(&mut self, window: ActivityWindow, clock: DurationKind) -> ActivitySample {
        let starved = starved(&window);
        let most = self.most(clock);
        let devices = self.devices.look(&window.devices, clock);
        let all = devices::all(&devices);
        let (mut ranks, mut aside) = (Vec::new(), Vec::new());
        let mut seen = BTreeMap::new();
        for pulse in &window.pulses {
            let key = (pulse.worker, pulse.pid);
            let now = sample(&window, pulse, starved);
            let profile = self.known(key, clock);
            let sign = match judge(pulse, profile, &now, window.output > 0, all) {
                RankState::Still | RankState::Spinning if starving(window.over_ms, pulse) >= STARVED => {
                    RankState::Alive
                }
                sign => sign,
            };
            let is_known = match profile {
                Some(p) => p.mean_cpu() >= USES.min(most) && p.mean_cpu() >= VERY_LOW * most,
                None => most == 0.0,
            };
            // It may have been idle for as long as the profile remembers: a generating process waits while the others
            // train.
            let matters = is_known || sign == RankState::Alive && now.cpu >= USES;
            let before = self.streaks.get(&key).filter(|(s, _)| same(*s, sign));
            let windows = before.map_or(1, |(_, n)| n.saturating_add(1));
            seen.insert(key, (sign, windows));
            let rank = RankLook {
                worker: pulse.worker,
                pid: pulse.pid,
                sign,
                windows,
                cpu: (100 * pulse.cpu_ms / window.over_ms.max(1)).min(100_000) as u32,
                name: None,
                waits: None,
                node: None,
            };
            if matters || sign == RankState::Stopped {
                ranks.push(rank);
            } else if sign == RankState::Spinning && windows >= IN_A_ROW {
                aside.push(rank);
            }
        }
        // They were idle while the run made progress, so they decide nothing, but are listed next to those that do.
        if !ranks.is_empty() {
            ranks.append(&mut aside);
        }
        if ranks.len() > RANKS_LIMIT {
            // A rank that is lost or works decides: keep it.
            ranks.sort_by_key(|r: &RankLook| {
                matches!(r.sign, RankState::Still | RankState::Spinning) && r.windows >= IN_A_ROW
            });
            ranks.truncate(RANKS_LIMIT);
        }
        self.streaks = seen;
        if self.pending.len() >= PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((window, clock));
        ActivitySample { ranks, devices }
    }

    fn known(&self, key: RankKey, clock: DurationKind) -> Option<&Profile> {
        self.profiles.get(&(key, clock)).filter(|p| p.windows.len() >= ENOUGH)
    }

    /// The share of a core that the busiest rank uses in healthy windows of a phase.
    fn most(&self, clock: DurationKind) -> f64 {
        let known = self
            .profiles
            .iter()
            .filter(|((_, p), profile)| *p == clock && profile.windows.len() >= ENOUGH);
        known.map(|(_, p)| p.mean_cpu()).fold(0.0, f64::max)
    }
}

/// Still and spinning both mean no sign of life, and one may turn into the other.
fn same(a: RankState, b: RankState) -> bool {
    let idle = |s| matches!(s, RankState::Still | RankState::Spinning);
    a == b || idle(a) && idle(b)
}

fn judge(
    pulse: &RankSample,
    profile: Option<&Profile>,
    now: &Sample,
    output: bool,
    devices: Option<RankState>,
) -> RankState {
    match (pulse.state, profile) {
        (b'T', _) => RankState::Stopped,
        (b'Z' | b'X' | 0, _) => RankState::Gone,
        _ if devices == Some(RankState::Alive) => RankState::Alive,
        (b'D', _) if now.cpu < IDLE => RankState::Disk,
        (_, Some(profile)) => match profile.judge(now, devices) {
            RankState::Alive if now.cpu < profile.idle() && !output => RankState::Still,
            sign => sign,
        },
        (_, None) if now.cpu < IDLE && !output => RankState::Still,
        (_, None) => RankState::Alive,
    }
}

/// How much more the ranks would have done with a core each, as a factor.
fn starved(window: &ActivityWindow) -> f64 {
    let times = window.pulses.iter().map(|p| starving(window.over_ms, p));
    times.fold(1.0, f64::max)
}

fn starving(over_ms: u64, pulse: &RankSample) -> f64 {
    let over = over_ms.max(1) as f64;
    let had = over - pulse.wait_ms as f64;
    (over / had.max(over / STARVED)).min(STARVED)
}

fn sample(window: &ActivityWindow, pulse: &RankSample, starved: f64) -> Sample {
    let seconds = window.over_ms.max(1) as f64 / 1000.0;
    let own = starving(window.over_ms, pulse);
    Sample {
        cpu: pulse.cpu_ms as f64 * own / 1000.0 / seconds,
        switches: pulse.switches as f64 * own / seconds,
        faults: pulse.faults as f64 * own / seconds,
        bytes: pulse.bytes as f64 * own / seconds,
        network: window.network.map(|bytes| bytes as f64 * starved / seconds),
    }
}

#[cfg(test)]
mod tests;
