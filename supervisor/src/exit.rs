//! Every exit code of the program, with its meaning: one table that `--help` and the documentation are made of.

use std::fmt::Write as _;

/// A documented exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SuperviseExitCode {
    /// The run, or the command, did what it was asked to do.
    Finished = 0,
    /// `compare`: the two differ.
    Different = 1,
    /// The same failure again.
    Deterministic = 3,
    /// Nothing provable.
    NoProof = 4,
    /// Somebody else works here.
    LeaseHeld = 5,
    /// Retries used up.
    GaveUp = 6,
    /// Stopped by the operator.
    Stopped = 7,
    /// The training finished, its launch script did not.
    ScriptUnfinished = 8,
    /// `verify`: parts are missing.
    Incomplete = 20,
    /// `verify`: bytes are wrong.
    Damaged = 21,
    /// `verify`: loading it would run something.
    Unsafe = 22,
    /// `verify`: no layout that is known.
    Unknown = 23,
    /// `verify`: it cannot be read.
    Unreadable = 24,
    /// The command line is wrong.
    Usage = 64,
    /// The machine does not allow it.
    Environment = 69,
    /// A mistake in the program itself.
    Internal = 70,
    /// The journal cannot be read or written.
    Journal = 74,
    /// The machine is taken away; the next start goes on.
    OutOfTime = 75,
    /// The configuration is wrong.
    Config = 78,
    /// SIGINT.
    Interrupted = 130,
    /// SIGTERM.
    Terminated = 143,
}

/// All of them, in the order of their numbers.
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
    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Its meaning, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Finished => {
                "finished: the last planned step is proven, or the trainer ended well and its last step cannot be known"
            }
            Self::Different => "compare: the two models differ",
            Self::Deterministic => "deterministic failure: the same root cause at the same step again",
            Self::NoProof => "no provable checkpoint, and starting over is not allowed",
            Self::LeaseHeld => "another supervisor holds the lease, or somebody else wrote among the checkpoints",
            Self::GaveUp => "gave up: the retries without progress are used up",
            Self::Stopped => "stopped by the operator",
            Self::ScriptUnfinished => {
                "the training finished, its launch script did not: it failed later, or another training of it was held back"
            }
            Self::Incomplete => "verify: incomplete, parts are missing",
            Self::Damaged => "verify: damaged, bytes that were read are wrong",
            Self::Unsafe => "verify: unsafe, loading it would run something",
            Self::Unknown => "verify: no layout that is known",
            Self::Unreadable => "verify: unreadable, nothing is said about its bytes",
            Self::Usage => "usage: the command line is wrong, or names what is not there",
            Self::Environment => "environment: the machine or the file system does not allow it",
            Self::Internal => "internal error, panics too",
            Self::Journal => "the journal cannot be read or written",
            Self::OutOfTime => {
                "out of time: the scheduler takes the machine away; the newest proven step is safe, the next start goes on from it"
            }
            Self::Config => "configuration: the trainer's or the supervisor's",
            Self::Interrupted => "ended by SIGINT",
            Self::Terminated => "ended by SIGTERM",
        }
    }

    /// Returns true if `run` that ended so needs a person or another configuration: a start that comes by itself would end the same.
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

    /// The code of that number, if it is a documented one.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        ALL.into_iter().find(|e| e.code() == code)
    }
}

/// The table for `--help`, one line each.
#[must_use]
pub fn table(which: &[SuperviseExitCode]) -> String {
    let mut out = String::from("Exit codes:\n");
    for exit in which {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  {:>3}  {}", exit.code(), exit.words());
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
        let text = table(&ALL);
        assert_eq!(text.lines().count(), ALL.len() + 1);
        assert!(text.contains("   78  configuration"), "{text}");
    }
}
