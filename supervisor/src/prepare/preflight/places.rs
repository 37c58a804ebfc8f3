//! Checks the directories that a run writes to: their owner, and whether they can be used.

use crate::error::CliError;
use crate::path_access;
use crate::prepare::resolve::RunDirOwner;
use crate::prepare::state_dir::listed_file;
use camino::Utf8Path;
use supervise_core::id::RunId;
use supervise_core::spec::ResumeIntent;
use supervise_host::io_worker::{RUN_DIR_NAME, RegisteredRun};
use supervise_trainers::adapter;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::registry::root_keys;

/// The journal's reserve plus what a term writes at once, in bytes.
const JOURNAL_SPACE: u64 = 2 << 20;

/// Reports a run that this machine started before and whose files are gone: an empty root looks like a fresh start, but its file
/// system may just not be mounted.
pub(super) fn gone(run: &RunId, run_dir: &Utf8Path) -> Option<String> {
    let file = listed_file(run).filter(|_| !path_access::exists(run_dir))?;
    let before = RegisteredRun::read(&file).map(|listed| listed.run_dir);
    Some(match before.filter(|before| before != run_dir) {
        Some(before) => format!(
            "WARNING: this run was started here before with the run directory {before}: what is known of it is there, and does not count in {run_dir}"
        ),
        None => format!(
            "WARNING: this run was started here before, and {run_dir} is gone: if the file system is not mounted, stop this now; if it was deleted on purpose, all is well"
        ),
    })
}

/// A run directory that was set explicitly must not belong to another run, whose journal would be moved away.
pub(super) fn check_owner(run_dir: &Utf8Path, run: &RunId) -> Result<(), CliError> {
    // In its default location it is inside the root, where a copied or moved root is handled separately.
    if run_dir.file_name() == Some(RUN_DIR_NAME) {
        return Ok(());
    }
    let file = run_dir.join("run.id");
    match RunDirOwner::of(run_dir) {
        Some(owner) if owner.run != *run => {
            let of = owner.root.map(|r| format!(" of {r}")).unwrap_or_default();
            Err(CliError::config(format!(
                "the run directory {run_dir} belongs to another run: {}{of} ({file})",
                owner.run
            ))
            .hint("give each run a supervisor.run_dir of its own, or none"))
        }
        _ => Ok(()),
    }
}

/// Refuses a root that is not writable, before a GPU is used.
pub(super) fn check_writable(root: &Utf8Path) -> Result<(), CliError> {
    let here = path_access::nearest(root);
    path_access::may_write(here).map_err(|e| not_writable(root, here, &e))
}

fn not_writable(root: &Utf8Path, here: &Utf8Path, why: &dyn std::fmt::Display) -> CliError {
    let place = if here == root {
        String::new()
    } else {
        format!(" ({here})")
    };
    CliError::environment(format!("the checkpoint root {root} is not writable{place}: {why}")).hint(format!(
        "mend the permissions, or choose another place in the configuration ({})",
        root_keys()
    ))
}

/// Creates the root and writes a file in it, which [`check_writable`] only predicts.
///
/// # Errors
/// The file system refuses.
pub fn probe(root: &Utf8Path) -> Result<(), CliError> {
    path_access::make(root).map_err(|e| not_writable(root, root, &e))
}

pub(super) fn check_space(run_dir: &Utf8Path) -> Result<(), CliError> {
    let here = path_access::nearest(run_dir);
    path_access::free(here).map_or(Ok(()), |free| enough(run_dir, here, free))
}

fn enough(run_dir: &Utf8Path, here: &Utf8Path, free: u64) -> Result<(), CliError> {
    if free >= JOURNAL_SPACE {
        return Ok(());
    }
    Err(CliError::environment(format!(
        "no space for the journal in {run_dir}: the file system of {here} has {free} bytes left, {JOURNAL_SPACE} are needed"
    ))
    .hint("free some space, or set supervisor.run_dir to another file system"))
}

/// Checks that the step named by the configuration exists when the run is adopted.
pub(super) fn check_resume_path(out: &ReadOutput, run_dir: &Utf8Path) -> Result<(), CliError> {
    let ResumeIntent::Path { path, .. } = &out.resume else {
        return Ok(());
    };
    // Afterwards the step may have been used and deleted.
    if path_access::exists(&run_dir.join("run.id")) || path_access::is_dir(path) {
        return Ok(());
    }
    let key = adapter(out.kind).words().resume_path.unwrap_or_default();
    let origin = out.tree.get(key).map(|n| format!("{}: ", n.origin)).unwrap_or_default();
    Err(
        CliError::config(format!("{origin}{key}: there is no such step: {path}")).hint(format!(
            "supervise checkpoints {} lists the steps that are there",
            path.parent().unwrap_or(path)
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_numbers() {
        let (run, here) = (Utf8Path::new("/a/b"), Utf8Path::new("/a"));
        assert!(enough(run, here, JOURNAL_SPACE).is_ok());
        let e = enough(run, here, 4096).unwrap_err();
        assert_eq!(e.exit_code(), 69);
        assert!(
            e.message.contains("no space for the journal in /a/b") && e.message.contains("4096"),
            "{e}"
        );
    }
}
