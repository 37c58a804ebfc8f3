//! The scheduler's job of a run.

use super::super::count;
use super::super::time::local_stamp;
use serde::Serialize;
use supervise_core::id::WallMs;

/// A scheduler's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// `slurm`.
    pub name: &'static str,
    pub job: String,
    /// How often it was requeued.
    pub restarts: u32,
    /// Its time limit, in ms since 1970; `null`: none, or unknown.
    pub ends: Option<i64>,
}

impl JobView {
    pub(super) fn words(&self) -> String {
        let again = match self.restarts {
            0 => String::new(),
            n => format!(", started again {}", count(n.into(), "time")),
        };
        let ends = self.ends.map(|at| format!(", ends at {}", local_stamp(WallMs(at))));
        format!("Slurm job {}{again}{}", self.job, ends.unwrap_or_default())
    }
}
