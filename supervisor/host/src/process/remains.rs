//! Processes left of an attempt, for the operator: PID, name and state.

use crate::process::stat::proc_stat;
use crate::process::tree::{find_attempt_processes, keeps};
use serde::Serialize;
use std::fmt;
use supervise_core::id::{ProcRef, RunId};

/// A process that is still running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftoverProcess {
    pub pid: i32,
    /// Its name as the kernel keeps it: at most 15 bytes, chosen by the process itself.
    pub command: String,
    /// The kernel's letter for its state.
    pub state: char,
}

impl LeftoverProcess {
    /// This process; `None` if it has exited.
    #[must_use]
    pub fn of(target: ProcRef) -> Option<Self> {
        let stat = proc_stat(target.pid).filter(|s| s.start == target.start && s.is_running())?;
        let name = std::fs::read(format!("/proc/{}/comm", target.pid)).unwrap_or_default();
        Some(Self {
            pid: target.pid,
            command: String::from_utf8_lossy(&name).trim_end().to_owned(),
            state: char::from(stat.state),
        })
    }
}

impl fmt::Display for LeftoverProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            'D' => "uninterruptible sleep (D): it waits in the kernel, where no signal reaches it",
            'R' => "running (R)",
            'S' => "sleeping (S)",
            'T' => "stopped (T)",
            't' => "stopped by a debugger (t)",
            'Z' => "its main thread has ended, others run (Z)",
            other => return write!(f, "process {} ({}), state {other}", self.pid, self.command),
        };
        write!(f, "process {} ({}), {state}", self.pid, self.command)
    }
}

/// Every running process of the run's attempts, by PID, except our own that end it. `recorded`: see
/// [`find_attempt_processes`].
#[must_use]
pub fn remains(run: &RunId, recorded: &[ProcRef]) -> Vec<LeftoverProcess> {
    let found = find_attempt_processes(run, recorded);
    let theirs = found.into_iter().filter(|p| !keeps(p.pid));
    theirs.filter_map(LeftoverProcess::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_with_its_name_and_state() {
        let me = crate::process::own_ref();
        let own = LeftoverProcess::of(me).unwrap();
        assert_eq!(own.pid, me.pid);
        assert!(!own.command.is_empty() && "RS".contains(own.state), "{own:?}");
        let other = ProcRef {
            start: me.start + 1,
            ..me
        };
        assert_eq!(LeftoverProcess::of(other), None);
        let stuck = LeftoverProcess { state: 'D', ..own };
        assert!(stuck.to_string().contains("uninterruptible sleep (D)"), "{stuck}");
    }

    /// A parent sleeps like this until its `vfork` child executes a program or exits.
    #[test]
    fn uninterruptible_sleep_is_read_from_the_kernel() {
        let script = "import ctypes, time; libc = ctypes.CDLL(None); libc.vfork() or time.sleep(600)";
        let Ok(mut child) = std::process::Command::new("python3").args(["-c", script]).spawn() else {
            return assert!(std::env::var_os("CI").is_none(), "this test needs python3");
        };
        let pid = i32::try_from(child.id()).unwrap();
        let start = proc_stat(pid).unwrap().start;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let seen = loop {
            let now = LeftoverProcess::of(ProcRef { pid, start });
            if now.as_ref().is_some_and(|r| r.state == 'D') || std::time::Instant::now() > until {
                break now;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        for below in crate::process::list_descendants(pid) {
            let _ = crate::process::kill::signal_process(below, libc::SIGKILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen.map(|r| r.state), Some('D'));
    }
}
