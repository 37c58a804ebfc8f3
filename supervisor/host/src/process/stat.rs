//! One line of `/proc/PID/stat`.

use std::fs::File;
use std::io::Read;
use supervise_core::id::ProcRef;

/// Longest stat line that is read: the command is at most 64 bytes, the rest are numbers.
const STAT_LIMIT: usize = 2048;

/// The kernel's information about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcStat {
    pub pid: i32,
    /// State letter: R, S, D, Z, T, …
    pub state: u8,
    pub ppid: i32,
    pub group: i32,
    pub session: i32,
    /// CPU time of the process itself, in clock ticks.
    pub cpu: u64,
    /// Minor page faults.
    pub faults: u64,
    pub threads: u64,
    /// Start time in clock ticks since boot.
    pub start: u64,
    pub is_kernel: bool,
}

impl ProcStat {
    /// The identity of the process.
    #[must_use]
    pub fn proc_ref(&self) -> ProcRef {
        ProcRef {
            pid: self.pid,
            start: self.start,
        }
    }

    /// Returns true if it still executes. A leader whose main thread has exited looks like a zombie while other
    /// threads run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }

    /// Returns true if it was stopped (SIGSTOP, SIGTSTP) and does nothing until it is continued. Not if a debugger
    /// holds it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == b'T'
    }

    /// Returns true if it sleeps in the kernel where no signal reaches it.
    #[must_use]
    pub fn is_uninterruptible(&self) -> bool {
        self.state == b'D'
    }
}

/// The state of a process; `None` if there is no such PID.
#[must_use]
pub fn proc_stat(pid: i32) -> Option<ProcStat> {
    let mut buffer = [0_u8; STAT_LIMIT];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let mut len = 0;
    while buffer.get(..len).is_none_or(|b| !b.ends_with(b"\n"))
        && let Some(rest) = buffer.get_mut(len..)
    {
        match file.read(rest) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    parse(pid, buffer.get(..len)?)
}

/// The command is in parentheses and may itself contain blanks and parentheses: only the last one counts.
fn parse(pid: i32, line: &[u8]) -> Option<ProcStat> {
    let close = line.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field after the command is number 3 in the manual page.
    let field = |number: usize| fields.get(number - 3).copied();
    let user: u64 = field(14)?.parse().ok()?;
    let system: u64 = field(15)?.parse().ok()?;
    Some(ProcStat {
        pid,
        state: *field(3)?.as_bytes().first()?,
        ppid: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        cpu: user.saturating_add(system),
        faults: field(10)?.parse().ok()?,
        threads: field(20)?.parse().ok()?,
        start: field(22)?.parse().ok()?,
        is_kernel: field(9)?.parse::<u64>().ok()? & KERNEL != 0,
    })
}

/// The flag of kernel threads (`PF_KTHREAD`).
const KERNEL: u64 = 0x0020_0000;

const HEAD: usize = 160;
/// Bytes read for it: secrets are only recognized as a whole.
const HEAD_READ: u64 = 16 << 10;

/// The first words of a process's command line, for messages and without secrets; empty if it hides it.
#[must_use]
pub fn command_head(pid: i32) -> String {
    let mut buffer = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        // An unreadable command line is shown as empty.
        let _ = file.take(HEAD_READ).read_to_end(&mut buffer);
    }
    head_of(&buffer)
}

fn head_of(command: &[u8]) -> String {
    let words: Vec<String> = command
        .split(|b| *b == 0)
        .filter(|w| !w.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect();
    let safe = supervise_config::redact_words(&words).join(" ");
    safe.chars().take(HEAD).collect()
}

const LINE_LIMIT: u64 = 256 << 10;

/// The command line of a process; `None` if it hides it, or is not UTF-8.
#[must_use]
pub fn command_line(pid: i32) -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|f| f.take(LINE_LIMIT).read_to_end(&mut bytes))
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let words = text.strip_suffix('\0').unwrap_or(&text).split('\0');
    (!text.is_empty()).then(|| words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_and_blanks_does_not_shift_the_fields() {
        let line = b"71 (a) R (b) S 3 4 5 0 -1 4194560 1 2 3 4 100 20 7 8 20 0 9 0 4711 1 2 3";
        let stat = parse(71, line).unwrap();
        assert_eq!(stat.state, b'S');
        assert_eq!((stat.ppid, stat.group, stat.session), (3, 4, 5));
        assert_eq!((stat.cpu, stat.threads, stat.start), (120, 9, 4711));
    }

    #[test]
    fn the_head_of_a_command_line_tells_no_secret_and_no_part_of_one() {
        let long = format!("x={}", "y".repeat(130));
        let words = [
            "python",
            "--api-key",
            "hush",
            "hf_abcdefghijklmnopqrstuvwx",
            &long,
            "ghp_abcdefghijklmnopqrst",
        ];
        let head = head_of(words.join("\0").as_bytes());
        assert!(head.starts_with("python --api-key *** *** x=yyy"), "{head}");
        assert!(
            !head.contains("hush") && !head.contains("hf_") && !head.contains("ghp"),
            "{head}"
        );
        assert_eq!(head.chars().count(), HEAD);
        assert_eq!(head_of(b""), "");
    }

    #[test]
    fn a_torn_line_is_nothing() {
        assert_eq!(parse(1, b"1 (init"), None);
        assert_eq!(parse(1, b"1 (init) S 0 1"), None);
        assert_eq!(parse(1, b""), None);
    }

    #[test]
    fn a_zombie_with_threads_still_runs() {
        let line = b"7 (x) Z 1 7 7 0 -1 0 0 0 0 0 1 1 0 0 20 0 3 0 9 0";
        assert!(parse(7, line).unwrap().is_running());
        let line = b"7 (x) Z 1 7 7 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 9 0";
        assert!(!parse(7, line).unwrap().is_running());
    }
}
