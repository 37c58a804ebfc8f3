//! Facts about the machine when an attempt ended: the kernel log, memory, disk space.

use crate::observe::collectives::Collectives;
use crate::observe::exception::WorkerException;
use crate::observe::stacks::Stacks;
use crate::rulebook::log_cause::LogCause;
use serde::{Deserialize, Serialize};

const LINES: usize = 40;
/// Longest line kept, in bytes.
const LINE: usize = 300;

/// Facts about the machine when an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Relevant lines of the kernel log since the launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<KernelLine>,
    /// Why the kernel log could not be read, or does not mention our processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Free bytes in `/dev/shm`, and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<(u64, u64)>,
    /// Free bytes on the file system of the checkpoints, and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<(u64, u64)>,
    /// Available bytes of memory on this machine, and the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<(u64, u64)>,
    /// Collective calls of all ranks, from PyTorch's flight recorder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Collectives>,
    /// Python stacks of the ranks before they were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
    /// Exceptions that ended Python interpreters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<WorkerException>,
    /// The cause found in the complete logs after the last process exited. It arrives alone, after the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogCause>,
}

impl MachineFacts {
    /// Adds facts that came later. A cause from the logs alone leaves the rest unchanged.
    pub(crate) fn add(&mut self, later: &Self) {
        let logs_alone = Self {
            logs: later.logs.clone(),
            ..Self::default()
        };
        if later.logs.is_some() && *later == logs_alone {
            self.logs.clone_from(&later.logs);
        } else {
            self.clone_from(later);
        }
    }
}

/// A line of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLine {
    /// What the line means.
    pub kind: KernelKind,
    /// The process it names, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Whether `pid` belongs to this attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
    /// The line, shortened.
    pub text: String,
}

/// What a line of the kernel log means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelKind {
    /// The OOM killer killed a process.
    Oom,
    /// A GPU driver reported an error with this number.
    Xid(u32),
    /// Another message of a GPU driver.
    Gpu,
    /// A process crashed.
    Segfault,
    /// A disk failed.
    Disk,
    /// A task hangs in the kernel.
    HungTask,
    /// The hardware reported an error.
    Hardware,
}

/// The lines of a kernel log that may explain the end of an attempt; `ours` recognizes the attempt's processes.
#[must_use]
pub fn facts(log: &str, ours: impl Fn(i32) -> bool) -> Vec<KernelLine> {
    let mut found: Vec<KernelLine> = Vec::new();
    for text in log.lines() {
        let Some((kind, pid)) = read(text) else { continue };
        // Keep the first lines, and all that name one of our processes.
        let ours = pid.is_some_and(&ours);
        if found.len() >= LINES && !ours {
            continue;
        }
        if found.len() >= LINES {
            let Some(other) = found.iter().rposition(|l| !l.ours) else {
                break;
            };
            found.remove(other);
        }
        found.push(KernelLine {
            kind,
            pid,
            ours,
            text: text[..text.floor_char_boundary(LINE)].to_owned(),
        });
    }
    found
}

fn read(text: &str) -> Option<(KernelKind, Option<i32>)> {
    let after = |mark: &str| text.split_once(mark).and_then(|(_, rest)| number(rest));
    if text.contains("Killed process ") {
        return Some((KernelKind::Oom, after("Killed process ")));
    }
    if text.contains("oom-kill:") {
        return Some((KernelKind::Oom, after(",pid=")));
    }
    if let Some((_, rest)) = text.split_once("NVRM: Xid (") {
        let xid = rest.split_once("): ").and_then(|(_, rest)| number(rest));
        let xid = xid.and_then(|n| u32::try_from(n).ok());
        return Some((xid.map_or(KernelKind::Gpu, KernelKind::Xid), after("pid=")));
    }
    let has = |marks: &[&str]| marks.iter().any(|m| text.contains(m));
    if has(&["NVRM:", "SXid ("]) {
        return Some((KernelKind::Gpu, None));
    }
    if has(&[": segfault at ", "traps: ", "general protection fault"]) {
        // `python3[4711]: segfault at …`, `traps: python3[4711] trap int3 …`.
        return Some((KernelKind::Segfault, after("[")));
    }
    if has(&["I/O error", "EXT4-fs error", "XFS (", "Buffer I/O"]) {
        return Some((KernelKind::Disk, None));
    }
    if has(&["blocked for more than", "soft lockup", "hung_task"]) {
        return Some((KernelKind::HungTask, None));
    }
    if has(&["Machine check", "mce: ", "Hardware Error", "EDAC"]) {
        return Some((KernelKind::Hardware, None));
    }
    None
}

/// The number at the start of a text, after any blanks and quotes.
fn number(text: &str) -> Option<i32> {
    let text = text.trim_start_matches([' ', '\'']);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LOG: &str = "usb 1-1: new device\n\
        python3 invoked oom-killer: gfp_mask=0xcc0\n\
        oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=77,uid=0\n\
        Memory cgroup out of memory: Killed process 77 (python3) total-vm:91234kB, anon-rss:81234kB\n\
        NVRM: Xid (PCI:0000:10:1c): 79, pid='1896', name=python3, GPU has fallen off the bus.\n\
        python3[4711]: segfault at 0 ip 00007f error 4 in libc.so\n\
        blk_update_request: I/O error, dev nvme0n1, sector 8\n\
        INFO: task python3:9 blocked for more than 120 seconds.\n\
        mce: [Hardware Error]: Machine check events logged";

    #[test]
    fn the_kernels_log_tells_of_kills_gpus_and_disks() {
        let found = facts(LOG, |pid| pid == 77);
        let kinds: Vec<(KernelKind, Option<i32>, bool)> = found.iter().map(|l| (l.kind, l.pid, l.ours)).collect();
        assert_eq!(
            kinds,
            [
                (KernelKind::Oom, Some(77), true),
                (KernelKind::Oom, Some(77), true),
                (KernelKind::Xid(79), Some(1896), false),
                (KernelKind::Segfault, Some(4711), false),
                (KernelKind::Disk, None, false),
                (KernelKind::HungTask, None, false),
                (KernelKind::Hardware, None, false),
            ]
        );
    }

    #[test]
    fn a_long_log_costs_bounded_memory_and_loses_none_of_ours() {
        let mut log = "a: segfault at 0\n".repeat(5000);
        log.push_str("Out of memory: Killed process 5 (python3)\n");
        let found = facts(&log, |pid| pid == 5);
        assert!(found.len() <= LINES && found.last().unwrap().ours, "{found:?}");
    }
}
