//! Process exits reported by launchers and shells.

use crate::event::ExitStatus;
use regex::bytes::Regex;

/// Bytes of a report that are kept.
const REPORT: usize = 300;

/// A report contains one of these texts.
pub(super) const TEXTS: [&str; 11] = [
    "exitcode",
    "exit code",
    "return code",
    "exited with",
    "by signal",
    "with signal SIG",
    "exited on",
    "died with <Signals",
    "CalledProcessError",
    "(SIG",
    "Exit Status: ",
];

#[derive(Debug, Clone)]
pub(super) struct ReportedEnd {
    pub(super) status: ExitStatus,
    pub(super) file: usize,
    pub(super) line: u64,
    pub(super) text: String,
    /// Number of new steps before it in its log.
    pub(super) steps: u32,
}

/// The rank that a report names: `local_rank: 3`, `task 3`, `Rank 3`.
pub(super) fn rank(report: &str) -> Option<u32> {
    let words = report.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    let names = ["local_rank", "rank", "task", "tasks"];
    let at = words
        .iter()
        .position(|w| names.iter().any(|n| w.eq_ignore_ascii_case(n)))?;
    words.get(at + 1)?.parse().ok()
}

/// Returns true for the report of a batch system about its job.
pub(super) fn is_of_job(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"Exit Status: ")
}

/// Text of the report, shortened.
pub(super) fn words(line: &[u8]) -> String {
    let line = line.trim_ascii();
    String::from_utf8_lossy(line.get(..line.len().min(REPORT)).unwrap_or_default()).into_owned()
}

pub(super) struct Ends {
    /// In the report of PBS.
    job: Regex,
    code: Regex,
    signal: Regex,
    name: Regex,
}

impl Ends {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            job: Regex::new(r"(?-u)^\s*Exit Status: (\d{1,3})\s*$")?,
            code: Regex::new(
                r"(?i-u)(?:exitcode\s*[:=]?|return code =|exited with (?:code|exit code|status)|(?:Process|Worker|Rank|Task)\b.{0,60}exit ?code:?|CalledProcessError.*exit status)\s*(-?\d{1,3})\b",
            )?,
            signal: Regex::new(
                r"(?i-u)(?:exited on|killed by|terminated by|received|got) signal:? (\d{1,2})\b|Signal (\d{1,2}) \(SIG\w+\) received",
            )?,
            name: Regex::new(
                r"(?-u)(?:died with <Signals\.|terminated with signal )SIG(\w+)|srun: error: \S+: tasks? [\d,-]+: (Killed|Segmentation fault|Bus error|Aborted|Terminated|Illegal instruction|Floating point exception)",
            )?,
        })
    }

    pub(super) fn report(&self, line: &[u8]) -> Option<ExitStatus> {
        let text = |m: regex::bytes::Match<'_>| std::str::from_utf8(m.as_bytes()).ok().map(str::to_owned);
        if let Some(c) = self.job.captures(line) {
            // Above 256 it is a signal.
            let n: i32 = c.get(1).and_then(text)?.parse().ok()?;
            return Some(if n > 256 {
                ExitStatus::Signal(n - 256)
            } else {
                ExitStatus::Code(n)
            });
        }
        if let Some(c) = self.name.captures(line) {
            let name = c.get(1).or(c.get(2)).and_then(text)?;
            return signal_of(&name).map(ExitStatus::Signal);
        }
        if let Some(c) = self.signal.captures(line) {
            let n = c.get(1).or(c.get(2)).and_then(text)?.parse().ok()?;
            return Some(ExitStatus::Signal(n));
        }
        let n: i32 = self.code.captures(line)?.get(1).and_then(text)?.parse().ok()?;
        Some(if n < 0 {
            ExitStatus::Signal(-n)
        } else {
            ExitStatus::Code(n)
        })
    }
}

fn signal_of(name: &str) -> Option<i32> {
    Some(match name {
        "KILL" | "Killed" => 9,
        "SEGV" | "Segmentation fault" => 11,
        "BUS" | "Bus error" => 7,
        "ABRT" | "Aborted" => 6,
        "TERM" | "Terminated" => 15,
        "ILL" | "Illegal instruction" => 4,
        "FPE" | "Floating point exception" => 8,
        "INT" => 2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_a_launcher_names_is_read() {
        let torchrun =
            "E1128 13:44:08 24060 api.py:986] failed (exitcode: -9) local_rank: 1 (pid: 24070) of binary: python";
        assert_eq!(rank(torchrun), Some(1));
        assert_eq!(rank("srun: error: gpu-003: task 3: Killed"), Some(3));
        assert_eq!(rank("  exitcode  : -9 (pid: 4123)"), None);
    }

    #[test]
    fn launchers_report_ends_in_their_own_forms() {
        let ends = Ends::new().unwrap();
        for (line, status) in [
            ("  exitcode  : -9 (pid: 4123)", ExitStatus::Signal(9)),
            (
                "failed (exitcode: 1) local_rank: 3 (pid: 4123) of binary: python",
                ExitStatus::Code(1),
            ),
            (
                "srun: error: gpu-003: task 3: Segmentation fault",
                ExitStatus::Signal(11),
            ),
            (
                "srun: error: gpu-003: task 3: Exited with exit code 2",
                ExitStatus::Code(2),
            ),
            (
                "subprocess.CalledProcessError: Command '[x]' died with <Signals.SIGKILL: 9>.",
                ExitStatus::Signal(9),
            ),
            ("process 2 terminated with signal SIGKILL", ExitStatus::Signal(9)),
            (
                "launch.py: sub process exits with return code = -11",
                ExitStatus::Signal(11),
            ),
            (
                "mpirun noticed that process rank 3 exited on signal 9 (Killed).",
                ExitStatus::Signal(9),
            ),
            (
                "traceback : Signal 11 (SIGSEGV) received by PID 4123",
                ExitStatus::Signal(11),
            ),
        ] {
            assert_eq!(ends.report(line.as_bytes()), Some(status), "{line}");
        }
        assert_eq!(ends.report(b"all processes are up"), None);
    }
}
