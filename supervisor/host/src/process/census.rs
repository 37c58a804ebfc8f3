//! Finds an attempt's possible processes without reading all of `/proc`.
//!
//! No process started before the guard belongs to its attempt. A process started since was in the last full walk or
//! got its PID later: the kernel assigns PIDs in ascending order and reports the last one. Only these are read then.
//! If the order cannot be relied on, everything is read.

use crate::process::boottime_ms;
use crate::process::tree::ProcSnapshot;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::Read;

/// PIDs that are checked one by one; with more, a full walk is cheaper.
const NUMBERS: i32 = 2048;
/// No machine starts more processes and threads per millisecond: until that many could have been started, no PID is
/// reused.
const PER_MS: u64 = 500;
const SHORT: u64 = 256;

#[derive(Debug)]
pub(crate) struct Census {
    /// The last PID assigned before the walk, and the time.
    last: i32,
    at: u64,
    /// Processes started since the guard.
    young: Vec<i32>,
}

impl Census {
    /// Walks `/proc`. `since`: processes started before this clock tick are ignored. No census if the kernel does not
    /// report PIDs.
    pub(crate) fn take(since: u64) -> (ProcSnapshot, Option<Self>) {
        let (last, at) = (last_number(), boottime_ms());
        let all = ProcSnapshot::take();
        let young: Vec<i32> = all.iter().filter(|s| s.start >= since).map(|s| s.pid).collect();
        let census = last.map(|last| Self { last, at, young });
        (all, census)
    }

    /// The relevant processes now; `None`: a full walk is needed.
    ///
    /// Misses a process that chose its PID (`clone3` with `set_tid`, as restoring from a dump does).
    pub(crate) fn recount(&self) -> Option<ProcSnapshot> {
        let numbers = i32::try_from(read_number("/proc/sys/kernel/pid_max")?).ok()?;
        let age = boottime_ms().saturating_sub(self.at).saturating_add(1);
        let last = last_number()?;
        let is_in_order = (self.last..=self.last.saturating_add(NUMBERS)).contains(&last);
        let is_fresh = age.saturating_mul(PER_MS) < u64::try_from(numbers - NUMBERS).unwrap_or(0);
        (is_in_order && is_fresh).then(|| {
            let new = (self.last + 1..=last).filter(|pid| is_process(*pid));
            ProcSnapshot::of(self.young.iter().copied().chain(new))
        })
    }
}

/// Thread ids are assigned from the same sequence.
fn is_process(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| pidfd_open(pid, PidfdFlags::empty()).is_ok())
}

/// The last PID assigned in our namespace. A container's emulation of the kernel's file may be wrong.
fn last_number() -> Option<i32> {
    let file = File::open("/proc/loadavg").ok()?;
    (fstatfs(&file).ok()?.filesystem_type() == PROC_SUPER_MAGIC).then_some(())?;
    let number = text(file)?.split_ascii_whitespace().last()?.parse().ok()?;
    (number > 0).then_some(number)
}

fn read_number(path: &str) -> Option<u64> {
    text(File::open(path).ok()?)?.trim().parse().ok()
}

fn text(file: File) -> Option<String> {
    let mut text = String::new();
    file.take(SHORT).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{own_ref, proc_stat};
    use std::process::Command;

    fn census() -> Census {
        let since = proc_stat(own_ref().pid).unwrap().start;
        Census::take(since).1.unwrap()
    }

    #[test]
    fn what_is_started_later_is_found_and_threads_are_not() {
        // PIDs may wrap around just then: retry with another census.
        let (child, tid, now) = std::iter::repeat_with(started_later).find_map(|now| now).unwrap();
        assert!(now.get(child).is_some());
        assert!(now.get(own_ref().pid).is_some());
        assert!(now.get(tid).is_none());
        assert!(now.get(1).is_none());
    }

    fn started_later() -> Option<(i32, i32, ProcSnapshot)> {
        let census = census();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (tx, rx) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tx.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = wait.recv();
        });
        let tid = rx.recv().unwrap();
        let now = census.recount();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(done);
        thread.join().unwrap();
        Some((i32::try_from(child.id()).unwrap(), tid, now?))
    }

    #[test]
    fn numbers_that_may_have_come_again_are_not_relied_on() {
        let now = census();
        // The machine has been up for longer than that.
        let old = Census {
            at: 0,
            last: now.last,
            young: Vec::new(),
        };
        assert!(old.recount().is_none());
        let before_a_turn = Census {
            last: i32::MAX - NUMBERS,
            ..census()
        };
        assert!(before_a_turn.recount().is_none());
        let long_ago = Census { last: -NUMBERS, ..now };
        assert!(long_ago.recount().is_none());
    }
}
