//! The guard's record of its processes on disk: the attempt's `tree` file.
//!
//! One JSON object per line, appended: first `{"boot","pid_ns"}`, the boot and the PID namespace that the numbers
//! belong to; then a line per descendant, `{"pid","start","ppid","command"}`, one per worker that exited,
//! `{"worker","exit","step"}`, and one per other process that the guard reaped, `{"pid","exit"}`.
//! `{"output":"ended"}` follows all output of the attempt. A torn or unknown line is skipped. The log writer writes
//! the file, so the last seconds may be missing.

use crate::process::stat::{ProcStat, command_head, command_line};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use supervise_core::event::ExitStatus;
use supervise_core::id::{ProcRef, Step, WorkerId};
use supervise_core::lease::PidScope;

/// Content of a `tree` file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeRecord {
    /// The PIDs are invalid here: they belong to another boot or PID namespace.
    pub foreign: bool,
    /// Descendants of the guard, workers included; empty if the PIDs are invalid here.
    pub procs: Vec<ProcRef>,
    pub exits: Vec<(WorkerId, ExitStatus)>,
    pub step: Option<Step>,
}

#[derive(Deserialize)]
struct ProcessLine {
    boot: Option<String>,
    /// Not written by older releases: only the boot is compared then.
    pid_ns: Option<u64>,
    pid: Option<i32>,
    start: Option<u64>,
    worker: Option<WorkerId>,
    exit: Option<ExitStatus>,
    step: Option<Step>,
}

/// Parses a `tree` file for use in this PID scope.
#[must_use]
pub fn parse_tree(bytes: &[u8], here: &PidScope) -> TreeRecord {
    let mut record = TreeRecord::default();
    let mut same = false;
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(line) = serde_json::from_slice::<ProcessLine>(line) else {
            continue;
        };
        if let Some(of) = line.boot {
            same = of == here.boot && line.pid_ns.is_none_or(|ns| ns == here.pid_ns);
            record.foreign = !same;
        }
        if let (Some(pid), Some(start), true) = (line.pid, line.start, same) {
            record.procs.push(ProcRef { pid, start });
        }
        if let (Some(worker), Some(exit)) = (line.worker, line.exit) {
            record.exits.push((worker, exit));
        }
        record.step = line.step.or(record.step);
    }
    record
}

pub(crate) fn boot_line() -> String {
    let here = crate::process::own_pid_scope();
    serde_json::json!({ "boot": here.boot, "pid_ns": here.pid_ns }).to_string()
}

const ENVIRONMENT: u64 = 256 << 10;

/// From now on, redacts the values of secrets in this process's environment or command.
pub(crate) fn learn_secrets(pid: i32) {
    let mut bytes = Vec::new();
    let read = File::open(format!("/proc/{pid}/environ")).and_then(|f| f.take(ENVIRONMENT).read_to_end(&mut bytes));
    if read.is_ok() {
        for variable in String::from_utf8_lossy(&bytes).split('\0') {
            if let Some((name, value)) = variable.split_once('=') {
                supervise_config::know_secret(name, value);
            }
        }
    }
    supervise_config::know_words(&command_line(pid).unwrap_or_default());
}

pub(crate) fn descendant_line(stat: &ProcStat) -> String {
    let command = command_head(stat.pid);
    serde_json::json!({ "pid": stat.pid, "start": stat.start, "ppid": stat.ppid, "command": command }).to_string()
}

/// The exit of a process that is not a worker but was the guard's child.
pub(crate) fn end_line(pid: i32, exit: ExitStatus) -> String {
    serde_json::json!({ "pid": pid, "exit": exit }).to_string()
}

/// Written after the last output of the attempt.
pub(crate) const OUTPUT_ENDS: &str = r#"{"output":"ended"}"#;

pub(crate) fn exit_line(worker: WorkerId, exit: ExitStatus, step: Option<Step>) -> String {
    serde_json::json!({ "worker": worker, "exit": exit, "step": step }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_in_the_same_boot_only() {
        let me = crate::process::own_ref();
        let stat = crate::process::proc_stat(me.pid).unwrap();
        let exit = ExitStatus::Signal(9);
        let text = [
            boot_line(),
            descendant_line(&stat),
            exit_line(WorkerId(3), exit, Some(Step(8))),
        ]
        .join("\n");
        let here = crate::process::own_pid_scope();
        let read = parse_tree(text.as_bytes(), &here);
        assert_eq!(read.procs, [me]);
        assert_eq!(read.exits, [(WorkerId(3), exit)]);
        assert_eq!(read.step, Some(Step(8)));
        assert!(!read.foreign);
        let others = [
            PidScope {
                boot: "another".into(),
                ..here.clone()
            },
            PidScope {
                pid_ns: here.pid_ns + 1,
                ..here
            },
        ];
        for elsewhere in others {
            let later = parse_tree(text.as_bytes(), &elsewhere);
            assert!(later.procs.is_empty() && later.foreign);
            assert_eq!(later.exits, read.exits);
        }
    }

    #[test]
    fn torn_and_strange_lines_are_passed_over() {
        let bytes = b"\xff\n{\"boot\":\"b\"}\n{\"pid\":1,\"sta\n[]\n{\"new\":1}\n{\"pid\":7,\"start\":9}";
        let here = PidScope {
            boot: "b".into(),
            pid_ns: 3,
            ..PidScope::default()
        };
        let read = parse_tree(bytes, &here);
        assert_eq!(read.procs, [ProcRef { pid: 7, start: 9 }]);
        let unbooted = parse_tree(b"{\"pid\":7,\"start\":9}", &here);
        assert!(unbooted.procs.is_empty());
    }
}
