//! The directory that a command creates: checked before the work, created once its size is known, written by several threads.

use crate::error::CliError;
use crate::render::bytes;
use camino::Utf8Path;
use std::io;
use std::num::NonZero;
use supervise_host::output_dir::{OutputDir, OutputDirError, OutputFile};
use supervise_host::system::space;
use supervise_weights::write::WriteError;
use supervise_weights::{ModelError, OutputSink};

/// More threads bring nothing: the disk is the limit.
const THREADS: usize = 8;

/// Refuses an existing target before anything is read.
pub(in crate::cli) fn may_be_made(target: &Utf8Path) -> Result<(), CliError> {
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

/// Refuses a target inside the checkpoint, where it would change what was proven.
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

/// Returns true for a link; with a trailing slash, the system would follow it.
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

pub(in crate::cli) fn exists(target: &Utf8Path) -> CliError {
    CliError::usage(format!("--target {target}: it exists and is not an empty directory"))
        .hint("name another directory, or move this one away: nothing is written over")
}

pub(in crate::cli) fn no_parent(target: &Utf8Path, dir: &Utf8Path) -> CliError {
    CliError::environment(format!("--target {target}: there is no directory {dir}"))
        .hint(format!("make it: mkdir -p {dir}"))
}

/// Creates it, if there is space for this many bytes.
pub(in crate::cli) fn begin(target: &Utf8Path, want: u64) -> Result<OutputDir, CliError> {
    // `.` and `empty/.` have no name of their own.
    let target = &target.canonicalize_utf8().unwrap_or_else(|_| target.to_owned());
    enough_space(target, want)?;
    OutputDir::begin(target).map_err(|e| begun(e, target))
}

/// Checks the free space next to the target.
pub(in crate::cli) fn enough_space(target: &Utf8Path, want: u64) -> Result<(), CliError> {
    let Ok(room) = space(parent(target)) else { return Ok(()) };
    if room.size == 0 || room.free >= want {
        return Ok(());
    }
    Err(no_room(target, want, room.free))
}

pub(in crate::cli) fn no_room(target: &Utf8Path, want: u64, free: u64) -> CliError {
    CliError::environment(format!(
        "--target {target}: it takes {} and {} are free there",
        bytes(want),
        bytes(free)
    ))
    .hint("free some space, or name a directory on another disk: nothing was written")
}

fn begun(refused: OutputDirError, target: &Utf8Path) -> CliError {
    match refused {
        OutputDirError::Exists => exists(target),
        OutputDirError::NoParent(dir) => no_parent(target, &dir),
        refused => CliError::environment(format!("--target {target}: {refused}")),
    }
}

pub(in crate::cli) fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(THREADS)
}

/// The error for a directory that cannot be written.
pub(in crate::cli) fn failed(dir: &OutputDir, e: &io::Error) -> CliError {
    CliError::environment(format!("{} cannot be written: {e}", dir.path()))
        .hint("nothing was written under the target's name; run this again when that is mended")
}

/// Why writing a model failed; `source` describes a problem of its source.
pub(in crate::cli) fn ended(dir: &OutputDir, why: WriteError, source: impl Fn(ModelError) -> CliError) -> CliError {
    match why {
        WriteError::Source(problem) => source(problem),
        WriteError::Target { error, .. } => failed(dir, &error),
        WriteError::Interrupted => CliError::internal("the writing was interrupted"),
    }
}

pub(in crate::cli) struct Opened(Vec<OutputFile>);

impl Opened {
    /// Creates files with these names and lengths.
    pub(in crate::cli) fn create<'a>(
        dir: &OutputDir,
        files: impl Iterator<Item = (&'a str, u64)>,
    ) -> Result<Self, CliError> {
        let made: io::Result<Vec<OutputFile>> = files.map(|(name, bytes)| dir.create(name, bytes)).collect();
        made.map(Self).map_err(|e| failed(dir, &e))
    }

    pub(in crate::cli) fn finish(&self, dir: &OutputDir) -> Result<(), CliError> {
        let done = self.0.iter().try_for_each(OutputFile::finish);
        done.map_err(|e| failed(dir, &e))
    }
}

impl OutputSink for Opened {
    fn write_at(&self, file: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0[file].write_at(at, bytes)
    }
}
