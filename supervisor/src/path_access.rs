//! Access to paths under a user's mounts for commands other than the driver: an I/O worker does it, and may be left behind if a
//! file system hangs. The wait is reported, and ends when the mount answers or the user interrupts it.
//!
//! Without a worker this process accesses the path itself, and what is started next reports the problem.

use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use supervise_host::io_worker::{
    IoAnswer, IoClient, IoQuestion, IoWorkerError, PathAnswer, PathKind, PathQuery, SaveSpace,
};
use supervise_host::ownership::PathTrust;

/// How long a file system may take before a message says so.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before another worker tries.
const ANOTHER: Duration = Duration::from_secs(600);
/// Time for a worker that is no longer needed to exit.
const LAST_WORDS: Duration = Duration::from_millis(500);

static WORKER: Mutex<MountHelper> = Mutex::new(MountHelper::Unasked);

enum MountHelper {
    Unasked,
    Lives(IoClient),
    /// No worker can be started.
    None,
}

/// Queries a path. Blocks as long as its file system hangs.
///
/// # Errors
/// The system's.
fn look(look: PathQuery) -> io::Result<PathAnswer> {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limit = PATIENCE;
    loop {
        if matches!(*worker, MountHelper::Unasked) {
            *worker = started();
        }
        let MountHelper::Lives(client) = &mut *worker else {
            return look.here(&mut |_| true);
        };
        match client.ask(IoQuestion::Look(look.clone()), limit) {
            Ok(IoAnswer::Seen(seen)) => return seen.map_err(Into::into),
            Err(IoWorkerError::Stalled(_)) => {
                if limit == PATIENCE {
                    let path = look.path();
                    printer::err(&format!(
                        "waiting: the file system under {path} does not answer (SIGTERM or Ctrl-C ends this)\n"
                    ));
                }
                limit = ANOTHER;
                *worker = MountHelper::Unasked;
            }
            _ => *worker = MountHelper::None,
        }
    }
}

fn started() -> MountHelper {
    // The program of a test is no worker.
    let exe = std::env::current_exe().ok().filter(|_| !cfg!(test));
    let client = exe.and_then(|exe| IoClient::start(&exe).ok());
    client.map_or(MountHelper::None, MountHelper::Lives)
}

/// Ends the worker: no paths are accessed for a while.
pub(crate) fn rest() {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let MountHelper::Lives(client) = std::mem::replace(&mut *worker, MountHelper::Unasked) {
        client.end(LAST_WORDS);
    }
}

fn odd() -> io::Error {
    io::Error::other("I/O worker: unexpected answer")
}

/// What is at a path, links followed.
pub(crate) fn kind(path: &Utf8Path) -> io::Result<PathKind> {
    match look(PathQuery::Kind(path.to_owned()))? {
        PathAnswer::Kind(kind) => Ok(kind),
        _ => Err(odd()),
    }
}

pub(crate) fn exists(path: &Utf8Path) -> bool {
    kind(path).is_ok()
}

pub(crate) fn is_dir(path: &Utf8Path) -> bool {
    kind(path).is_ok_and(|kind| kind == PathKind::Dir)
}

pub(crate) fn is_file(path: &Utf8Path) -> bool {
    kind(path).is_ok_and(|kind| kind == PathKind::File)
}

/// The UID of the owner.
pub(crate) fn owner(path: &Utf8Path) -> io::Result<u32> {
    match look(PathQuery::Owner(path.to_owned()))? {
        PathAnswer::Owner(user) => Ok(user),
        _ => Err(odd()),
    }
}

/// Whether the file or directory may be trusted.
pub(crate) fn trust(path: &Utf8Path) -> io::Result<PathTrust> {
    match look(PathQuery::Trust(path.to_owned()))? {
        PathAnswer::Trust(trust) => Ok(trust),
        _ => Err(odd()),
    }
}

/// The first bytes of a regular file as text, whether they are text, and whether the file may be trusted.
pub(crate) fn read_judged(path: &Utf8Path, limit: u64) -> io::Result<(String, bool, PathTrust)> {
    match look(PathQuery::ReadJudged(path.to_owned(), limit))? {
        PathAnswer::Judged(trust, text, exact) => Ok((text, exact, trust)),
        _ => Err(odd()),
    }
}

/// The target of a link.
pub(crate) fn link(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(PathQuery::Link(path.to_owned()))?)
}

/// The path with all links resolved.
pub(crate) fn canonical(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(PathQuery::Canonical(path.to_owned()))?)
}

fn found(seen: PathAnswer) -> io::Result<Utf8PathBuf> {
    match seen {
        PathAnswer::Path(path) => Ok(path),
        _ => Err(odd()),
    }
}

/// The path without links and `..`, if it exists.
pub(crate) fn plain(path: &Utf8Path) -> Utf8PathBuf {
    canonical(path).unwrap_or_else(|_| path.to_owned())
}

/// The first bytes of a file as text, and whether they are text.
pub(crate) fn read(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(PathQuery::Read(path.to_owned(), limit))?)
}

/// The same for a small regular file; never blocks on a pipe or device.
pub(crate) fn read_small(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(PathQuery::ReadSmall(path.to_owned(), limit))?)
}

fn read_text(seen: PathAnswer) -> io::Result<(String, bool)> {
    match seen {
        PathAnswer::Text(text, exact) => Ok((text, exact)),
        _ => Err(odd()),
    }
}

/// Names in a directory with this prefix, at most `most`.
pub(crate) fn names(dir: &Utf8Path, prefix: &str, most: usize) -> io::Result<Vec<String>> {
    match look(PathQuery::Names(dir.to_owned(), prefix.to_owned(), most))? {
        PathAnswer::Names(names) => Ok(names),
        _ => Err(odd()),
    }
}

/// Returns true if a file is an executable program.
pub(crate) fn is_program(path: &Utf8Path) -> bool {
    is_file(path) && look(PathQuery::Execute(path.to_owned())).is_ok()
}

/// The nearest existing directory.
pub(crate) fn nearest(path: &Utf8Path) -> &Utf8Path {
    path.ancestors().find(|p| exists(p)).unwrap_or(Utf8Path::new("/"))
}

/// Returns true if files can be created in a directory; the error says why not.
pub(crate) fn may_write(dir: &Utf8Path) -> io::Result<()> {
    look(PathQuery::Write(dir.to_owned())).map(drop)
}

/// Creates a directory, and writes a file in it.
pub(crate) fn make(dir: &Utf8Path) -> io::Result<()> {
    look(PathQuery::Make(dir.to_owned())).map(drop)
}

/// Free bytes of a file system; `None` if unknown.
pub(crate) fn free(path: &Utf8Path) -> Option<u64> {
    match look(PathQuery::Free(path.to_owned())) {
        Ok(PathAnswer::Free(free)) => free,
        _ => None,
    }
}

/// Space for checkpoints in a root whose step names have this prefix; `None` if unknown.
pub(crate) fn room(root: &Utf8Path, prefix: Option<&str>) -> Option<SaveSpace> {
    match look(PathQuery::Room(root.to_owned(), prefix.map(str::to_owned))) {
        Ok(PathAnswer::Room(room)) => room,
        _ => None,
    }
}
