//! Facts of the machine about the end of an attempt: the kernel's words, memory, room on disks.

use crate::observe::collectives::Collectives;
use crate::observe::exception::WorkerException;
use crate::observe::stacks::Stacks;
use crate::rulebook::log_cause::LogCause;
use serde::{Deserialize, Serialize};

/// Lines of the kernel's log that are kept.
const LINES: usize = 40;
/// Longest of them, in bytes.
const LINE: usize = 300;

/// Facts about the machine when an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Lines of the kernel's log since the launch that may say why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<KernelLine>,
    /// Why its log could not be read, or says nothing of our processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Bytes free in `/dev/shm`, and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<(u64, u64)>,
    /// Bytes free where the checkpoints are, and the size of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<(u64, u64)>,
    /// Bytes of memory that are available on this machine, and all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<(u64, u64)>,
    /// Calls of all ranks, as PyTorch's flight recorder kept them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Collectives>,
    /// Places of the ranks in their programs before they were ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
    /// Exceptions that ended interpreters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<WorkerException>,
    /// The cause that the logs tell, read whole after the last process was gone. It comes alone, after the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogCause>,
}

impl MachineFacts {
    /// Takes in what came later: the logs alone leave the rest as it is.
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

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLine {
    /// Its meaning.
    pub kind: KernelKind,
    /// The process it names, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// That is one of the attempt's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
    /// The line, shortened.
    pub text: String,
}

/// Meaning of a line of the kernel's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelKind {
    /// A process was killed for want of memory.
    Oom,
    /// The driver of a GPU tells of an error, by its number.
    Xid(u32),
    /// Anything else of a GPU's driver.
    Gpu,
    /// A process crashed.
    Segfault,
    /// A disk failed.
    Disk,
    /// A task hangs in the kernel.
    HungTask,
    /// The hardware tells of an error.
    Hardware,
}

/// The lines of a kernel's log that may say why an attempt ended; `ours` tells the attempt's processes.
#[must_use]
pub fn facts(log: &str, ours: impl Fn(i32) -> bool) -> Vec<KernelLine> {
    let mut found: Vec<KernelLine> = Vec::new();
    for text in log.lines() {
        let Some((kind, pid)) = read(text) else { continue };
        // The first of a kind matter most, and what names one of ours.
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

/// The number that a text begins with, blanks and quotes before it aside.
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
