//! The pointer of a trainer that names its latest generation.

use super::files::open_file;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io::{self, Read};
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST, LatestFile, POINTER_LIMIT};
use supervise_core::event::TrackerState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LatestPointer {
    /// There is none: AReaL loads what an older release wrote in place, if that exists.
    Missing,
    /// AReaL would load this generation, and nothing else.
    Names(LatestFile),
    /// AReaL would exit with an error at once, for this reason.
    Wrong(String),
    Unreadable(String),
}

impl LatestPointer {
    pub(super) fn tracker(&self) -> TrackerState {
        match self {
            Self::Missing => TrackerState::Missing,
            Self::Names(pointer) => TrackerState::Step(pointer.step),
            Self::Wrong(why) | Self::Unreadable(why) => TrackerState::Garbage(why.clone()),
        }
    }
}

pub(super) fn latest(root: &Utf8Path) -> LatestPointer {
    let path = root.join(LATEST);
    match fs::symlink_metadata(&path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return LatestPointer::Missing;
        }
        Err(e) => return LatestPointer::Unreadable(e.to_string()),
        Ok(meta) if meta.is_symlink() => {
            return LatestPointer::Wrong("a symbolic link, which is not followed".to_owned());
        }
        Ok(meta) if !meta.is_file() => {
            return LatestPointer::Wrong("no file, but a directory, a FIFO or the like".to_owned());
        }
        Ok(_) => {}
    }
    match bytes_of(&path) {
        Ok(bytes) if bytes.len() as u64 > POINTER_LIMIT => {
            LatestPointer::Wrong(format!("more than {POINTER_LIMIT} bytes, which no pointer has"))
        }
        Ok(bytes) => LatestFile::read(&bytes).map_or_else(LatestPointer::Wrong, LatestPointer::Names),
        Err(e) if e.kind() == io::ErrorKind::NotFound => LatestPointer::Missing,
        Err(e) => LatestPointer::Unreadable(e.to_string()),
    }
}

/// Returns true if there is something other than a directory where generations would be. Links are not followed.
pub(super) fn is_odd(generations: &Utf8Path) -> bool {
    fs::symlink_metadata(generations).is_ok_and(|meta| !meta.is_dir())
}

/// Path of the set that AReaL would load: in place, or where its pointer says.
#[must_use]
pub fn live_dir(root: &Utf8Path) -> Utf8PathBuf {
    match latest(root) {
        LatestPointer::Names(pointer) => root.join(GENERATIONS).join(pointer.generation()),
        _ => root.to_owned(),
    }
}

/// Reads one byte more than a pointer may have, to recognize other files.
pub(super) fn bytes_of(path: &Utf8Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(POINTER_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
