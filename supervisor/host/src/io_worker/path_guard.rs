//! The paths of the current term: whether they are still what was opened.
//!
//! A run's directory can be moved, replaced or deleted under a running supervisor, and what replaces it may belong to
//! another run. Each path is held open and compared with what it leads to now.

use super::files::named;
use super::write::disk_error;
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use supervise_core::event::ActError;

#[derive(Debug)]
pub(super) struct PathGuard {
    places: Vec<PinnedPath>,
}

#[derive(Debug)]
struct PinnedPath {
    what: &'static str,
    path: Utf8PathBuf,
    /// `None` if another I/O worker opened it and the path leads to something else by now.
    held: Option<File>,
    ino: u64,
}

impl PathGuard {
    /// Opens the paths. `known`: the inodes that an earlier I/O worker opened, in the same order.
    pub(super) fn hold(paths: [(&'static str, Utf8PathBuf); 3], known: &[u64]) -> Result<Self, ActError> {
        let mut places = Vec::new();
        for (n, (what, path)) in paths.into_iter().enumerate() {
            let place = PinnedPath::hold(what, path, known.get(n).copied());
            places.push(place.map_err(|e| disk_error("looking at the run's places", &e))?);
        }
        Ok(Self { places })
    }

    pub(super) fn inodes(&self) -> Vec<u64> {
        self.places.iter().map(|p| p.ino).collect()
    }

    /// The first path that was moved or replaced, as a message.
    ///
    /// If a path cannot be checked, that is an error, not an answer.
    pub(super) fn moved(&self) -> Result<Option<String>, ActError> {
        for place in &self.places {
            let moved = place.moved();
            if let Some(words) = moved.map_err(|e| disk_error("looking at the run's places", &e))? {
                return Ok(Some(words));
            }
        }
        Ok(None)
    }
}

impl PinnedPath {
    fn hold(what: &'static str, path: Utf8PathBuf, known: Option<u64>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (held, ino) = match (openat(CWD, path.as_std_path(), flags, Mode::empty()), known) {
            (Ok(fd), _) => {
                let file = File::from(fd);
                let ino = file.metadata().map_err(|e| named(&path, e))?.ino();
                (
                    Some(file).filter(|_| known.is_none_or(|k| k == ino)),
                    known.unwrap_or(ino),
                )
            }
            (Err(e), Some(known)) if is_away(&e.into()) => (None, known),
            (Err(e), _) => return Err(named(&path, e.into())),
        };
        Ok(Self { what, path, held, ino })
    }

    fn moved(&self) -> io::Result<Option<String>> {
        let now = match fs::symlink_metadata(&self.path) {
            Ok(m) => Some((m.dev(), m.ino())),
            Err(e) if is_away(&e) => None,
            Err(e) => return Err(named(&self.path, e)),
        };
        let is_there = match (&self.held, now) {
            (_, None) => false,
            (Some(held), Some(now)) => {
                let held = held.metadata().map_err(|e| named(&self.path, e))?;
                (held.dev(), held.ino()) == now
            }
            (None, Some((_, ino))) => ino == self.ino,
        };
        Ok((!is_there).then(|| self.words(now.is_some())))
    }

    fn words(&self, replaced: bool) -> String {
        let (what, path) = (self.what, &self.path);
        let link = self.held.as_ref().map(|f| format!("/proc/self/fd/{}", f.as_raw_fd()));
        let now = link.and_then(|l| Utf8Path::new(&l).read_link_utf8().ok());
        let deleted = now.as_ref().is_some_and(|to| to.as_str().ends_with(" (deleted)"));
        match (now.filter(|to| to != path && !deleted), replaced) {
            (Some(to), _) => format!("{what} {path} was moved to {to}"),
            (None, true) if deleted => format!("{what} {path} was deleted, and another one is in its place"),
            (None, true) => format!("{what} {path} was replaced by another one"),
            (None, false) => format!("{what} {path} was deleted"),
        }
    }
}

/// The path does not exist: an answer of the file system, not a failure of it.
fn is_away(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;

    fn ground(dir: &Utf8Path, known: &[u64]) -> PathGuard {
        let paths = [
            ("the run directory", dir.join("run")),
            ("the lease", dir.join("run/lease")),
            ("the journal", dir.join("run/journal")),
        ];
        PathGuard::hold(paths, known).unwrap()
    }

    fn laid() -> (tempfile::TempDir, Utf8PathBuf) {
        let (keep, dir) = temp_dir();
        fs::create_dir_all(dir.join("run/lease")).unwrap();
        fs::write(dir.join("run/journal"), "").unwrap();
        (keep, dir)
    }

    #[test]
    fn what_was_moved_deleted_or_replaced_is_named() {
        let (_keep, dir) = laid();
        let held = ground(&dir, &[]);
        assert_eq!(held.moved().unwrap(), None);
        fs::rename(dir.join("run"), dir.join("elsewhere")).unwrap();
        let said = held.moved().unwrap().unwrap();
        assert!(said.contains(&format!("was moved to {dir}/elsewhere")), "{said}");
        fs::rename(dir.join("elsewhere"), dir.join("run")).unwrap();
        assert_eq!(held.moved().unwrap(), None);
        fs::write(dir.join("run/other"), "").unwrap();
        fs::rename(dir.join("run/other"), dir.join("run/journal")).unwrap();
        let said = held.moved().unwrap().unwrap();
        assert!(
            said.contains("the journal") && said.contains("another one is in its place"),
            "{said}"
        );
        fs::remove_dir_all(dir.join("run")).unwrap();
        let said = held.moved().unwrap().unwrap();
        assert!(
            said.contains("the run directory") && said.contains("was deleted"),
            "{said}"
        );
    }

    #[test]
    fn a_io_worker_that_goes_on_knows_what_was_there_before() {
        let (_keep, dir) = laid();
        let known = ground(&dir, &[]).inodes();
        assert_eq!(ground(&dir, &known).moved().unwrap(), None);
        fs::rename(dir.join("run"), dir.join("elsewhere")).unwrap();
        assert!(ground(&dir, &known).moved().unwrap().unwrap().contains("was deleted"));
        fs::create_dir_all(dir.join("run/lease")).unwrap();
        fs::write(dir.join("run/journal"), "").unwrap();
        let said = ground(&dir, &known).moved().unwrap().unwrap();
        assert!(said.contains("was replaced"), "{said}");
    }

    #[test]
    fn a_look_that_fails_says_nothing() {
        let (_keep, dir) = laid();
        let held = ground(&dir, &[]);
        // A name that is too long is a different error from a missing file.
        let mut place = held.places.into_iter().next().unwrap();
        place.path = dir.join("x".repeat(300));
        assert!(place.moved().is_err());
    }
}
