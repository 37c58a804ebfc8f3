//! Metadata and bytes of files.

use crate::model_folder::ModelFile;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use supervise_checkpoint::ByteSource;
use supervise_core::checkpoint::{EntryKind, FileFact};

pub(super) const SMALL: u64 = 1 << 20;
const ENTRY_LIMIT: usize = 1_000_000;
const DEPTH_LIMIT: usize = 8;

/// Opens a regular file for reading, without following a link in its last component and without blocking.
///
/// # Errors
/// The system's; a directory, FIFO, socket or device is refused.
pub(super) fn open_file(path: &Utf8Path) -> io::Result<File> {
    regular(path, libc::O_NOFOLLOW)
}

/// Reads the first `limit` bytes of a small file. Follows links and never blocks, whatever the path is.
///
/// # Errors
/// The system's; a directory, FIFO, socket or device is refused.
pub fn read_small(path: &Utf8Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path, 0)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file for reading. Follows links and never blocks.
///
/// # Errors
/// The system's; a directory, FIFO, socket or device is refused.
pub(super) fn open_regular(path: &Utf8Path) -> io::Result<File> {
    regular(path, 0)
}

/// Reads the first `limit` bytes of a small file that is not a link. Never blocks, whatever the path is.
///
/// # Errors
/// The system's; a link, a directory, FIFO, socket or device is refused.
pub fn read_plain(path: &Utf8Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn regular(path: &Utf8Path, flags: i32) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(
            "it is a directory, a FIFO, a socket or a device, not a file",
        )),
    }
}

/// A name that is not UTF-8: no trainer writes one, so it is skipped.
pub(super) fn is_no_text(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::InvalidData
}

/// Adds the path to our own messages; errors of the system stay unchanged, because callers sort by kind.
pub(super) fn named(path: &Utf8Path, e: io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(_) => e,
        None => io::Error::new(e.kind(), format!("{path}: {e}")),
    }
}

/// A file as a byte source for the readers.
#[derive(Debug)]
pub struct FileSource(File);

impl FileSource {
    /// Opens a regular file without following a link in its last component.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Utf8Path) -> io::Result<Self> {
        open_file(path).map(Self)
    }

    pub(super) fn mode(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.mode() & 0o777)
    }

    /// Size and times of the last write, and whether the file still has a name.
    pub(super) fn state(&self) -> io::Result<(u64, i64, i64, bool)> {
        let m = self.0.metadata()?;
        Ok((m.len(), m.mtime(), m.mtime_nsec(), m.nlink() > 0))
    }

    /// Advises the kernel against readahead: only small pieces will be read.
    pub(super) fn will_be_probed(&self) {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(&self.0, 0, None, Advice::Random);
    }

    /// Advises the kernel that the file is read sequentially; `once`: it will not be read again soon, so it should
    /// not push out what the training needs. Refused advice is not an error.
    pub(super) fn will_be_read(&self, once: bool) {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(&self.0, 0, None, Advice::Sequential);
        if once {
            let _ = fadvise(&self.0, 0, None, Advice::NoReuse);
        }
    }
}

impl From<ModelFile> for FileSource {
    fn from(opened: ModelFile) -> Self {
        Self(opened.file)
    }
}

impl ByteSource for FileSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(&self.0, buf, off)
    }
}

#[must_use]
pub fn fact_of(path: Utf8PathBuf, m: &Metadata) -> FileFact {
    let t = m.file_type();
    let kind = match () {
        () if t.is_symlink() => EntryKind::Symlink,
        () if t.is_dir() => EntryKind::Dir,
        () if t.is_file() => EntryKind::File,
        () => EntryKind::Other,
    };
    let nanos = |s: i64, n: i64| s.saturating_mul(1_000_000_000).saturating_add(n);
    FileFact {
        path,
        kind,
        size: m.len(),
        mtime: nanos(m.mtime(), m.mtime_nsec()),
        ctime: nanos(m.ctime(), m.ctime_nsec()),
        dev: m.dev(),
        ino: m.ino(),
        uid: m.uid(),
    }
}

/// Collects every entry under `root.join(below)`, with paths relative to `root`. Links are not followed; an entry
/// that vanished meanwhile is skipped.
///
/// # Errors
/// The first directory that cannot be read.
pub fn walk(root: &Utf8Path, below: &Utf8Path, out: &mut Vec<FileFact>) -> io::Result<()> {
    walk_depth(root, below, out, 0)
}

fn walk_depth(root: &Utf8Path, below: &Utf8Path, out: &mut Vec<FileFact>, depth: usize) -> io::Result<()> {
    let entries = match root.join(below).read_dir_utf8() {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = match entry {
            Err(e) if is_no_text(&e) => continue,
            entry => entry?,
        };
        let path = below.join(entry.file_name());
        let meta = match fs::symlink_metadata(entry.path()) {
            Ok(m) => m,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let fact = fact_of(path.clone(), &meta);
        let is_dir = fact.kind == EntryKind::Dir;
        if out.len() >= ENTRY_LIMIT {
            return Err(io::Error::other(format!("more than {ENTRY_LIMIT} files under {below}")));
        }
        out.push(fact);
        if is_dir && depth < DEPTH_LIMIT {
            walk_depth(root, &path, out, depth + 1)?;
        }
    }
    Ok(())
}
