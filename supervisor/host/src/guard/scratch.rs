//! The attempt's scratch directory: created before its workers, deleted after it ends.
//!
//! It usually lies in a world-writable directory. So it must be newly created, and nothing is deleted that is not a
//! directory of this user.

use camino::Utf8Path;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

const ENTRIES: usize = 100_000;

const DEPTH: usize = 8;
const RECORD: &str = "ENTRY";

/// Creates the directory, and deletes what the run's earlier attempts left beside it: their processes have exited
/// when a new attempt starts, but their guard may have been killed before it cleaned up.
pub(crate) fn make(dir: &Utf8Path) -> io::Result<()> {
    clear_earlier(dir);
    clear(dir)?;
    DirBuilder::new().mode(0o700).create(dir)
}

/// Deletes the directory with its contents. A missing directory is not an error.
pub(crate) fn clear(dir: &Utf8Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(dir) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it belongs to somebody else",
        ));
    }
    fs::remove_dir_all(dir)
}

/// Deletes the records below `dir` by which AReaL's processes find each other (`ENTRY` in a directory for each name),
/// and directories that are empty then. Nothing else, in case `dir` is the wrong directory.
pub(crate) fn clear_names(dir: &Utf8Path) {
    let mut left = ENTRIES;
    clear_below(dir, DEPTH, &mut left);
}

fn clear_below(dir: &Utf8Path, depth: usize, left: &mut usize) {
    if !fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir()) || depth == 0 {
        return;
    }
    let Ok(entries) = dir.read_dir_utf8() else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let name = entry.file_name();
        let is_record = name == RECORD || name.strip_prefix(RECORD).is_some_and(|rest| rest.starts_with(".tmp."));
        match entry.file_type() {
            Ok(t) if t.is_dir() => clear_below(entry.path(), depth - 1, left),
            // AReaL finds a record stale that cannot be deleted, as it would without us.
            Ok(t) if t.is_file() && is_record => drop(fs::remove_file(entry.path())),
            _ => {}
        }
    }
    let _ = fs::remove_dir(dir);
}

/// Deletes directories whose names differ only in the attempt's number.
fn clear_earlier(dir: &Utf8Path) {
    let (Some(above), Some((run, _))) = (dir.parent(), dir.file_name().and_then(|n| n.rsplit_once('-'))) else {
        return;
    };
    let Ok(entries) = above.read_dir_utf8() else { return };
    for entry in entries.take(ENTRIES).flatten() {
        let rest = entry.file_name().strip_prefix(run).and_then(|r| r.strip_prefix('-'));
        let is_attempt = rest.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if is_attempt && entry.path() != dir {
            let _ = clear(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use camino::Utf8PathBuf;

    #[test]
    fn records_are_cleared_and_nothing_else_is() {
        let base = tempfile::tempdir().unwrap();
        let base = Utf8PathBuf::from_path_buf(base.path().to_owned()).unwrap();
        let elsewhere = base.join("elsewhere/x");
        let dir = base.join("me/exp/trial0");
        for place in [
            &elsewhere,
            &dir.join("workers/actor/0"),
            &dir.join("gen_servers/1"),
            &dir.join("mine"),
        ] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("ENTRY"), "127.0.0.1:1").unwrap();
        }
        fs::write(dir.join("gen_servers/1/ENTRY.tmp.12"), "").unwrap();
        fs::write(dir.join("mine/notes"), "kept").unwrap();
        std::os::unix::fs::symlink(base.join("elsewhere"), dir.join("link")).unwrap();
        clear_names(&dir);
        assert!(elsewhere.join("ENTRY").exists(), "a link was followed");
        assert!(dir.join("mine/notes").exists() && dir.join("link").is_symlink());
        assert!(!dir.join("mine/ENTRY").exists() && !dir.join("workers").exists() && !dir.join("gen_servers").exists());
        fs::remove_dir_all(dir.join("mine")).unwrap();
        fs::remove_file(dir.join("link")).unwrap();
        clear_names(&dir);
        assert!(!dir.exists() && base.join("me/exp").exists());
        clear_names(&dir);
    }

    #[test]
    fn earlier_attempts_are_cleared_and_nothing_else_is() {
        let base = tempfile::tempdir().unwrap();
        let base = Utf8PathBuf::from_path_buf(base.path().to_path_buf()).unwrap();
        for name in [
            "ray-ab-1/session_1/sockets",
            "ray-ab-12",
            "ray-abc-1",
            "ray-ab-x",
            "ray-ab",
        ] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("ray-ab-3"), "a file").unwrap();
        std::os::unix::fs::symlink(base.join("ray-abc-1"), base.join("ray-ab-4")).unwrap();
        let own = base.join("ray-ab-2");
        make(&own).unwrap();
        fs::write(own.join("x"), "x").unwrap();
        let mut left: Vec<String> = base
            .read_dir_utf8()
            .unwrap()
            .map(|e| e.unwrap().file_name().to_owned())
            .collect();
        left.sort();
        assert_eq!(
            left,
            ["ray-ab", "ray-ab-2", "ray-ab-3", "ray-ab-4", "ray-ab-x", "ray-abc-1"]
        );
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        clear(&own).unwrap();
        clear(&own).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn what_is_no_directory_of_ours_is_left_and_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = Utf8PathBuf::from_path_buf(base.path().to_path_buf()).unwrap();
        let elsewhere = base.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let dir = base.join("ray-ab-1");
        std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
        assert!(make(&dir).is_err());
        assert!(clear(&dir).is_err());
        assert!(elsewhere.exists());
    }
}
