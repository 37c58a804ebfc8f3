//! Detects OOM kills of workers: the kernel logs them and counts them per cgroup.
//!
//! Both are read only when something of the attempt has failed, and only from its launch on. A process that the
//! kernel killed prints nothing itself.

use crate::process::cgroup::memory_events;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

const RECORDS: usize = 20_000;
const RECORD: usize = 8 << 10;
const COUNTERS: u64 = 64 << 10;
const KNOWN: usize = 16_384;
const KILLED: &str = "Killed process ";
const TOLD: usize = 300;
/// The PID namespace whose numbers the kernel log uses.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

#[derive(Debug, Default)]
pub(crate) struct OomWatch {
    log: Option<File>,
    counters: Option<PathBuf>,
    /// Kills counted at the launch; `None` if they could not be read: then later ones prove nothing.
    before: Option<u64>,
    known: BTreeSet<i32>,
    told: bool,
}

impl OomWatch {
    /// Call it before the workers start.
    pub(crate) fn watch() -> Self {
        let counters = memory_events();
        Self {
            log: open_log(),
            before: counters.as_ref().and_then(count),
            counters,
            ..Self::default()
        }
    }

    pub(crate) fn note(&mut self, pid: i32) {
        if self.known.len() < KNOWN {
            self.known.insert(pid);
        }
    }

    /// The kernel's message about this attempt, the first time that there is one.
    pub(crate) fn killed(&mut self) -> Option<String> {
        if self.told {
            return None;
        }
        let said = self.in_log().or_else(|| self.in_counters());
        self.told = said.is_some();
        said
    }

    fn in_log(&mut self) -> Option<String> {
        let log = self.log.as_mut()?;
        let mut record = [0; RECORD];
        // The kernel first logs which process it chose, and then, in plainer words, that it killed it.
        let mut chosen = None;
        for _ in 0..RECORDS {
            match log.read(&mut record) {
                Ok(0) => break,
                Ok(n) => {
                    let text = String::from_utf8_lossy(record.get(..n).unwrap_or(&[]));
                    if let Some((_, said)) = victim(&text).filter(|(pid, _)| self.known.contains(pid)) {
                        let killed = said.contains(KILLED);
                        chosen = Some(format!("the kernel: {said}"));
                        if killed {
                            break;
                        }
                    }
                }
                // Overwritten meanwhile: the next read continues with what is left.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EPIPE | libc::EINTR)) => {}
                Err(e) => {
                    if e.kind() != ErrorKind::WouldBlock {
                        self.log = None;
                    }
                    break;
                }
            }
        }
        chosen
    }

    fn in_counters(&self) -> Option<String> {
        let path = self.counters.as_ref()?;
        let more = count(path)?.checked_sub(self.before?).filter(|n| *n > 0)?;
        let what = if more == 1 { "a process" } else { "processes" };
        Some(format!(
            "the kernel killed {what} of this control group for want of memory ({more} since the launch, {})",
            path.display()
        ))
    }
}

/// The kernel log from now on; `None` if it may not be read, or uses another PID namespace.
fn open_log() -> Option<File> {
    let own = fs::read_link("/proc/self/ns/pid").ok()?;
    if own.to_str() != Some(FIRST_NAMESPACE) {
        return None;
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let mut log = options.open("/dev/kmsg").ok()?;
    log.seek(SeekFrom::End(0)).ok()?;
    Some(log)
}

fn count(path: &PathBuf) -> Option<u64> {
    let mut text = String::new();
    File::open(path).ok()?.take(COUNTERS).read_to_string(&mut text).ok()?;
    kills(&text)
}

fn kills(text: &str) -> Option<u64> {
    let found = text.lines().find_map(|l| l.strip_prefix("oom_kill "))?;
    found.trim().parse().ok()
}

/// The PID of an OOM kill in a kernel log record, and the message.
fn victim(record: &str) -> Option<(i32, String)> {
    // Before the semicolon come level, sequence number and time; lines after the first are properties.
    let text = record.split_once(';').map_or(record, |(_, text)| text);
    let text = text.lines().next().unwrap_or_default();
    let number = |rest: &str| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..digits)?.parse::<i32>().ok()
    };
    let pid = match text.split_once(KILLED) {
        Some((_, rest)) => number(rest),
        None => {
            let (_, rest) = text.split_once("oom-kill:")?;
            let (_, rest) = rest.split_once(",pid=")?;
            number(rest)
        }
    }?;
    let end = text.floor_char_boundary(TOLD);
    Some((pid, text.get(..end).unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_name_the_process() {
        for (record, pid) in [
            (
                "3,1204,90125430,-;Out of memory: Killed process 4711 (python3) total-vm:91234kB, anon-rss:81234kB, UID:0 pgtables:180kB oom_score_adj:0\n SUBSYSTEM=x",
                Some(4711),
            ),
            (
                "3,9,1,-;Memory cgroup out of memory: Killed process 12 (ray::Worker) total-vm:1kB",
                Some(12),
            ),
            (
                "6,8,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=python3,pid=77,uid=1000",
                Some(77),
            ),
            ("6,7,1,-;python3 invoked oom-killer: gfp_mask=0xcc0, order=0", None),
            ("6,7,1,-;Killed process of no number", None),
            ("6,7,1,-;Killed process 99999999999999 (x)", None),
            ("", None),
        ] {
            assert_eq!(victim(record).map(|(pid, _)| pid), pid, "{record}");
        }
        let (_, said) = victim("3,1,1,-;Out of memory: Killed process 1 (x)\n DEVICE=y").unwrap();
        assert_eq!(said, "Out of memory: Killed process 1 (x)");
    }

    #[test]
    fn the_counters_of_both_versions_are_read() {
        assert_eq!(
            kills("low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 0\n"),
            Some(3)
        );
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(kills("oom_kill_disable 0\n"), None);
        assert_eq!(kills("oom_kill many\n"), None);
    }

    #[test]
    fn only_what_came_after_the_launch_counts_and_it_is_told_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "oom_kill 2\n").unwrap();
        let mut memory = OomWatch {
            counters: Some(file.path().to_owned()),
            before: Some(2),
            ..OomWatch::default()
        };
        assert_eq!(memory.killed(), None);
        fs::write(file.path(), "oom_kill 3\n").unwrap();
        assert!(
            memory
                .killed()
                .unwrap()
                .contains("for want of memory (1 since the launch")
        );
        assert_eq!(memory.killed(), None);
    }
}
