//! Processes that prevent a run from ending: its supervisor, its guard, and what is left of its attempts.

use super::RunInfo;
use crate::control;
use crate::error::CliError;
use crate::render::terminal;
use supervise_core::id::RunId;
use supervise_host::address::{self, SocketRole};
use supervise_host::process::{LeftoverProcess, proc_stat};

pub(super) fn left_lines(seen: &RunInfo) -> Vec<String> {
    seen.remains().iter().map(line).collect()
}

/// Adds the processes to an error, with a hint for one that was stopped by a signal.
pub(super) fn named(e: CliError, seen: &RunInfo) -> CliError {
    let own = [
        ("supervisor", control::supervisor_pid(&seen.run)),
        ("guard", guard_pid(&seen.run)),
    ];
    let own: Vec<(&str, LeftoverProcess)> = own
        .into_iter()
        .filter_map(|(who, pid)| Some((who, LeftoverProcess::of(proc_stat(pid?)?.proc_ref())?)))
        .collect();
    let stopped = own.iter().find(|(_, p)| p.state == 'T').map(|(_, p)| p.pid);
    let lines = own.iter().map(|(who, p)| format!("{who}: {}", line(p)));
    let e = e.with_lines(lines).with_lines(left_lines(seen));
    match stopped {
        Some(pid) => e.hint(format!("`kill -CONT {pid}` lets a stopped process go on")),
        None => e,
    }
}

fn guard_pid(run: &RunId) -> Option<i32> {
    let (_, stream) = address::find(run, SocketRole::Guard).ok().flatten()?;
    address::peer(&stream)
}

fn line(p: &LeftoverProcess) -> String {
    terminal::line(&p.to_string()).into_owned()
}
