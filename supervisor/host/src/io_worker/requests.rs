//! Requests to a supervisor by processes that cannot connect to it, on another machine or in a container: numbered
//! files in the run directory. The I/O worker that renews the lease takes the first one and passes it on.

use crate::disk::{own_place, read_own, write_whole};
use crate::io_worker::write::PRIVATE;
use camino::{Utf8Path, Utf8PathBuf};
use std::{fs, io};

const NAME: &str = "asked.json";
const TAKEN: &str = "asked.json.taken";
const LIMIT: u64 = 64 << 10;

const MOST: u32 = 100;

/// Leaves a request, behind those that are waiting. Returns its path.
///
/// # Errors
/// The run directory is not ours, too many requests wait there, or the file system refuses.
pub fn leave(run_dir: &Utf8Path, request: &[u8]) -> io::Result<Utf8PathBuf> {
    own_place(run_dir)?;
    let whole = run_dir.join(format!("{NAME}.{}", std::process::id()));
    write_whole(&whole, request, PRIVATE)?;
    let behind = numbers(run_dir).into_iter().max().unwrap_or_default();
    let placed = (behind + 1..=MOST).find_map(|n| {
        let path = run_dir.join(name(n));
        match place(&whole, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => None,
            done => Some(done.map(|()| path)),
        }
    });
    // If it was moved, nothing is left of it.
    let _ = fs::remove_file(&whole);
    placed.unwrap_or_else(|| Err(io::Error::other(format!("{MOST} requests wait there already"))))
}

/// Gives it a name that was not taken meanwhile. A file system without hard links cannot do that atomically: there it
/// is renamed to a free name.
fn place(whole: &Utf8Path, path: &Utf8Path) -> io::Result<()> {
    match fs::hard_link(whole, path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists && !waits(path) => fs::rename(whole, path),
        done => done,
    }
}

fn name(number: u32) -> String {
    match number {
        1 => NAME.to_owned(),
        n => format!("asked-{n}.json"),
    }
}

fn numbers(run_dir: &Utf8Path) -> Vec<u32> {
    let entries = run_dir.read_dir_utf8().into_iter().flatten().flatten();
    // Only exact names: another file would keep the rest from being taken.
    let number = |file: &str| match file {
        NAME => Some(1),
        other => {
            let number = other.strip_prefix("asked-")?.strip_suffix(".json")?.parse().ok();
            number.filter(|n| (2..=MOST).contains(n) && name(*n) == other)
        }
    };
    entries.filter_map(|entry| number(entry.file_name())).collect()
}

/// Returns true if any request is waiting.
#[must_use]
pub fn any(run_dir: &Utf8Path) -> bool {
    !numbers(run_dir).is_empty()
}

/// Returns true if the request at this path is still waiting.
#[must_use]
pub fn waits(place: &Utf8Path) -> bool {
    place.symlink_metadata().is_ok()
}

/// Takes the first request, if there is one; files that this user did not write do not count. A failure does not cost
/// the lease.
pub(super) fn take(run_dir: &Utf8Path) -> Option<String> {
    // A run directory holds few names, but this runs with every heartbeat, and usually there is no request.
    let first = numbers(run_dir).into_iter().min()?;
    let (path, taken) = (run_dir.join(name(first)), run_dir.join(TAKEN));
    // Renamed first: a request left meanwhile waits for the next check, and one that cannot be renamed would be
    // handled again with each heartbeat.
    match fs::rename(&path, &taken) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => {
            tracing::warn!("taking {path} away: {e}");
            return None;
        }
        Ok(()) => {}
    }
    let read = read_own(&taken, LIMIT).inspect_err(|e| tracing::warn!("{taken}: {e}"));
    if let Err(e) = fs::remove_file(&taken) {
        tracing::warn!("removing {taken}: {e}");
    }
    String::from_utf8(read.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use camino::Utf8PathBuf;

    #[test]
    fn a_request_is_taken_once_and_nothing_else_is() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(tmp.path().join("run")).unwrap();
        fs::create_dir(&dir).unwrap();
        for odd in ["asked-1.json", "asked-02.json", "asked-4294967295.json", "asked-x.json"] {
            fs::write(dir.join(odd), "no request").unwrap();
        }
        assert_eq!((take(&dir), any(&dir)), (None, false));
        let first = leave(&dir, b"first").unwrap();
        let second = leave(&dir, b"second").unwrap();
        assert!(waits(&first) && waits(&second));
        assert_eq!(take(&dir).as_deref(), Some("first"));
        assert!(!waits(&first) && waits(&second));
        leave(&dir, b"third").unwrap();
        assert_eq!(take(&dir).as_deref(), Some("second"));
        assert_eq!(take(&dir).as_deref(), Some("third"));
        assert_eq!((take(&dir), any(&dir)), (None, false));
        // A request that is too long, not UTF-8 or a link is not passed on; each is removed.
        leave(&dir, &vec![b'a'; LIMIT as usize + 1]).unwrap();
        assert_eq!((take(&dir), any(&dir)), (None, false));
        leave(&dir, b"\xff").unwrap();
        assert_eq!((take(&dir), any(&dir)), (None, false));
        fs::write(dir.join("elsewhere"), "third").unwrap();
        std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join(NAME)).unwrap();
        assert_eq!((take(&dir), any(&dir)), (None, false));
        assert!(dir.join("elsewhere").exists());
    }
}
