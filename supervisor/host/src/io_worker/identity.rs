//! Who owns a run directory: this run, the same run under an earlier path, or, in a copy, another run.
//!
//! Nothing is moved or written here before the lease inside is held: the same directory may be visible under another
//! path and device number (a second mount of it) while a supervisor is running in it.

use super::files::{SMALL, named, read_small};
use super::protocol::{LoadedRun, RunIdentity};
use super::replay::{ReadProgressFn, ReplayedState};
use super::store::{KEY, RunFile, key, read_journals};
use super::write::{PRIVATE, disk_error, make_dir, write_whole};
use crate::disk::{own_dir, random, write_test};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use supervise_core::event::ActError;
use supervise_core::id::RunId;
use supervise_core::spec::RunSpec;

/// Our directory under a checkpoint root.
pub const RUN_DIR_NAME: &str = super::edit::OURS;
const COPIES: u32 = 1000;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirOwnership {
    /// This run, or none yet.
    Ours,
    /// This run, under its previous path.
    Moved { from: Option<Utf8PathBuf>, run: RunId },
    /// Another root's run, unless it is that root itself under another path.
    Copied { of: Option<Utf8PathBuf> },
}

/// Finds or creates the run directory, and replays its journals.
pub(super) fn open(id: &RunIdentity, tell: &mut ReadProgressFn<'_>) -> Result<(LoadedRun, ReplayedState), ActError> {
    let at = |e: &io::Error| disk_error(&format!("opening the run directory {}", id.run_dir), e);
    if let Some(root) = &id.root {
        fs::create_dir_all(root).map_err(|e| disk_error(&format!("creating the checkpoint root {root}"), &e))?;
        writable(root)?;
    }
    let note = own_dir(&id.run_dir).map_err(|e| at(&e))?;
    let copied = matches!(whose(id).map_err(|e| at(&e))?, DirOwnership::Copied { .. });
    let (mut loaded, folded) = read_journals(&id.run_dir, tell).map_err(|e| at(&e))?;
    loaded.copied = copied;
    loaded.notes.splice(0..0, note);
    Ok((loaded, folded))
}

/// Reports a root that cannot be written to before a GPU is touched.
fn writable(root: &Utf8Path) -> Result<(), ActError> {
    write_test(root).map(drop).map_err(|e| {
        let mut error = disk_error(&format!("the checkpoint root {root} is not writable"), &e);
        error.retryable = false;
        error
    })
}

/// `cp -r` of a root copies our directory too; its journal belongs to another run.
pub(super) fn whose(id: &RunIdentity) -> io::Result<DirOwnership> {
    let path = id.run_dir.join("run.id");
    let text = match read_small(&path, SMALL) {
        Ok(t) => t,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(DirOwnership::Ours),
        Err(e) => return Err(named(&path, e)),
    };
    let Ok(known) = serde_json::from_slice::<RunFile>(&text) else {
        return Ok(DirOwnership::Ours);
    };
    let (dev, ino) = inode(id);
    // A run directory outside the root is not copied with it: under the same path it is the same run, whatever
    // directory is there now (a new or restored one).
    let apart = id.root.as_ref().is_none_or(|root| !id.run_dir.starts_with(root));
    if known.root == id.root && known.run == id.run && (known.ino == ino || known.ino == 0 || apart) {
        return Ok(DirOwnership::Ours);
    }
    Ok(match (known.dev, known.ino) == (dev, ino) {
        true => DirOwnership::Moved {
            from: known.root,
            run: known.run,
        },
        false => DirOwnership::Copied { of: known.root },
    })
}

/// Returns true if a run directory came with a copy of the run's checkpoint root, which is now elsewhere.
pub(super) fn is_in_a_copy(run_dir: &Utf8Path, spec: &RunSpec) -> bool {
    let (Some(root), Some(place)) = (&spec.root, run_dir.parent()) else {
        return false;
    };
    let is_beside = run_dir.file_name() == Some(RUN_DIR_NAME) && spec.run_dir == root.join(RUN_DIR_NAME);
    let known = read_small(&run_dir.join("run.id"), SMALL)
        .ok()
        .and_then(|text| serde_json::from_slice::<RunFile>(&text).ok());
    let (Some(known), Ok(here), true) = (known, fs::metadata(place), is_beside) else {
        return false;
    };
    let is_elsewhere = place.canonicalize_utf8().is_ok_and(|place| place != *root);
    // Another mount of the same directory has its inode, but may have another device number.
    is_elsewhere && known.ino != 0 && known.ino != here.ino()
}

/// A note about a run directory that was copied with its root: the next run does not continue its journal.
///
/// # Errors
/// It cannot be read.
pub fn came_with_a_copy(id: &RunIdentity) -> io::Result<Option<String>> {
    Ok(match whose(id)? {
        DirOwnership::Copied { of } => Some(format!(
            "{}: the journal that came with it will be moved aside, and a new run begin",
            copy_words(id, of.as_deref())
        )),
        DirOwnership::Ours | DirOwnership::Moved { .. } => None,
    })
}

fn copy_words(id: &RunIdentity, of: Option<&Utf8Path>) -> String {
    match of {
        Some(of) if id.root.as_deref() == Some(of) => {
            format!("this checkpoint root is another directory than the one at {of} before (restored, or a copy)")
        }
        Some(of) => format!("this checkpoint root is a copy of {of}"),
        None => "this checkpoint root is a copy".to_owned(),
    }
}

/// Moves a copied directory out of the way, and returns a note with its new path. Requires the lease in it.
pub(super) fn set_aside(id: &RunIdentity, of: Option<&Utf8Path>) -> io::Result<String> {
    let parent = id.run_dir.parent().unwrap_or(&id.run_dir);
    for n in 1..COPIES {
        let target = parent.join(format!("{RUN_DIR_NAME}.copied-{n}"));
        if fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        fs::rename(&id.run_dir, &target)?;
        return Ok(format!(
            "{}: the journal that came with it was moved to {target}, a new run begins here",
            copy_words(id, of)
        ));
    }
    Err(io::Error::other(format!(
        "{parent} holds {COPIES} journals that came with copies: remove those that nobody needs ({RUN_DIR_NAME}.copied-N)"
    )))
}

/// Records the directory's owner and returns the run's key. Requires the lease.
pub(super) fn settle(id: &RunIdentity) -> io::Result<String> {
    for dir in ["journal", "spec", "attempts"] {
        make_dir(&id.run_dir.join(dir))?;
    }
    let (dev, ino) = inode(id);
    let file = RunFile {
        version: 1,
        run: id.run.clone(),
        root: id.root.clone(),
        dev,
        ino,
        key: key(&id.run_dir).map_or_else(|| random(KEY / 2), Ok)?,
    };
    let text = json!(file).to_string();
    // Durable: the journals and the Slurm jobs are identified by it.
    write_whole(&id.run_dir.join("run.id"), text.as_bytes(), PRIVATE)?;
    Ok(file.key)
}

fn inode(id: &RunIdentity) -> (u64, u64) {
    let place = id.root.as_ref().unwrap_or(&id.run_dir);
    fs::metadata(place).map_or((0, 0), |m| (m.dev(), m.ino()))
}
