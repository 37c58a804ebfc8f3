//! Writing below a user's directories, and the errors of it.

use super::probe::is_full;
pub(super) use crate::disk::{make_dir, write_passing, write_whole};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs;
use std::io;
use supervise_core::event::{ActError, ActErrorKind};

pub(super) const PRIVATE: u32 = 0o600;

/// A free name: the step, what moved it, and a number if that is taken.
pub(super) fn free_name(aside: &Utf8Path, step: &str, by: &str) -> io::Result<(Utf8PathBuf, Utf8PathBuf)> {
    for n in 1..10_000 {
        let tail = if n == 1 { String::new() } else { format!(".{n}") };
        let name = format!("{}.{by}{tail}", step.replace('/', "_"));
        let target = aside.join(&name);
        if fs::symlink_metadata(&target).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Ok((target, aside.join(format!("{name}.json"))));
        }
    }
    Err(io::Error::other(format!("{aside} holds 10000 copies of {step}")))
}

pub(super) fn write_note(note: &Utf8Path, from: &str, foreign: bool, why: &str, by: &str) -> io::Result<()> {
    let text = json!({ "from": from, "foreign": foreign, "why": why, "by": by });
    write_whole(note, format!("{text:#}\n").as_bytes(), PRIVATE)
}

pub(super) fn remove_file(path: &Utf8Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A failed disk access, as the core distinguishes it.
pub(super) fn disk_error(what: &str, e: &io::Error) -> ActError {
    let passing = [libc::EIO, libc::ESTALE, libc::EAGAIN, libc::ETIMEDOUT, libc::EINTR];
    let is_full = is_full(e);
    ActError {
        what: format!("{what}: {e}"),
        retryable: is_full || e.raw_os_error().is_some_and(|n| passing.contains(&n)),
        kind: match is_full {
            true => ActErrorKind::NoRoom,
            false => ActErrorKind::Disk,
        },
    }
}

/// A failure that is not a disk's.
pub(super) fn internal(what: &str) -> ActError {
    ActError {
        what: what.to_owned(),
        retryable: false,
        kind: ActErrorKind::Other,
    }
}
