//! [`crate::ownership`]'s check for this process, on real file systems.

use super::fs_kind::maps_users;
use crate::disk::own_ids;
use crate::ownership::{DistrustReason, OwnIds, OwnedPath, PathTrust};
use camino::Utf8Path;

/// Whether we may act on a path. A network file system may give our files to another user: if that can matter, a file
/// in `dir`, which contains the path, is created to find out. Nothing is created on a local file system.
#[must_use]
pub fn trust_here(path: &OwnedPath, dir: &Utf8Path) -> PathTrust {
    match path.trust(OwnIds::here()) {
        PathTrust::Refused(refused) if refused.why == DistrustReason::OtherOwner && maps_users(dir) => {
            path.trust(own_ids(dir))
        }
        trust => trust,
    }
}
