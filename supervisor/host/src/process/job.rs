//! The job of a shell that this process belongs to: stopped by `^Z`, and gone on with by `fg`.

use super::stat::proc_stat;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, getpgrp};

/// Returns true if somebody could let this job go on again: a shell of the same session, which the job's leader was started by.
fn has_a_shell() -> bool {
    let group = getpgrp().as_raw();
    let shell = proc_stat(group).and_then(|leader| Some((leader, proc_stat(leader.ppid)?)));
    shell.is_some_and(|(leader, shell)| shell.session == leader.session && shell.group != group)
}

/// Asks the whole job to stop, as the terminal does at `^Z`; nothing happens where nobody could let it go on.
pub fn ask_job_to_stop() {
    if has_a_shell() {
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
    }
}

/// Stops this process, and comes back once somebody lets it go on; at once where nobody could.
pub fn stand_still() {
    if has_a_shell() {
        let _ = raise(Signal::SIGSTOP);
    }
}
