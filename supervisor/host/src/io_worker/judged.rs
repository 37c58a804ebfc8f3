//! The gate of [`crate::ownership`] for this process, on the file systems that there are.

use super::fs_kind::maps_users;
use crate::disk::own_ids;
use crate::ownership::{DistrustReason, OwnIds, OwnedPath, PathTrust};
use camino::Utf8Path;

/// Whether we may act on a path. A network file system may give our files to another user: who that is is learned from a file in `dir`,
/// where the path lies, if that can change the answer. Nothing is created on a file system of this machine.
#[must_use]
pub fn trust_here(path: &OwnedPath, dir: &Utf8Path) -> PathTrust {
    match path.trust(OwnIds::here()) {
        PathTrust::Refused(refused) if refused.why == DistrustReason::OtherOwner && maps_users(dir) => {
            path.trust(own_ids(dir))
        }
        trust => trust,
    }
}
