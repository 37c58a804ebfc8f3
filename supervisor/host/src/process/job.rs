//! The shell job that this process belongs to: stopped by `^Z`, continued by `fg`.

use super::stat::proc_stat;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, getpgrp};

/// Returns true if a shell could continue this job: one of the same session that started the job's leader.
fn has_a_shell() -> bool {
    let group = getpgrp().as_raw();
    let shell = proc_stat(group).and_then(|leader| Some((leader, proc_stat(leader.ppid)?)));
    shell.is_some_and(|(leader, shell)| shell.session == leader.session && shell.group != group)
}

/// Stops the whole job, as the terminal does at `^Z`; does nothing if no shell could continue it.
pub fn ask_job_to_stop() {
    if has_a_shell() {
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
    }
}

/// Stops this process and returns once it is continued; returns at once if no shell could continue it.
pub fn stand_still() {
    if has_a_shell() {
        let _ = raise(Signal::SIGSTOP);
    }
}
