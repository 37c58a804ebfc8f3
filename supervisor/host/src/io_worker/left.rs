//! Requests to a supervisor of those who cannot connect to it, from another machine or out of a container: a file in the run
//! directory, which the I/O worker that shows its lease to live takes away and hands on.

use crate::disk::{own_place, read_own, write_whole};
use crate::io_worker::write::PRIVATE;
use camino::Utf8Path;
use std::{fs, io};

const NAME: &str = "asked.json";
const TAKEN: &str = "asked.json.taken";
/// Longest request, in bytes.
const LIMIT: u64 = 64 << 10;

/// Leaves a request. One that was not taken yet is replaced.
///
/// # Errors
/// The run directory is not ours, or the file system refuses.
pub fn leave(run_dir: &Utf8Path, request: &[u8]) -> io::Result<()> {
    own_place(run_dir)?;
    write_whole(&run_dir.join(NAME), request, PRIVATE)
}

/// Looks if one waits there.
#[must_use]
pub fn waits(run_dir: &Utf8Path) -> bool {
    run_dir.join(NAME).symlink_metadata().is_ok()
}

/// Takes it away, if there is one; what nobody of ours wrote is none. A lease is not given up over it.
pub(super) fn take(run_dir: &Utf8Path) -> Option<String> {
    let (path, taken) = (run_dir.join(NAME), run_dir.join(TAKEN));
    // Away first: one that is left meanwhile stays for the next look, and one that cannot be taken away would be asked again with each.
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
        assert_eq!((take(&dir), waits(&dir)), (None, false));
        leave(&dir, b"first").unwrap();
        leave(&dir, b"second").unwrap();
        assert!(waits(&dir));
        assert_eq!(take(&dir).as_deref(), Some("second"));
        assert_eq!((take(&dir), waits(&dir)), (None, false));
        // Neither what is too long, nor no text, nor a link is handed on; each is gone.
        leave(&dir, &vec![b'a'; LIMIT as usize + 1]).unwrap();
        assert_eq!((take(&dir), waits(&dir)), (None, false));
        leave(&dir, b"\xff").unwrap();
        assert_eq!((take(&dir), waits(&dir)), (None, false));
        fs::write(dir.join("elsewhere"), "third").unwrap();
        std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join(NAME)).unwrap();
        assert_eq!((take(&dir), waits(&dir)), (None, false));
        assert!(dir.join("elsewhere").exists());
    }
}
