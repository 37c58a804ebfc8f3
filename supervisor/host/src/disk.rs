//! Small changes on disk, each durable on return unless noted.

mod private;

pub(crate) use private::{make_dir, own_dir, random, write_passing};
pub use private::{open_log, own_ids, own_place, read_own, write_test, write_whole};

use camino::Utf8Path;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

const PIECE: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloneMode {
    /// Share blocks until one of the two is written.
    Reflink,
    Bytes,
    /// Share blocks if the file system can, otherwise copy.
    Either,
}

/// Copies a file with its times, so that a copy does not look like a later save. `copied` receives the size of each
/// chunk and may stop with an error.
pub(crate) fn clone_file(
    source: &mut File,
    to: &Utf8Path,
    how: CloneMode,
    copied: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let meta = source.metadata()?;
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(meta.mode() & 0o7777)
        .open(to)?;
    let shared = match how {
        CloneMode::Bytes => false,
        CloneMode::Reflink => rustix::fs::ioctl_ficlone(&target, &*source).map(|()| true)?,
        CloneMode::Either => rustix::fs::ioctl_ficlone(&target, &*source).is_ok(),
    };
    if !shared {
        copy_bytes(source, &mut target, copied)?;
    }
    target.set_times(FileTimes::new().set_modified(meta.modified()?))?;
    target.sync_all()
}

/// Copies all bytes from the current offsets on.
pub(crate) fn copy_bytes(
    from: &mut File,
    to: &mut File,
    copied: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        to.write_all(piece.get(..n).unwrap_or_default())?;
        copied(n as u64)?;
    }
}

/// Removes a file or a directory tree; a missing path is not an error.
pub(crate) fn remove_tree(path: &Utf8Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(m) if m.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Removes a tree that contains only directories; fails if there is a file in it.
pub(crate) fn remove_empty(path: &Utf8Path) -> io::Result<()> {
    let entries = match path.read_dir_utf8() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Utf8Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // Some network file systems refuse to sync a directory; a rename there is as durable as they make it.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}
