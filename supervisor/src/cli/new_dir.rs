//! The directory that a command makes: checked before the work, begun when it is known how much goes into it.

use crate::error::CliError;
use crate::render::bytes;
use camino::Utf8Path;
use std::io;
use supervise_host::output_dir::{OutputDir, Refused};
use supervise_host::system::space;

/// Refuses a target that stands already, before anything is read.
pub(in crate::cli) fn may_be_made(target: &Utf8Path) -> Result<(), CliError> {
    super::not_empty(target.as_str(), "--target")?;
    if target.symlink_metadata().is_ok_and(|m| m.is_symlink()) || target.as_str().ends_with('/') && link(target) {
        return Err(CliError::usage(format!("--target {target}: it is a symbolic link"))
            .hint("name the directory that is meant"));
    }
    match target.read_dir_utf8().map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match parent(target).is_dir() {
            true => Ok(()),
            false => Err(no_parent(target, parent(target))),
        },
        Ok(true) => Err(exists(target)),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(exists(target)),
        Err(e) => Err(CliError::environment(format!("--target {target}: {e}"))),
    }
}

/// A target inside of the checkpoint would change what was proven.
pub(in crate::cli) fn is_outside(target: &Utf8Path, source: &Utf8Path) -> Result<(), CliError> {
    let real = |path: &Utf8Path| path.canonicalize_utf8().ok();
    let (Some(dir), Some(source)) = (real(parent(target)), real(source)) else {
        return Ok(());
    };
    let step = source
        .ancestors()
        .find(|dir| dir.file_name().is_some_and(|n| n.starts_with("global_step_")));
    if dir.starts_with(step.unwrap_or(&source)) {
        return Err(CliError::usage(format!(
            "--target {target}: it lies inside of the checkpoint that is read"
        ))
        .hint("name a directory elsewhere"));
    }
    Ok(())
}

/// A link with a slash behind it is what it leads to, for the system.
fn link(target: &Utf8Path) -> bool {
    let plain: camino::Utf8PathBuf = target.components().collect();
    plain.symlink_metadata().is_ok_and(|m| m.is_symlink())
}

fn parent(path: &Utf8Path) -> &Utf8Path {
    match path.parent() {
        Some(dir) if !dir.as_str().is_empty() => dir,
        _ => Utf8Path::new("."),
    }
}

fn exists(target: &Utf8Path) -> CliError {
    CliError::usage(format!("--target {target}: it exists and is not an empty directory"))
        .hint("name another directory, or move this one away: nothing is written over")
}

fn no_parent(target: &Utf8Path, dir: &Utf8Path) -> CliError {
    CliError::environment(format!("--target {target}: there is no directory {dir}"))
        .hint(format!("make it: mkdir -p {dir}"))
}

/// Begins to write it, if there is room for so many bytes.
pub(in crate::cli) fn begin(target: &Utf8Path, want: u64) -> Result<OutputDir, CliError> {
    // `.` and `empty/.` have no name of their own.
    let target = &target.canonicalize_utf8().unwrap_or_else(|_| target.to_owned());
    enough_space(target, want)?;
    OutputDir::begin(target).map_err(|e| begun(e, target))
}

fn enough_space(target: &Utf8Path, want: u64) -> Result<(), CliError> {
    let Ok(room) = space(parent(target)) else { return Ok(()) };
    if room.size == 0 || room.free >= want {
        return Ok(());
    }
    Err(CliError::environment(format!(
        "--target {target}: it takes {} and {} are free there",
        bytes(want),
        bytes(room.free)
    ))
    .hint("free some space, or name a directory on another disk: nothing was written"))
}

fn begun(refused: Refused, target: &Utf8Path) -> CliError {
    match refused {
        Refused::Exists => exists(target),
        Refused::NoParent(dir) => no_parent(target, &dir),
        refused => CliError::environment(format!("--target {target}: {refused}")),
    }
}
