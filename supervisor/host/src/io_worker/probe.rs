//! A small file that shows whether a full disk, or a full quota, can be written to again.
//!
//! Free space alone is not enough: user and project quotas and reserved blocks show only in a write. So after a
//! refusal, and only while nothing is running, one file is created and given a little space. It is unlinked before
//! that, so that nothing is left of it whatever happens.

use crate::system::space;
use camino::Utf8Path;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Most space that is requested.
const MOST: u64 = 1 << 20;
const NAME: &str = ".supervise-probe";

/// Free space of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskRoom {
    /// Free space for this user, in bytes; `None`: the file system does not report it.
    pub free: Option<u64>,
    /// Free inodes; `None`: the file system does not count them.
    pub files: Option<u64>,
    /// Whether a small file could be created and given space; `None`: not tried, or inconclusive.
    pub works: Option<bool>,
}

impl DiskRoom {
    /// Checks the disk of a checkpoint root. `bytes`: what a save needs; 0: nothing is written.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn of(root: &Utf8Path, run_dir: &Utf8Path, bytes: u64) -> io::Result<Self> {
        let found = space(root)?;
        Ok(Self {
            free: (found.size > 0).then_some(found.free),
            files: found.files,
            works: match bytes {
                0 => None,
                bytes => probe(place(root, run_dir), bytes.min(MOST)),
            },
        })
    }
}

/// The run directory if it is on the same disk, since no other program lists it; otherwise the root.
fn place<'p>(root: &'p Utf8Path, run_dir: &'p Utf8Path) -> &'p Utf8Path {
    let disk = |path: &Utf8Path| fs::metadata(path).map(|m| m.dev()).ok();
    match disk(run_dir).is_some_and(|d| Some(d) == disk(root)) {
        true => run_dir,
        false => root,
    }
}

fn probe(dir: &Utf8Path, bytes: u64) -> Option<bool> {
    let path = dir.join(NAME);
    // Left by a process that was killed between creating and unlinking it.
    let left = fs::remove_file(&path);
    if left.is_err_and(|e| e.kind() != io::ErrorKind::NotFound) {
        return None;
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path);
    let file = match made {
        Ok(file) => file,
        Err(e) => return is_full(&e).then_some(false),
    };
    let gone = fs::remove_file(&path);
    // The raw call: the library's version writes every block itself if a file system lacks support.
    let given = fallocate(&file, FallocateFlags::empty(), 0, bytes);
    drop(file);
    gone.ok()?;
    match given {
        Ok(()) => Some(true),
        Err(Errno::NOSPC | Errno::DQUOT) => Some(false),
        Err(_) => None,
    }
}

pub(super) fn is_full(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_worker::temp_dir;

    #[test]
    fn nothing_is_left_of_a_probe() {
        let (_keep, root) = temp_dir();
        let run_dir = root.join(".supervise");
        fs::create_dir(&run_dir).unwrap();
        fs::write(run_dir.join(NAME), "").unwrap();
        let room = DiskRoom::of(&root, &run_dir, 1 << 40).unwrap();
        assert_ne!(room.works, Some(false));
        assert!(room.free.is_some());
        assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_where_nothing_is_to_be() {
        let room = DiskRoom::of("/proc".into(), "/proc".into(), 0).unwrap();
        assert_eq!((room.free, room.works), (None, None));
    }

    #[test]
    fn what_is_no_full_disk_is_no_answer() {
        let room = DiskRoom::of("/proc".into(), "/proc".into(), 1).unwrap();
        assert_eq!(room.works, None);
    }
}
