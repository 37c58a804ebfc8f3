//! Exit statuses of processes, and names of signals.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
    /// Its end was not observed (its guard died).
    Unknown,
}

impl ExitStatus {
    /// The number that `supervise diagnose --exit-code` takes, negative for a signal; `None` if the end was not
    /// observed.
    #[must_use]
    pub fn number(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(n) => Some(n.saturating_neg()),
            Self::Unknown => None,
        }
    }

    /// The status for such a number.
    #[must_use]
    pub fn of_number(number: i32) -> Self {
        match number {
            n if n < 0 => Self::Signal(n.saturating_neg()),
            code => Self::Code(code),
        }
    }

    /// Returns true for exit code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl ExitStatus {
    /// The predicate of a sentence about a worker: `exited with code 1`, `was killed by SIGKILL`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Code(c) => format!("exited with code {c}"),
            Self::Signal(s) => format!("was killed by {}", signal_name(s)),
            Self::Unknown => "ended out of sight".to_owned(),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(c) => write!(f, "exit code {c}"),
            Self::Signal(s) => write!(f, "{}", signal_name(*s)),
            Self::Unknown => f.write_str("an unknown end"),
        }
    }
}

/// The name of a Linux signal.
#[must_use]
pub fn signal_name(n: i32) -> String {
    let name = match n {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {n}"),
    };
    name.to_owned()
}
