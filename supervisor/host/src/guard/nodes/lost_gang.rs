//! Waits for a gang whose guard did not see its end, until nothing of it can be running on any node.

use super::{FENCED_MS, NOT_BEGUN, steps};
use crate::process::boottime_ms;
use crate::process::kill::signal_process;
use crate::process::stat::{ProcStat, command_line, proc_stat};
use crate::process::tree::has_launchers_name;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::id::RunId;

/// How long a launcher without a guard may take to end its step before it counts as hung.
const LAUNCHER_MS: u64 = 180_000;
const LOOK: Duration = Duration::from_millis(100);

/// Lists the launchers of a run on this machine, including our own zombie children.
fn launchers(run: &RunId) -> Vec<ProcStat> {
    let own = getpid().as_raw();
    let Ok(all) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let stats = pids.filter(|pid| has_launchers_name(*pid)).filter_map(proc_stat);
    stats
        .filter(|stat| match stat.is_running() {
            true => command_line(stat.pid)
                .is_some_and(|words| words.get(2).is_some_and(|step| step.starts_with(&steps::prefix(run)))),
            false => stat.ppid == own,
        })
        .collect()
}

/// Returns when nothing of the run can be running on any node. Its guard has exited, and so has the supervisor that
/// started it, unless that is this process: no launcher is started meanwhile. Blocks for minutes.
pub fn wait_out(env: &BTreeMap<String, String>, run: &RunId) {
    let own = getpid().as_raw();
    let until = boottime_ms().saturating_add(LAUNCHER_MS);
    let (mut seen, mut saw_all_end_well) = (false, true);
    loop {
        let living = launchers(run);
        if living.is_empty() {
            break;
        }
        seen = true;
        for launcher in living {
            if launcher.ppid != own {
                saw_all_end_well = false;
            } else {
                let how = waitpid(Pid::from_raw(launcher.pid), Some(WaitPidFlag::WNOHANG));
                let lives = matches!(how, Ok(WaitStatus::StillAlive));
                let is_well = matches!(how, Ok(WaitStatus::Exited(_, 0 | NOT_BEGUN)));
                saw_all_end_well &= lives || is_well;
            }
            if boottime_ms() >= until {
                let _ = signal_process(launcher.proc_ref(), libc::SIGKILL);
            }
        }
        std::thread::sleep(LOOK);
    }
    if seen && saw_all_end_well {
        return;
    }
    // From here on nothing is sent to the nodes.
    let over = boottime_ms().saturating_add(FENCED_MS);
    // Nodes that can be reached end sooner. Slurm's list is checked before the next launch.
    let _ = steps::kill_those(env, &|name| name.starts_with(&steps::prefix(run)));
    std::thread::sleep(Duration::from_millis(over.saturating_sub(boottime_ms())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tree::is_launcher;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn the_launchers_of_a_run_are_known_by_their_step() {
        let name = "exec 3</proc/self/comm; printf supervise-nodes >/proc/self/comm; read line";
        let start = |step: &str| {
            let mut sh = Command::new("bash");
            // Three arguments like a launcher's: its name, `__nodes`, the step.
            sh.arg0("supervise").args(["-c", name, step]);
            sh.stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut child = start("supervise-ab12-3");
        let pid = i32::try_from(child.id()).unwrap();
        while !has_launchers_name(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_launcher(pid));
        assert!(launchers(&RunId("ab12".to_owned())).is_empty());
        child.kill().unwrap();
        // A zombie that was not reaped yet is ours, whatever its command line.
        while proc_stat(pid).is_some_and(|s| s.is_running()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(launchers(&RunId("ab12".to_owned())).len(), 1);
        child.wait().unwrap();
    }
}
