//! A supervisor that cannot be reached from here: on another machine, or in a container.

use serde::Serialize;

/// A supervisor of which only its lease tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteSupervisor {
    /// Host name.
    pub host: String,
    /// Its process id there.
    pub pid: i32,
    /// Time since it was heard of, in milliseconds, by the clock of the file system.
    pub silent_ms: u64,
}

impl RemoteSupervisor {
    /// For people.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "pid {} on {}, heard of {} s ago",
            self.pid,
            self.host,
            self.silent_ms / 1000
        )
    }
}
