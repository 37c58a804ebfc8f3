//! Processes: identity, which of them belong to an attempt, starting and killing.
//!
//! A bare PID means nothing here: a process is a [`ProcRef`], its PID and its start time. Everything is read from
//! `/proc` and cgroupfs; no path under a user's mount is accessed.

pub(crate) mod call;
pub mod capture;
pub(crate) mod census;
pub mod cgroup;
pub mod job;
pub mod kill;
mod limits;
pub mod pid_scope;
pub mod priority;
pub mod reap;
mod remains;
mod slim;
pub mod spawn;
pub mod stat;
pub mod tree;
mod usage;

pub use kill::{end_run, kill_until_gone};
pub use limits::{limit_hint, survive_file_limit};
pub use pid_scope::{is_proc_our_own, own_pid_scope, sight};
pub use priority::give_way;
pub use remains::{LeftoverProcess, remains};
pub use slim::{let_go_of_start, share_heaps};
pub use stat::{ProcStat, proc_stat};
pub use tree::{find_attempt_processes, is_log_writer, list_descendants, own_helpers, spare_helpers};
pub(crate) use usage::open_files;
pub use usage::{headway, usage};

use nix::time::{ClockId, clock_gettime};
use std::io;
use std::path::Path;
use supervise_core::id::ProcRef;

/// Name of the environment variable that marks every process of an attempt.
pub const ATTEMPT_VARIABLE: &str = "SUPERVISE_ATTEMPT";

/// The path to execute for our own program, `exe`: the file that is running, even if it was deleted or replaced
/// since.
#[must_use]
pub fn own_program(exe: &Path) -> &Path {
    let me = Path::new("/proc/self/exe");
    let gone = std::fs::read_link(me).is_ok_and(|at| at.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"));
    if gone { me } else { exe }
}

/// Milliseconds of CLOCK_BOOTTIME: includes suspended time, never jumps.
#[must_use]
pub fn boottime_ms() -> u64 {
    let Ok(t) = clock_gettime(ClockId::CLOCK_BOOTTIME) else {
        return 0;
    };
    let secs = u64::try_from(t.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec()).unwrap_or(0);
    secs.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

/// Identifies this boot of the machine: PIDs and start times mean nothing across boots.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

/// The host's name, for messages and for the lease.
#[must_use]
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Name of this process's user, or the UID if the system knows no name.
#[must_use]
pub fn user_name() -> String {
    let uid = nix::unistd::getuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// This process.
#[must_use]
pub fn own_ref() -> ProcRef {
    let pid = nix::unistd::getpid().as_raw();
    ProcRef {
        pid,
        start: proc_stat(pid).map_or(0, |s| s.start),
    }
}

/// Returns true if exactly this process is still running. A zombie is not.
#[must_use]
pub fn is_alive(proc: ProcRef) -> bool {
    proc_stat(proc.pid).is_some_and(|s| s.start == proc.start && s.is_running())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_one_of_its_number_is_not() {
        let me = own_ref();
        assert!(me.start > 0);
        assert!(is_alive(me));
        assert!(!is_alive(ProcRef {
            start: me.start - 1,
            ..me
        }));
    }

    #[test]
    fn the_boot_has_a_name_and_a_clock() {
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(boottime_ms() > 0);
        assert!(!host_name().is_empty());
    }
}
