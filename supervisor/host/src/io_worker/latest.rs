//! The pointer of trainers that name one of their generations as the latest.

use super::files::open_file;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io::{self, Read};
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST, LatestFile, POINTER_LIMIT};
use supervise_core::event::TrackerState;

/// Content of the pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LatestPointer {
    /// There is none: AReaL reads what an older build wrote in place, if that is there.
    Missing,
    /// This generation is what AReaL would load, from there and from nowhere else.
    Names(LatestFile),
    /// AReaL would end before any work: why.
    Wrong(String),
    /// It cannot be read now.
    Unreadable(String),
}

impl LatestPointer {
    /// The same as a trainer's tracker.
    pub(super) fn tracker(&self) -> TrackerState {
        match self {
            Self::Missing => TrackerState::Missing,
            Self::Names(pointer) => TrackerState::Step(pointer.step),
            Self::Wrong(why) | Self::Unreadable(why) => TrackerState::Garbage(why.clone()),
        }
    }
}

/// Reads the pointer in a checkpoint root.
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

/// Returns true if something else stands where generations would: a link is not followed.
pub(super) fn is_odd(generations: &Utf8Path) -> bool {
    fs::symlink_metadata(generations).is_ok_and(|meta| !meta.is_dir())
}

/// Place of what AReaL would load: in place, or where its pointer says.
#[must_use]
pub fn live_dir(root: &Utf8Path) -> Utf8PathBuf {
    match latest(root) {
        LatestPointer::Names(pointer) => root.join(GENERATIONS).join(pointer.generation()),
        _ => root.to_owned(),
    }
}

/// One byte more than a pointer may have tells that it is none.
pub(super) fn bytes_of(path: &Utf8Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(POINTER_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
