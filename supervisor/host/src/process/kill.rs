//! The only code that kills processes.
//!
//! Every signal is sent through a pidfd after the start time was compared, so that a reused PID is never hit. A tree
//! is killed by repeated sweeps until two in a row find nothing.

use crate::process::cgroup::{CgroupLeaf, leaves_of_run};
use crate::process::stat::{ProcStat, proc_stat};
use crate::process::tree::{children, keeps, running_children};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, prlimit};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use supervise_core::id::{ProcRef, RunId};

/// Empty sweeps in a row before a tree counts as gone: a scan of `/proc` is not atomic, and a process that forks
/// meanwhile can be missed once.
const EMPTY_SWEEPS: u32 = 2;

const STOP_ROUNDS: usize = 8;

/// Sends a signal to exactly this process. `Ok(false)`: it has exited already.
///
/// # Errors
/// The kernel refuses (EPERM), or the signal number is invalid.
pub fn signal_process(target: ProcRef, signal: i32) -> io::Result<bool> {
    let (Some(pid), Some(sig)) = (Pid::from_raw(target.pid), signal_of(signal)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    if proc_stat(target.pid).is_none_or(|s| s.start != target.start) {
        return Ok(false);
    }
    match pidfd_send_signal(fd, sig) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Sends a signal to the process group that this process leads. `Ok(false)`: the leader is gone.
///
/// The caller must not have reaped the leader: as long as it is at least a zombie, its PID is not reused.
///
/// # Errors
/// The kernel refuses (EPERM), or the signal number is invalid.
pub fn signal_group(leader: ProcRef, signal: i32) -> io::Result<bool> {
    let (Some(pid), Some(sig)) = (Pid::from_raw(leader.pid), signal_of(signal)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if proc_stat(leader.pid).is_none_or(|s| s.start != leader.start || s.group != s.pid) {
        return signal_process(leader, signal);
    }
    match rustix::process::kill_process_group(pid, sig) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Sends SIGABRT to a process that is about to be killed, so that it can print its state, without a core dump, which
/// would fill the disk. A stopped process is continued. `Ok(false)`: it has exited already.
///
/// # Errors
/// The kernel refuses (EPERM).
pub(crate) fn abort(target: ProcRef) -> io::Result<bool> {
    if proc_stat(target.pid).is_none_or(|s| s.start != target.start) {
        return Ok(false);
    }
    let limit = |bytes| {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        prlimit(Pid::from_raw(target.pid), Resource::Core, limit)
    };
    // Core dump handlers in a pipe only respect a limit of 1; a process with 0 may not raise it.
    limit(1).or_else(|_| limit(0))?;
    let sent = signal_process(target, libc::SIGABRT)?;
    signal_process(target, libc::SIGCONT)?;
    Ok(sent)
}

fn signal_of(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

/// A refusal shows because the process keeps running; it is reported in the end. A keeper runs as long as it finds
/// processes, and must not be stopped.
fn end(target: ProcRef, signal: i32) {
    let signal = if keeps(target.pid) { libc::SIGCONT } else { signal };
    let _ = signal_process(target, signal);
}

/// Kills the children of this process except some; returns those that still run, `None` if this kernel keeps no list
/// of children. An empty list is certain: see [`running_children`], also for who may call this.
///
/// Orphans of the killed processes are reparented to this process and found by the next call. Zombies are signalled,
/// too: an unreaped child keeps its PID, and checking each child first takes longer than a fork loop needs to escape.
/// The newest come first, because they are running.
pub(crate) fn end_children(except: impl Fn(i32) -> bool) -> Option<Vec<i32>> {
    let own = nix::unistd::getpid().as_raw();
    for pid in children(own)?.into_iter().rev().filter(|pid| !except(*pid)) {
        // A refused signal shows because the process keeps running.
        let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
    }
    running_children(except)
}

const HUNT_ROUNDS: usize = 256;

/// Kills the children of this process as long as each round finds others than the one before; returns the last ones.
///
/// `reap` is called before each round: a fork loop leaves a zombie per fork, and every round checks every zombie.
/// Unreaped, they would make this slower than the fork loop, and use up all PIDs in the end.
pub(crate) fn hunt(except: impl Fn(i32) -> bool, mut reap: impl FnMut()) -> Option<Vec<i32>> {
    let mut last = Vec::new();
    for _ in 0..HUNT_ROUNDS {
        reap();
        let now = end_children(&except)?;
        if now.is_empty() || now == last {
            return Some(now);
        }
        last = now;
    }
    Some(last)
}

/// Kills one tree, sweep by sweep.
#[derive(Debug, Default)]
pub struct Sweeper {
    empty: u32,
}

impl Sweeper {
    /// Stops, then kills everything that `find` finds; returns what is still running.
    ///
    /// Stopped first, because a process killed between the scan and the signal to its new child would leave that
    /// child without a parent to find it by. If a running subreaper is above them all (`adopts`), the child is
    /// reparented to it, and one scan is enough.
    pub fn sweep(&mut self, adopts: bool, mut find: impl FnMut() -> Vec<ProcStat>) -> Vec<ProcStat> {
        let mut found = find();
        let mut stopped: BTreeSet<ProcRef> = BTreeSet::new();
        for _ in 0..STOP_ROUNDS {
            let new: Vec<ProcRef> = found
                .iter()
                .map(ProcStat::proc_ref)
                .filter(|p| !stopped.contains(p))
                .collect();
            if adopts || new.is_empty() {
                break;
            }
            for target in new {
                end(target, libc::SIGSTOP);
                stopped.insert(target);
            }
            found = find();
        }
        // Includes processes that were stopped and then lost their mark, perhaps with their parent: they must not
        // stay stopped forever.
        stopped.extend(found.iter().map(ProcStat::proc_ref));
        for target in stopped {
            end(target, libc::SIGKILL);
        }
        self.empty = match found.is_empty() && can_look() {
            true => self.empty + 1,
            false => 0,
        };
        found
    }

    /// Returns true if enough sweeps in a row found nothing.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.empty >= EMPTY_SWEEPS
    }
}

/// Returns true if processes can be read. Without free file descriptors, everything would look gone.
fn can_look() -> bool {
    std::fs::read_dir("/proc").is_ok_and(|_open| proc_stat(nix::unistd::getpid().as_raw()).is_some())
}

/// Kills everything that `find` finds and returns what is still running after `limit`. If processes cannot be read,
/// the result contains this process in place of the unknown ones: nothing counts as gone.
///
/// Blocks until then: do not call it in an event loop.
pub fn kill_until_gone(mut find: impl FnMut() -> Vec<ProcRef>, limit: Duration) -> Vec<ProcRef> {
    let end = crate::process::boottime_ms().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let mut sweeper = Sweeper::default();
    let mut pause = Duration::from_millis(1);
    loop {
        let left = sweeper.sweep(false, || {
            let living = find()
                .into_iter()
                .filter_map(|p| proc_stat(p.pid).filter(|s| s.start == p.start && s.is_running()));
            living.collect()
        });
        if sweeper.is_gone() {
            return Vec::new();
        }
        let is_blind = left.is_empty() && sweeper.empty == 0;
        if left.is_empty() && !is_blind {
            continue;
        }
        if crate::process::boottime_ms() >= end {
            return match is_blind {
                true => vec![crate::process::own_ref()],
                false => left.iter().map(ProcStat::proc_ref).collect(),
            };
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Kills what is left of a run's earlier attempts: its cgroups, wherever they are, and everything that `find` finds;
/// returns what is still running after `limit`. Empty cgroups are removed.
///
/// Blocks until then: do not call it in an event loop.
pub fn end_run(run: &RunId, find: impl FnMut() -> Vec<ProcRef>, limit: Duration) -> Vec<ProcRef> {
    for leaf in leaves_of_run(run) {
        // Refused only if it is gone or the kernel lacks support: its processes are found as well.
        let _ = leaf.kill();
    }
    let left = kill_until_gone(find, limit);
    leaves_of_run(run).iter().for_each(CgroupLeaf::remove);
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn another_start_time_is_never_hit() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let real = proc_stat(pid).unwrap().proc_ref();
        let other = ProcRef {
            start: real.start + 1,
            ..real
        };
        assert!(!signal_process(other, libc::SIGKILL).unwrap());
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal_process(real, libc::SIGKILL).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!signal_process(real, libc::SIGKILL).unwrap());
    }

    #[test]
    fn killing_ends_when_two_sweeps_find_nothing() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let target = proc_stat(i32::try_from(child.id()).unwrap()).unwrap().proc_ref();
        let left = kill_until_gone(|| vec![target], Duration::from_secs(20));
        assert!(left.is_empty());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn what_stays_is_never_gone_and_one_empty_sweep_is_not_enough() {
        let stays = ProcStat {
            // Not the process that has this PID: no signal reaches it.
            start: 1,
            ..proc_stat(nix::unistd::getpid().as_raw()).unwrap()
        };
        let mut sweeper = Sweeper::default();
        assert_eq!(sweeper.sweep(true, || vec![stays]), [stays]);
        assert!(sweeper.sweep(true, Vec::new).is_empty());
        assert!(!sweeper.is_gone());
        assert_eq!(sweeper.sweep(false, || vec![stays]), [stays]);
        sweeper.sweep(true, Vec::new);
        assert!(!sweeper.is_gone());
        sweeper.sweep(true, Vec::new);
        assert!(sweeper.is_gone());
    }

    #[test]
    fn what_was_stopped_is_killed_even_where_it_is_not_found_again() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut found = vec![proc_stat(i32::try_from(child.id()).unwrap()).unwrap()];
        Sweeper::default().sweep(false, || std::mem::take(&mut found));
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn nothing_is_gone_where_nothing_can_be_seen() {
        use nix::sys::resource::{Resource, setrlimit};
        const ALONE: &str = "NOTHING_CAN_BE_SEEN";
        // In a separate process: the limit is for all threads.
        if std::env::var_os(ALONE).is_some() {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, 3, 64).unwrap();
            let own = nix::unistd::getpid().as_raw();
            let left = kill_until_gone(|| crate::process::list_descendants(own), Duration::from_millis(200));
            setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
            assert!(proc_stat(pid).is_some_and(|s| s.is_running()));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(left.len(), 1);
            return;
        }
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["nothing_is_gone_where", "--test-threads=1"])
            .env(ALONE, "1")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn numbers_that_are_no_signals_are_refused() {
        let nobody = ProcRef { pid: 0, start: 0 };
        assert!(signal_process(nobody, libc::SIGTERM).is_err());
        assert!(signal_process(crate::process::own_ref(), 4711).is_err());
    }
}
