//! A supervisor that cannot be reached from here: on another machine, or in a container.

use serde::Serialize;

/// A supervisor known only by its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteSupervisor {
    pub host: String,
    /// PID on its own machine.
    pub pid: i32,
    /// Time since its last heartbeat, in ms, by the file system's clock.
    pub silent_ms: u64,
}

impl RemoteSupervisor {
    /// Host, PID and silence as text.
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
