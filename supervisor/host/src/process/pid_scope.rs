//! The scope of PIDs: the kernel, the namespaces, and whether `/proc` shows them.

use crate::process::{boot_id, proc_stat};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use supervise_core::id::ProcRef;
use supervise_core::lease::PidScope;

const ID_LIMIT: u64 = 128;

/// The PID scope of this process. Unknown parts are left empty and never equal another's.
#[must_use]
pub fn own_pid_scope() -> PidScope {
    let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |m| m.ino());
    PidScope {
        boot: boot_id().unwrap_or_default(),
        machine: machine_id(),
        pid_ns: if is_proc_our_own() { inode("pid") } else { 0 },
        net_ns: inode("net"),
        time_ns: inode("time"),
    }
}

fn machine_id() -> String {
    let mut text = String::new();
    let read = fs::File::open("/etc/machine-id").and_then(|f| f.take(ID_LIMIT).read_to_string(&mut text));
    match read {
        Ok(_) => text.trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// Returns true if `/proc` shows this process's PID namespace: otherwise its PIDs mean other processes.
#[must_use]
pub fn is_proc_our_own() -> bool {
    let own = getpid().as_raw().to_string();
    let link = fs::read_link("/proc/self").ok();
    if link.and_then(|l| l.into_os_string().into_string().ok()).as_ref() != Some(&own) {
        return false;
    }
    // Seen from an outer namespace, a process has a PID in each one down to its own.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    numbers.is_none_or(|n| n.split_ascii_whitespace().eq([own.as_str()]))
}

/// Returns true if exactly this process of our PID scope is still running; `None` if it cannot be seen (`hidepid`).
#[must_use]
pub fn sight(proc: ProcRef) -> Option<bool> {
    if let Some(stat) = proc_stat(proc.pid) {
        return Some(stat.start == proc.start && stat.is_running());
    }
    match kill(Pid::from_raw(proc.pid), None) {
        Err(Errno::ESRCH) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::own_ref;

    #[test]
    fn this_process_sees_itself_in_its_own_seat() {
        assert!(is_proc_our_own());
        assert!(own_pid_scope().is_same(&own_pid_scope()));
        let me = own_ref();
        assert_eq!(sight(me), Some(true));
        assert_eq!(
            sight(ProcRef {
                start: me.start - 1,
                ..me
            }),
            Some(false)
        );
        // Larger than any PID on Linux.
        assert_eq!(
            sight(ProcRef {
                pid: 5_000_000,
                start: 1
            }),
            Some(false)
        );
    }
}
