//! Runs whose scripts were seen to train into this run's checkpoint root; their leases are stored elsewhere.

use crate::error::CliError;
use crate::path_access;
use camino::Utf8Path;
use supervise_core::id::RunId;
use supervise_host::guard::trainers::trainers_beside;
use supervise_trainers::registry;

/// This user's run on this machine that trains into a directory, according to its interpreters; not `own`.
pub fn trains_into(root: &Utf8Path, own: Option<&RunId>) -> Option<RunId> {
    let root = path_access::canonical(root).unwrap_or_else(|_| root.to_owned());
    let beside = trainers_beside(own).into_iter();
    let mut there = beside.filter(|other| registry::seen(&other.told, None).is_some_and(|t| t.root == root));
    there.next().map(|other| other.run)
}

/// Refuses a root into which a running run trains.
pub(super) fn check(root: &Utf8Path, own: &RunId) -> Result<(), CliError> {
    match trains_into(root, Some(own)) {
        Some(run) => Err(
            CliError::lease_held(format!("run {run} trains into {root}: its script saves there")).hint(format!(
                "`supervise status {run}` shows it, `supervise stop {run}` ends it"
            )),
        ),
        None => Ok(()),
    }
}
