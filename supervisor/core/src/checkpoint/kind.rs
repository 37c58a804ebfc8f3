//! Kinds of checkpoints, by their names in a scan.

use crate::checkpoint::{CheckpointSummary, CkptId, Verdict};

/// Name of the live set, before the dot.
pub const LIVE: &str = "live";
/// Name of what an older build wrote in place, if a pointer hides it.
pub const OLDER: &str = "older";
/// Prefix of the names of copies.
const KEPT: &str = "step_";
/// Prefix of the names of the trainer's own generations.
const OWN: &str = "generation_";

/// The kind of a checkpoint in a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CkptKind {
    Live,
    /// The set that an older build wrote in place and that a pointer hides.
    Older,
    /// One of our copies.
    Kept,
    /// A generation that the trainer wrote and its pointer does not name.
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

/// Returns true if the checkpoint is the live set.
#[must_use]
pub fn is_live(id: &CkptId) -> bool {
    let rest = id.0.as_str().strip_prefix(LIVE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns true if the checkpoint is the set that an older build wrote in place and a pointer hides.
#[must_use]
pub fn is_older(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Older
}

/// Returns true if the checkpoint is one of our copies.
#[must_use]
pub fn is_kept(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Kept
}

/// Returns true if the checkpoint is a generation that the trainer wrote and its pointer does not name.
#[must_use]
pub fn is_own(id: &CkptId) -> bool {
    CkptKind::of(id) == CkptKind::Own
}

/// The save that a live set or a generation belongs to.
#[must_use]
pub fn save_of(id: &CkptId) -> Option<&str> {
    id.0.as_str().split_once('.').map(|(_, save)| save)
}

/// Returns true if the two belong to the same save.
#[must_use]
pub fn is_same_save(a: &CkptId, b: &CkptId) -> bool {
    save_of(a).is_some() && save_of(a) == save_of(b)
}

/// The live set in a scan, if it is proven.
#[must_use]
pub fn whole_live(steps: &[CheckpointSummary]) -> Option<&CheckpointSummary> {
    steps
        .iter()
        .find(|c| is_live(&c.id) && c.verdict == Verdict::Whole && c.proven.is_some())
}
