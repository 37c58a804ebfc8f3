//! Kinds of checkpoints, by their names in a scan.

use crate::checkpoint::{CheckpointSummary, CkptId, Verdict};

/// The name of the live set, before the dot.
pub const LIVE: &str = "live";
/// The name of what an older build wrote in place, where a pointer hides it.
pub const OLDER: &str = "older";
/// How names of copies begin.
const KEPT: &str = "step_";
/// How names of the trainer's own generations begin.
const OWN: &str = "generation_";

/// Kinds of checkpoints in a scan, by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CkptKind {
    /// The live set.
    Live,
    /// The set that an older build wrote in place, and a pointer hides.
    Older,
    /// A copy of ours.
    Kept,
    /// A generation that the trainer wrote by itself and does not name.
    Own,
    /// A step in a directory of its own.
    Step,
}

impl CkptKind {
    /// The kind of a checkpoint.
    #[must_use]
    pub fn of(id: &CkptId) -> Self {
        let name = id.0.as_str();
        match name.split_once('.').map_or(name, |(name, _)| name) {
            LIVE => Self::Live,
            OLDER => Self::Older,
            _ if name.starts_with(KEPT) => Self::Kept,
            _ if name.starts_with(OWN) => Self::Own,
            _ => Self::Step,
        }
    }
}

/// Returns true if a step of a scan is the live set.
#[must_use]
pub fn is_live(id: &CkptId) -> bool {
    let rest = id.0.as_str().strip_prefix(LIVE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns true if a step of a scan is what an older build wrote in place, and a pointer hides.
#[must_use]
pub fn is_older(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Older
}

/// Returns true if a step of a scan is a copy of ours.
#[must_use]
pub fn is_kept(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Kept
}

/// Returns true if a step of a scan is a generation that the trainer wrote by itself and does not name.
#[must_use]
pub fn is_own(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Own
}

/// The save that a live set or a generation is of.
#[must_use]
pub fn save_of(id: &CkptId) -> Option<&str> {
    id.0.as_str().split_once('.').map(|(_, save)| save)
}

/// Returns true if two are copies of one save.
#[must_use]
pub fn is_same_save(a: &CkptId, b: &CkptId) -> bool {
    save_of(a).is_some() && save_of(a) == save_of(b)
}

/// The live set among the steps of a scan, if it is proven.
#[must_use]
pub fn whole_live(steps: &[CheckpointSummary]) -> Option<&CheckpointSummary> {
    steps
        .iter()
        .find(|c| is_live(&c.id) && c.verdict == Verdict::Whole && c.proven.is_some())
}
