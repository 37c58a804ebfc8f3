//! Processes that may be an attempt's, without a look through all of `/proc`.
//!
//! Nothing that was started before the guard is its attempt's. What was started since had its place in the last look through
//! everything, or was given its number later: the kernel hands numbers out in ascending order and tells which was the last.
//! Only these are read then; where the order cannot be relied on, everything is.

use crate::process::boottime_ms;
use crate::process::tree::ProcSnapshot;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::Read;

/// Numbers that are looked at one by one; where more were given out, a look through everything costs less.
const NUMBERS: i32 = 2048;
/// No machine starts more processes and threads in a millisecond: before that many were given out, no number comes again.
const PER_MS: u64 = 500;
/// Bytes of a short file of the kernel's.
const SHORT: u64 = 256;

/// A look through everything, and what of it may be the attempt's.
#[derive(Debug)]
pub(crate) struct Census {
    /// The number that had been given out last before the look, and when that was.
    last: i32,
    at: u64,
    /// Processes that had been started since the guard.
    young: Vec<i32>,
}

impl Census {
    /// Looks through everything. `since`: what was started before this clock tick is of no interest. No census where the kernel
    /// does not tell the numbers.
    pub(crate) fn take(since: u64) -> (ProcSnapshot, Option<Self>) {
        let (last, at) = (last_number(), boottime_ms());
        let all = ProcSnapshot::take();
        let young: Vec<i32> = all.iter().filter(|s| s.start >= since).map(|s| s.pid).collect();
        let census = last.map(|last| Self { last, at, young });
        (all, census)
    }

    /// The processes of interest now; `None`: only a look through everything can tell.
    ///
    /// Not among them is one that asked for its number (`clone3` with `set_tid`, which restoring from a dump does).
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

/// Threads have numbers of the same order.
fn is_process(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| pidfd_open(pid, PidfdFlags::empty()).is_ok())
}

/// The number that was given out last in our namespace. A file system of a container's that stands in for the kernel's own
/// tells something else.
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
        // The numbers may begin anew just then: another census counts.
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
