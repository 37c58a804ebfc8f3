//! Process counters, read once per window, and what each rank used between two samples. Used by the guard, and by the
//! parent of the ranks on each node.
//!
//! A rank is a worker with its descendants; if one driver starts the rest, each of its processes. Reading costs some
//! tens of microseconds per process, so very many processes are not sampled one by one.

use crate::guard::fabric::Fabric;
use crate::process::{ProcStat, open_files, proc_stat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::{RANKS_LIMIT, RankSample};
use supervise_core::observe::creep::ResourceUsage;

pub(crate) const WINDOW_MS: u64 = 10_000;
const SMALL: u64 = 64 << 10;
/// How many ancestors of a process are searched for its worker.
const GENERATIONS: usize = 64;
/// Longest name of a wait channel or system call.
const PLACE: usize = 64;
/// Longest process name: Ray's contain class and method.
const NAME: usize = 80;

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    start: u64,
    cpu: u64,
    wait_ms: u64,
    switches: u64,
    faults: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchedRank {
    pub(crate) worker: WorkerId,
    pub(crate) pid: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WindowCounts {
    pub(crate) over_ms: u64,
    /// Bytes on the network, of all processes that share it; `None`: not all of them could be counted.
    pub(crate) network: Option<u64>,
    pub(crate) pulses: Vec<RankSample>,
}

#[derive(Debug)]
pub(crate) struct RankCounter {
    counted: BTreeMap<i32, Counted>,
    network: Option<Option<u64>>,
    fabric: Option<Fabric>,
    began: u64,
    pub(crate) files: Option<ResourceUsage>,
    ms_per_tick: u64,
}

impl RankCounter {
    pub(crate) fn new(now: u64, ms_per_tick: u64) -> Self {
        Self {
            counted: BTreeMap::new(),
            network: None,
            fabric: None,
            began: now,
            files: None,
            ms_per_tick,
        }
    }

    pub(crate) fn due(&self) -> u64 {
        self.began.saturating_add(WINDOW_MS)
    }

    /// Ends a window. `None`: there is nothing to compare with, or too many processes are known. `single`: one driver
    /// starts the rest.
    pub(crate) fn window(
        &mut self,
        now: u64,
        workers: &[WatchedRank],
        single: bool,
        known: impl Iterator<Item = i32>,
    ) -> Option<WindowCounts> {
        let over_ms = now.saturating_sub(self.began);
        self.began = now;
        if self.network.is_none() {
            self.fabric = Fabric::start();
        }
        let network = self.network_bytes(now);
        let before = self.network.replace(network);
        let pids: Vec<i32> = known.take(RANKS_LIMIT + 1).collect();
        if pids.len() > RANKS_LIMIT {
            self.counted.clear();
            return None;
        }
        self.files = open_files(pids.iter().copied());
        let stats: BTreeMap<i32, ProcStat> = pids.iter().filter_map(|p| Some((*p, proc_stat(*p)?))).collect();
        let pulses = self.pulses(workers, single, &stats);
        // The first window has nothing to compare with, nor has one after the machine was suspended.
        let before = before.filter(|_| over_ms <= 3 * WINDOW_MS)?;
        let network = before.zip(network).map(|(before, now)| now.saturating_sub(before));
        Some(WindowCounts {
            over_ms,
            network,
            pulses,
        })
    }

    fn network_bytes(&self, now: u64) -> Option<u64> {
        let fabric = match &self.fabric {
            Some(fabric) => fabric.bytes(now)?,
            None => 0,
        };
        Some(network_bytes().unwrap_or_default().saturating_add(fabric))
    }

    /// The child that reads counters which may hang; it does not belong to the attempt.
    pub(crate) fn helper(&self) -> Option<i32> {
        self.fabric.as_ref()?.pid()
    }

    pub(crate) fn was_helper(&mut self, pid: i32) -> bool {
        self.fabric.as_mut().is_some_and(|fabric| fabric.was(pid))
    }

    fn pulses(&mut self, workers: &[WatchedRank], single: bool, stats: &BTreeMap<i32, ProcStat>) -> Vec<RankSample> {
        let mut ranks: BTreeMap<(WorkerId, i32), RankSample> = BTreeMap::new();
        if !single {
            for w in workers {
                let gone = RankSample {
                    worker: w.worker,
                    pid: w.pid,
                    ..RankSample::default()
                };
                ranks.insert((w.worker, w.pid), gone);
            }
        }
        let mut counted = BTreeMap::new();
        for stat in stats.values() {
            let Some(owner) = owner(stat, workers, stats) else {
                continue;
            };
            let leader = if single { stat.pid } else { owner.pid };
            let now = count(stat, self.ms_per_tick);
            // What it used before it was first seen belongs to this window, too.
            let before = self.counted.get(&stat.pid).filter(|c| c.start == now.start);
            let before = before.copied().unwrap_or_default();
            counted.insert(stat.pid, now);
            if single && !stat.is_running() {
                continue;
            }
            let pulse = ranks.entry((owner.worker, leader)).or_default();
            pulse.worker = owner.worker;
            pulse.pid = leader;
            pulse.cpu_ms += now.cpu.saturating_sub(before.cpu);
            pulse.faults += now.faults.saturating_sub(before.faults);
            pulse.bytes += now.bytes.saturating_sub(before.bytes);
            pulse.wait_ms += now.wait_ms.saturating_sub(before.wait_ms);
            if stat.pid == leader {
                pulse.state = stat.state;
                pulse.switches += now.switches.saturating_sub(before.switches);
            }
        }
        self.counted = counted;
        ranks.into_values().collect()
    }
}

/// The worker that a process belongs to: itself or its nearest ancestor that is one; if it was reparented, the leader
/// of its process group.
fn owner<'a>(stat: &ProcStat, workers: &'a [WatchedRank], stats: &BTreeMap<i32, ProcStat>) -> Option<&'a WatchedRank> {
    let of = |pid: i32| workers.iter().find(|w| w.pid == pid);
    let mut at = *stat;
    for _ in 0..GENERATIONS {
        if let Some(found) = of(at.pid) {
            return Some(found);
        }
        match stats.get(&at.ppid) {
            Some(parent) => at = *parent,
            None => break,
        }
    }
    of(stat.group)
        .or_else(|| of(stat.session))
        .or(workers.first().filter(|_| workers.len() == 1))
}

fn count(stat: &ProcStat, ms_per_tick: u64) -> Counted {
    let text = |file: &str| read_small(&format!("/proc/{}/{file}", stat.pid)).unwrap_or_default();
    let io = text("io");
    // The second number: nanoseconds for which the first thread was runnable but had no core.
    let waited = text("schedstat")
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok());
    Counted {
        start: stat.start,
        cpu: stat.cpu.saturating_mul(ms_per_tick),
        wait_ms: waited.unwrap_or_default() / 1_000_000,
        switches: field(&text("status"), "voluntary_ctxt_switches:"),
        faults: stat.faults,
        bytes: field(&io, "rchar:").saturating_add(field(&io, "wchar:")),
    }
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or_default()
}

fn read_small(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(SMALL).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Bytes in and out over all interfaces: ranks on one machine talk over the loopback.
fn network_bytes() -> Option<u64> {
    Some(sum_network(&read_small("/proc/self/net/dev")?))
}

fn sum_network(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(_, counters)| {
            let numbers: Vec<u64> = counters
                .split_ascii_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect();
            let at = |n: usize| numbers.get(n).copied().unwrap_or_default();
            at(0).saturating_add(at(8))
        })
        .fold(0, u64::saturating_add)
}

/// The system call that a process's first thread waits in.
pub(crate) fn waits_in(pid: i32) -> Option<String> {
    let call = read_small(&format!("/proc/{pid}/syscall")).and_then(|text| {
        let number: i64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        call_name(number)
    });
    call.map(str::to_owned).or_else(|| {
        let place = read_small(&format!("/proc/{pid}/wchan"))?;
        let is_name =
            (2..=PLACE).contains(&place.len()) && place.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name.then_some(place)
    })
}

/// One-word name of a process: the title that Ray sets (`ray::Class.method`), otherwise the kernel's.
pub(crate) fn name_of(pid: i32) -> Option<String> {
    let word = |file: &str, is_end: fn(char) -> bool| {
        let text = read_small(&format!("/proc/{pid}/{file}"))?;
        let word = text.split(is_end).next().unwrap_or_default();
        let is_name = !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b":._-<>".contains(&b));
        is_name.then(|| word.chars().take(NAME).collect::<String>())
    };
    let title = word("cmdline", |c| c == '\0' || c.is_whitespace()).filter(|w| w.starts_with("ray::"));
    title.or_else(|| word("comm", char::is_whitespace))
}

fn call_name(number: i64) -> Option<&'static str> {
    let names = [
        (libc::SYS_futex, "futex"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_ppoll, "poll"),
        (libc::SYS_pselect6, "select"),
        (libc::SYS_epoll_pwait, "epoll_wait"),
        (libc::SYS_nanosleep, "sleep"),
        (libc::SYS_clock_nanosleep, "sleep"),
        (libc::SYS_wait4, "wait for a child"),
        (libc::SYS_waitid, "wait for a child"),
        (libc::SYS_recvfrom, "recv"),
        (libc::SYS_recvmsg, "recv"),
        (libc::SYS_sendto, "send"),
        (libc::SYS_sendmsg, "send"),
        (libc::SYS_accept4, "accept"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_flock, "flock"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_poll, "poll"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_select, "select"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, "epoll_wait"),
    ];
    names.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_interfaces_count_in_both_directions() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0:7 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(sum_network(text), 212);
        assert_eq!(sum_network("nonsense: x"), 0);
    }

    #[test]
    fn a_process_that_computes_is_seen_to() {
        let me = crate::process::own_ref();
        let ranked = [WatchedRank {
            worker: WorkerId(0),
            pid: me.pid,
        }];
        let mut counter = RankCounter::new(0, 10);
        let known = || std::iter::once(me.pid);
        assert_eq!(counter.window(WINDOW_MS, &ranked, true, known()), None);
        let data = vec![1_u8; 1 << 20];
        std::fs::write("/dev/null", &data).unwrap();
        let stats = BTreeMap::from([(me.pid, proc_stat(me.pid).unwrap())]);
        let found = counter.pulses(&ranked, true, &stats);
        assert_eq!((found.len(), found[0].pid), (1, me.pid));
        assert!(found[0].bytes >= 1 << 20, "{found:?}");
    }

    #[test]
    fn a_process_has_a_name_of_one_word() {
        let name = name_of(crate::process::own_ref().pid).unwrap();
        assert!(!name.contains(char::is_whitespace) && name.len() < NAME, "{name}");
        assert_eq!(name_of(4_900_001), None);
    }

    #[test]
    fn a_worker_that_is_gone_is_still_told() {
        let ranked = [4_900_001, 4_900_002].map(|pid| WatchedRank {
            worker: WorkerId(0),
            pid,
        });
        let found = RankCounter::new(0, 10).pulses(&ranked, false, &BTreeMap::new());
        assert!(found.len() == 2 && found.iter().all(|p| p.state == 0));
    }
}
