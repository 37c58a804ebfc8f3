//! The next resource to run out and stop the run, for `status`.

use serde::Serialize;
use supervise_core::decide::danger::next_danger;
use supervise_core::observe::creep::WatchedResource;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// A forecast shortage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DangerView {
    pub what: WatchedResource,
    pub used: u64,
    /// Bytes or files in total.
    pub of: u64,
    pub per_step: u64,
    /// The last step it suffices for.
    pub until_step: u64,
    /// On a disk: the save that no longer fits.
    pub save: Option<u64>,
    /// Time left at the current rate, in ms.
    pub left_ms: Option<u64>,
    pub text: String,
}

impl DangerView {
    /// The next shortage for the current attempt.
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec) -> Option<Self> {
        let danger = next_danger(s, spec)?;
        let f = danger.forecast;
        Some(Self {
            what: f.what,
            used: f.used,
            of: f.of,
            per_step: f.per_step.ceil() as u64,
            until_step: f.until.0,
            save: danger.save.map(|step| step.0),
            left_ms: danger.left.map(|ms| ms.0),
            text: danger.words(),
        })
    }
}
