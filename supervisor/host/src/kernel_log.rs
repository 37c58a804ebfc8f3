//! The kernel log since the launch: lines that may explain why an attempt ended.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use supervise_core::observe::machine::{KernelKind, KernelLine, facts};

const RECORDS: usize = 50_000;
const RECORD: usize = 8 << 10;
/// Bytes of messages that are kept, the last ones.
const KEPT: usize = 4 << 20;
/// How far the kernel's clock and ours may differ, in microseconds.
const SLACK: u64 = 2_000_000;
/// The PID namespace whose numbers the kernel uses.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The kernel log from now on, to open at a launch: reading all earlier messages one by one takes long. `None` if it
/// cannot be read.
#[must_use]
pub fn from_now() -> Option<File> {
    let mut log = open().ok()?;
    log.seek(SeekFrom::End(0)).ok()?;
    Some(log)
}

fn open() -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open("/dev/kmsg")
}

/// Its lines since the launch, without prefixes; `Err`: why it cannot be read. Continues a log that was opened then.
pub(crate) fn read(log: Option<File>, age_ms: u64) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("/dev/kmsg cannot be read: {e}");
    let mut log = log.map_or_else(open, Ok).map_err(failed)?;
    let since = since(age_ms);
    let (mut out, mut record) = (String::new(), [0; RECORD]);
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(n) => {
                let text = String::from_utf8_lossy(record.get(..n).unwrap_or_default());
                if let Some(line) = line(&text, since) {
                    out.push_str(line);
                    out.push('\n');
                }
                if out.len() > 2 * KEPT {
                    out.drain(..out.floor_char_boundary(KEPT));
                }
            }
            // Overwritten meanwhile: the next read continues with what is left.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPIPE | libc::EINTR)) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(out)
}

/// Errors reported by NVIDIA's driver in a log of [`from_now`], a line each: about processes that are `ours`, or
/// about none.
pub(crate) fn gpu_errors(log: File, ours: impl Fn(i32) -> bool) -> Vec<String> {
    let said = read(Some(log), u64::MAX).unwrap_or_default();
    let mut lines = facts(&said, ours);
    lines.retain(|line| matches!(line.kind, KernelKind::Xid(_)) && (line.ours || line.pid.is_none()));
    lines.into_iter().map(|line| line.text).collect()
}

fn since(age_ms: u64) -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        let secs = u64::try_from(t.tv_sec()).unwrap_or(0);
        secs.saturating_mul(1_000_000)
    });
    now.saturating_sub(age_ms.saturating_mul(1000)).saturating_sub(SLACK)
}

/// The text of a message that came after this moment: `6,1204,90125430,-;text`.
fn line(record: &str, since: u64) -> Option<&str> {
    let (head, text) = record.split_once(';')?;
    let at: u64 = head.split(',').nth(2)?.parse().ok()?;
    let text = text.lines().next()?;
    (at >= since && !text.is_empty()).then_some(text)
}

/// Why its PIDs are not of our namespace.
pub(crate) fn other_numbers() -> Option<String> {
    let own = std::fs::read_link("/proc/self/ns/pid").ok()?;
    (own.to_str() != Some(FIRST_NAMESPACE))
        .then(|| "the kernel's log counts processes by other numbers than this container".to_owned())
}

/// The evidence file: first the lines that matter, then the end of the rest.
pub(crate) fn text(log: &Result<String, String>, lines: &[KernelLine]) -> String {
    let log = match log {
        Ok(log) => log,
        Err(why) => return format!("{why}\n"),
    };
    let mut out = String::from("# lines since the launch that may say why\n");
    for line in lines {
        out.push_str(&line.text);
        out.push('\n');
    }
    out.push_str("\n# the last lines of all\n");
    let from = log.len().saturating_sub(64 << 10);
    out.push_str(&log[log.ceil_char_boundary(from)..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_after_the_launch_counts() {
        let record = "3,1204,90125430,-;Out of memory: Killed process 4711\n SUBSYSTEM=x";
        assert_eq!(line(record, 90_000_000), Some("Out of memory: Killed process 4711"));
        assert_eq!(line(record, 91_000_000), None);
        assert_eq!(line("garbage", 0), None);
        assert_eq!(line("3,x,y;text", 0), None);
    }

    #[test]
    fn errors_of_gpus_are_those_of_our_processes_and_of_none() {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        use std::io::Write;
        let errors = |text: &str| {
            let mut log = memfd_create(c"log", MFdFlags::empty()).map(File::from).unwrap();
            let record = format!("3,1204,90125430,-;{text}\n SUBSYSTEM=pci");
            log.write_all(record.as_bytes()).and_then(|()| log.rewind()).unwrap();
            gpu_errors(log, |pid| pid == 1896)
        };
        let lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, GPU has fallen off the bus.";
        assert_eq!(errors(lost), [lost]);
        let unnamed = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
        assert_eq!(errors(unnamed), [unnamed]);
        let others = "NVRM: Xid (PCI:0000:5e:00): 31, pid=4711, name=python3, MMU Fault";
        for none in [others, "NVRM: loading NVIDIA UNIX Kernel Module"] {
            assert!(errors(none).is_empty(), "{none}");
        }
    }
}
