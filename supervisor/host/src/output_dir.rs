//! A directory that appears completely under its name, or not at all.
//!
//! Files are written to `.NAME.unfinished` beside it, made durable, and renamed at the end. An interruption leaves
//! that directory; the next writer of the name clears it and starts over. A lock keeps two processes from writing the
//! same one.

use crate::disk::{copy_bytes, remove_tree, sync_dir};
use crate::model_folder::ModelFile;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// A directory that is being written.
#[derive(Debug)]
pub struct OutputDir {
    target: Utf8PathBuf,
    unfinished: Utf8PathBuf,
    lock: HeldLock,
}

/// The lock on a directory. It is released and not only closed: a process that was forked meanwhile has the same lock
/// until it executes another program.
#[derive(Debug)]
struct HeldLock(File);

impl Drop for HeldLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// How a file was added without copying its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareMethod {
    /// Both share blocks until one of them is written.
    Blocks,
    /// Both are names of one file.
    File,
}

/// Why it cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum OutputDirError {
    #[error("it exists and is not empty")]
    Exists,
    #[error("there is no directory {0}")]
    NoParent(Utf8PathBuf),
    #[error("another process writes it just now ({0} is locked)")]
    Busy(Utf8PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl OutputDir {
    /// Starts a directory that does not exist yet, or is empty.
    ///
    /// # Errors
    /// See [`OutputDirError`]; nothing is changed then.
    pub fn begin(target: &Utf8Path) -> Result<Self, OutputDirError> {
        let parent = match target.parent() {
            Some(dir) if !dir.as_str().is_empty() => dir,
            _ => Utf8Path::new("."),
        };
        let name = target.file_name().ok_or(OutputDirError::Exists)?;
        if !parent.is_dir() {
            return Err(OutputDirError::NoParent(parent.to_owned()));
        }
        match target.read_dir_utf8() {
            Ok(mut entries) => match entries.next() {
                None => {}
                Some(_) => return Err(OutputDirError::Exists),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(OutputDirError::Exists),
            Err(e) => return Err(e.into()),
        }
        let unfinished = parent.join(format!(".{name}.unfinished"));
        let lock = lock(&unfinished)?;
        for entry in unfinished.read_dir_utf8()? {
            remove_tree(entry?.path())?;
        }
        // An existing empty directory may have restricted permissions: keep them.
        if let Ok(there) = fs::metadata(target) {
            fs::set_permissions(&unfinished, there.permissions())?;
        }
        Ok(Self {
            target: target.to_owned(),
            unfinished,
            lock,
        })
    }

    /// The directory that holds the files meanwhile.
    #[must_use]
    pub fn path(&self) -> &Utf8Path {
        &self.unfinished
    }

    /// Creates a file of known length, so that a full disk is noticed before anything is written.
    ///
    /// # Errors
    /// The system's.
    pub fn create(&self, name: &str, bytes: u64) -> io::Result<OutputFile> {
        self.create_as(name, bytes, 0o666)
    }

    /// The same with the permissions of its source file, which are not widened.
    pub(crate) fn create_as(&self, name: &str, bytes: u64, mode: u32) -> io::Result<OutputFile> {
        let path = self.unfinished.join(name);
        if let Some(dir) = path.parent().filter(|dir| *dir != self.unfinished) {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o777)
            .open(&path)?;
        reserve(&file, bytes)?;
        Ok(OutputFile(file))
    }

    /// Writes a small file.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_as(name, bytes, 0o666)
    }

    /// Writes a small file with the permissions of its source file.
    ///
    /// # Errors
    /// The system's.
    pub fn write_as(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.create_as(name, 0, mode)?;
        file.0.write_all(bytes)?;
        file.finish()
    }

    /// Adds an existing file without copying its bytes: as a clone if the file system shares blocks, otherwise as a
    /// hard link. `None`: neither is possible, so it must be copied.
    ///
    /// # Errors
    /// The system's, after the file was added.
    pub fn share(&self, name: &str, from: &ModelFile) -> io::Result<Option<ShareMethod>> {
        let path = self.unfinished.join(name);
        let clone = self.create_as(name, 0, from.mode)?;
        if rustix::fs::ioctl_ficlone(&clone.0, &from.file).is_ok() {
            clone.finish()?;
            return Ok(Some(ShareMethod::Blocks));
        }
        fs::remove_file(&path)?;
        // Another file system, another user's file, too many links: each is a reason to copy.
        if fs::hard_link(&from.real, &path).is_err() {
            return Ok(None);
        }
        let (made, meant) = (fs::symlink_metadata(&path)?, from.file.metadata()?);
        if (made.dev(), made.ino()) != (meant.dev(), meant.ino()) {
            // The file was replaced meanwhile.
            fs::remove_file(&path)?;
            return Ok(None);
        }
        from.file.sync_all()?;
        Ok(Some(ShareMethod::File))
    }

    /// Copies a file with its permissions. `copied` receives the size of each chunk and may stop with an error.
    ///
    /// # Errors
    /// The system's, of either file.
    pub fn copy(
        &self,
        name: &str,
        from: &mut ModelFile,
        copied: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = self.create_as(name, from.len, from.mode)?;
        copy_bytes(&mut from.file, &mut file.0, copied)?;
        file.finish()
    }

    /// Renames it to its final name. All files must be [finished](OutputFile::finish).
    ///
    /// # Errors
    /// The system's; it stays unfinished then.
    pub fn finish(self) -> io::Result<()> {
        let named = sync_all(&self.unfinished).and_then(|()| fs::rename(&self.unfinished, &self.target));
        if let Err(e) = named {
            // The target was created meanwhile: what was written is of no use under another name.
            self.abandon();
            return Err(e);
        }
        let parent = self.target.parent().filter(|dir| !dir.as_str().is_empty());
        sync_dir(parent.unwrap_or(Utf8Path::new(".")))?;
        drop(self.lock);
        Ok(())
    }

    /// Removes what was written.
    pub fn abandon(self) {
        // What cannot be removed is cleared by the next writer of the name.
        let _ = remove_tree(&self.unfinished);
    }
}

/// A file in an output directory. Several threads may write at different offsets.
#[derive(Debug)]
pub struct OutputFile(File);

impl OutputFile {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The system's.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

fn sync_all(dir: &Utf8Path) -> io::Result<()> {
    for entry in dir.read_dir_utf8()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(entry.path())?;
        }
    }
    sync_dir(dir)
}

/// The lock is released when the process ends, however that happens.
fn lock(dir: &Utf8Path) -> Result<HeldLock, OutputDirError> {
    loop {
        match fs::create_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OutputDirError::Busy(dir.to_owned())),
            // A file system without locks: two writers at once are the user's own doing there.
            Err(fs::TryLockError::Error(e)) if e.raw_os_error() == Some(libc::ENOLCK) => {}
            Err(fs::TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(fs::TryLockError::Error(e)) => return Err(e.into()),
        }
        // The previous holder may have renamed it between our two steps: that one is finished, and not ours to clear.
        let ours = file.metadata()?;
        match fs::symlink_metadata(dir) {
            Ok(now) if now.ino() == ours.ino() && now.dev() == ours.dev() => return Ok(HeldLock(file)),
            _ => {}
        }
    }
}

/// Reserves space. A file system that cannot do that reports a full disk on writing.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => file.set_len(bytes),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let target = Utf8Path::from_path(dir.path()).unwrap().join("out");
        (dir, target)
    }

    #[test]
    fn it_appears_whole() {
        let (_dir, target) = place();
        let out = OutputDir::begin(&target).unwrap();
        let file = out.create("a.bin", 6).unwrap();
        file.write_at(3, b"def").unwrap();
        file.write_at(0, b"abc").unwrap();
        file.finish().unwrap();
        out.write("sub/b.json", b"{}").unwrap();
        assert!(!target.exists());
        out.finish().unwrap();
        assert_eq!(fs::read(target.join("a.bin")).unwrap(), b"abcdef");
        assert_eq!(fs::read(target.join("sub/b.json")).unwrap(), b"{}");
        assert!(matches!(OutputDir::begin(&target), Err(OutputDirError::Exists)));
    }

    #[test]
    fn one_that_was_killed_is_begun_again_and_one_at_work_is_left_alone() {
        let (_dir, target) = place();
        let first = OutputDir::begin(&target).unwrap();
        first.write("sub/half", b"x").unwrap();
        assert!(matches!(OutputDir::begin(&target), Err(OutputDirError::Busy(_))));
        let left = first.path().to_owned();
        drop(first);
        assert!(left.join("sub/half").exists());
        let second = OutputDir::begin(&target).unwrap();
        assert!(!left.join("sub").exists());
        fs::create_dir(&target).unwrap();
        second.finish().unwrap();
        assert!(target.is_dir() && !left.exists());
    }

    #[test]
    fn a_parent_that_is_not_there_is_not_made() {
        let (_dir, target) = place();
        let refused = OutputDir::begin(&target.join("below")).unwrap_err();
        assert!(matches!(refused, OutputDirError::NoParent(_)), "{refused}");
    }
}
