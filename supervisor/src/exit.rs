//! Exit codes and their meanings: the source of `--help` and docs/exit-codes.md.

use std::fmt::Write as _;

/// A documented exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SuperviseExitCode {
    /// Success.
    Finished = 0,
    /// `compare`, `merge --test` and `demo`: the weights differ.
    Different = 1,
    /// The same failure again.
    Deterministic = 3,
    /// No step is proven.
    NoProof = 4,
    /// Another supervisor or writer.
    LeaseHeld = 5,
    /// No retries left.
    GaveUp = 6,
    /// Stopped by the operator.
    Stopped = 7,
    /// The training finished, but its launch script did not.
    ScriptUnfinished = 8,
    /// Verdict: parts are missing.
    Incomplete = 20,
    /// Verdict: bytes are wrong.
    Damaged = 21,
    /// Verdict: loading it would run code.
    Unsafe = 22,
    /// Verdict: unknown layout.
    Unknown = 23,
    /// Verdict: it cannot be read.
    Unreadable = 24,
    /// The command line is wrong.
    Usage = 64,
    /// A limit, permission or file-system problem.
    Environment = 69,
    /// A bug in the program.
    Internal = 70,
    /// The journal cannot be read or written.
    Journal = 74,
    /// Preempted; the next start resumes.
    OutOfTime = 75,
    /// The configuration is wrong.
    Config = 78,
    /// SIGINT.
    Interrupted = 130,
    /// SIGTERM.
    Terminated = 143,
}

/// All codes, in ascending order.
pub const ALL: [SuperviseExitCode; 21] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Different,
    SuperviseExitCode::Deterministic,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::GaveUp,
    SuperviseExitCode::Stopped,
    SuperviseExitCode::ScriptUnfinished,
    SuperviseExitCode::Incomplete,
    SuperviseExitCode::Damaged,
    SuperviseExitCode::Unsafe,
    SuperviseExitCode::Unknown,
    SuperviseExitCode::Unreadable,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
    SuperviseExitCode::Journal,
    SuperviseExitCode::OutOfTime,
    SuperviseExitCode::Config,
    SuperviseExitCode::Interrupted,
    SuperviseExitCode::Terminated,
];

impl SuperviseExitCode {
    /// The numeric code.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What the code means, for any command.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Finished => {
                "success; `run`: the last step is proven, or the trainer exited with 0 and names no last step"
            }
            Self::Different => "the two models differ",
            Self::Deterministic => "deterministic failure: the same root cause at the same step again",
            Self::NoProof => "no proven checkpoint, and starting over is not allowed",
            Self::LeaseHeld => "another supervisor holds the lease, or another process wrote to the checkpoints",
            Self::GaveUp => "gave up: the retries without progress are used up",
            Self::Stopped => "stopped by the operator",
            Self::ScriptUnfinished => {
                "the training finished, but its launch script failed later or was kept from training again"
            }
            Self::Incomplete => "checkpoint incomplete: parts are missing",
            Self::Damaged => "checkpoint damaged: its contents are wrong",
            Self::Unsafe => "checkpoint unsafe: loading it would run code",
            Self::Unknown => "checkpoint in an unknown layout",
            Self::Unreadable => "checkpoint unreadable: nothing is known about its contents",
            Self::Usage => "usage: the command line is wrong, or names something that does not exist",
            Self::Environment => "environment: a limit, permission or file-system problem on this machine",
            Self::Internal => "internal error or panic",
            Self::Journal => "the journal cannot be read or written",
            Self::OutOfTime => "preempted: stopped before the scheduler's deadline; the next start resumes the run",
            Self::Config => "configuration error: the trainer's or the supervisor's",
            Self::Interrupted => "interrupted by SIGINT",
            Self::Terminated => "terminated by SIGTERM",
        }
    }

    /// What the code means for one command; an empty name stands for the program.
    fn words_for(self, command: &str) -> &'static str {
        match (command, self) {
            ("", _) => self.words(),
            ("run", Self::Finished) => {
                "finished: the last step is proven, or the trainer exited with 0 and names no last step"
            }
            (_, Self::Finished) => "success",
            ("run", _) => self.words(),
            ("plan", Self::Deterministic | Self::NoProof | Self::GaveUp | Self::LeaseHeld) => {
                "`run` would not start, and end with this code"
            }
            ("demo", Self::Different) => "the two runs did not end with the same weights",
            ("save", Self::NoProof) => "`--wait`: the trainer did not answer, or no step was proven",
            (_, Self::NoProof) => "no step is proven, or not the one that was named",
            (_, Self::LeaseHeld) => "the run is running, or another process holds its lease",
            _ => self.words(),
        }
    }

    /// Returns true if `run` needs an operator or another configuration after this code: an automatic restart would end the same way.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Deterministic
                | Self::NoProof
                | Self::LeaseHeld
                | Self::GaveUp
                | Self::ScriptUnfinished
                | Self::Usage
                | Self::Config
        )
    }

    /// The documented exit code with this number.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        ALL.into_iter().find(|e| e.code() == code)
    }
}

/// The exit codes in the `--help` of a command; an empty name stands for the program.
#[must_use]
pub(crate) fn table(command: &str, exits: &[SuperviseExitCode]) -> String {
    let mut out = String::from("Exit codes:\n");
    for exit in exits {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  {:>3}  {}", exit.code(), exit.words_for(command));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::checkpoint::Verdict;
    use supervise_core::journal::record::RunOutcome;

    #[test]
    fn every_code_is_listed_once_and_found_again() {
        let mut codes: Vec<u8> = ALL.iter().map(|e| e.code()).collect();
        codes.dedup();
        assert_eq!(codes.len(), ALL.len());
        assert!(codes.is_sorted());
        assert!(
            codes
                .iter()
                .all(|c| SuperviseExitCode::of(*c).is_some_and(|e| e.code() == *c))
        );
        assert_eq!(SuperviseExitCode::of(2), None);
    }

    #[test]
    fn outcomes_and_verdicts_end_with_documented_codes() {
        let why = || "x".to_owned();
        for outcome in [
            RunOutcome::Finished { step: None },
            RunOutcome::ScriptUnfinished { step: None, why: why() },
            RunOutcome::Stopped,
            RunOutcome::OutOfTime,
            RunOutcome::Deterministic { why: why() },
            RunOutcome::NoProof { why: why() },
            RunOutcome::LeaseHeld { by: why() },
            RunOutcome::Stranger {
                what: why(),
                step: None,
            },
            RunOutcome::GaveUp { why: why() },
            RunOutcome::Environment { why: why() },
            RunOutcome::Config { why: why() },
        ] {
            assert!(SuperviseExitCode::of(outcome.exit_code()).is_some(), "{outcome:?}");
        }
        for (verdict, exit) in [
            (Verdict::Whole, SuperviseExitCode::Finished),
            (Verdict::Incomplete, SuperviseExitCode::Incomplete),
            (Verdict::Damaged, SuperviseExitCode::Damaged),
            (Verdict::Unsafe, SuperviseExitCode::Unsafe),
            (Verdict::Unknown, SuperviseExitCode::Unknown),
            (Verdict::Unreadable, SuperviseExitCode::Unreadable),
        ] {
            assert_eq!(verdict.exit_code(), exit.code());
        }
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let text = table("", &ALL);
        assert_eq!(text.lines().count(), ALL.len() + 1);
        assert!(text.contains("   78  configuration"), "{text}");
    }
}
