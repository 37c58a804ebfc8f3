//! Processes of a scene, found by the mark in their environment.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Living processes whose environment bears the mark of a scene, with their command lines.
#[must_use]
pub fn in_scene(mark: &str) -> Vec<(i32, String)> {
    let needle = format!("{}={mark}", super::MARK);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|v| v == needle.as_bytes()) && alive(*pid)
    })
    .map(|pid| (pid, cmdline(pid)))
    .collect()
}

/// A process that runs: neither gone nor waiting to be reaped.
#[must_use]
pub fn alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, Some("Z" | "X") | None)
}

/// A process's command line, words separated by spaces.
#[must_use]
pub fn cmdline(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

/// Sends a signal; a process that is gone by now is fine.
pub fn send(pid: i32, signal: i32) {
    let signal = Signal::try_from(signal).ok();
    let _ = kill(Pid::from_raw(pid), signal);
}
