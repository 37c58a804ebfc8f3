//! The next thing that would end a run by running out, for `status`.

use serde::Serialize;
use supervise_core::decide::danger::next_danger;
use supervise_core::observe::creep::WatchedResource;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// The next danger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DangerView {
    /// The resource that runs out.
    pub what: WatchedResource,
    /// Bytes or files in use, and how many there are.
    pub used: u64,
    /// How many there are.
    pub of: u64,
    /// Growth with each step.
    pub per_step: u64,
    /// The last step that it lasts for.
    pub until_step: u64,
    /// The save that does not fit any more, of a disk.
    pub save: Option<u64>,
    /// Time until then at the present pace, in ms.
    pub left_ms: Option<u64>,
    /// In words.
    pub text: String,
}

impl DangerView {
    /// The next danger to the present attempt.
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
