//! Paths under a user's mounts, for commands that are not the driver: an I/O worker looks, and may be left behind where a file
//! system hangs. That is said, and waited for: a mount comes back, or a person ends this.
//!
//! If no worker can be had we look ourselves, and what is started next says what is wrong.

use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use supervise_host::io_worker::{
    IoAnswer, IoClient, IoQuestion, IoWorkerError, PathAnswer, PathKind, PathQuery, SaveSpace,
};
use supervise_host::ownership::PathTrust;

/// A file system has this long to answer before anything is said.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long it is waited for until another worker tries.
const ANOTHER: Duration = Duration::from_secs(600);
/// A worker that is not needed any more has this long to end.
const LAST_WORDS: Duration = Duration::from_millis(500);

static WORKER: Mutex<MountHelper> = Mutex::new(MountHelper::Unasked);

enum MountHelper {
    Unasked,
    Lives(IoClient),
    /// None can be had.
    None,
}

/// Looks at a path. Blocks for as long as its file system hangs.
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

/// Ends the worker: nothing is looked at for a while.
pub(crate) fn rest() {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let MountHelper::Lives(client) = std::mem::replace(&mut *worker, MountHelper::Unasked) {
        client.end(LAST_WORDS);
    }
}

fn odd() -> io::Error {
    io::Error::other("I/O worker: unexpected answer")
}

/// Entry at a path, links followed.
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

/// The number of the user whose it is.
pub(crate) fn owner(path: &Utf8Path) -> io::Result<u32> {
    match look(PathQuery::Owner(path.to_owned()))? {
        PathAnswer::Owner(user) => Ok(user),
        _ => Err(odd()),
    }
}

/// Whether what stands there may be acted on.
pub(crate) fn trust(path: &Utf8Path) -> io::Result<PathTrust> {
    match look(PathQuery::Trust(path.to_owned()))? {
        PathAnswer::Trust(trust) => Ok(trust),
        _ => Err(odd()),
    }
}

/// The first bytes of a regular file as text, whether they are text, and whether that file may be acted on.
pub(crate) fn read_judged(path: &Utf8Path, limit: u64) -> io::Result<(String, bool, PathTrust)> {
    match look(PathQuery::ReadJudged(path.to_owned(), limit))? {
        PathAnswer::Judged(trust, text, exact) => Ok((text, exact, trust)),
        _ => Err(odd()),
    }
}

/// Place where a link leads.
pub(crate) fn link(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(PathQuery::Link(path.to_owned()))?)
}

/// The path with all links followed.
pub(crate) fn canonical(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(PathQuery::Canonical(path.to_owned()))?)
}

fn found(seen: PathAnswer) -> io::Result<Utf8PathBuf> {
    match seen {
        PathAnswer::Path(path) => Ok(path),
        _ => Err(odd()),
    }
}

/// The path without links and `..`, where it exists.
pub(crate) fn plain(path: &Utf8Path) -> Utf8PathBuf {
    canonical(path).unwrap_or_else(|_| path.to_owned())
}

/// The first bytes of a file as text, and whether they are text.
pub(crate) fn read(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(PathQuery::Read(path.to_owned(), limit))?)
}

/// The same of a small regular file: nothing is waited for, whatever stands there.
pub(crate) fn read_small(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(PathQuery::ReadSmall(path.to_owned(), limit))?)
}

fn read_text(seen: PathAnswer) -> io::Result<(String, bool)> {
    match seen {
        PathAnswer::Text(text, exact) => Ok((text, exact)),
        _ => Err(odd()),
    }
}

/// Names in a directory that begin so, at most so many.
pub(crate) fn names(dir: &Utf8Path, prefix: &str, most: usize) -> io::Result<Vec<String>> {
    match look(PathQuery::Names(dir.to_owned(), prefix.to_owned(), most))? {
        PathAnswer::Names(names) => Ok(names),
        _ => Err(odd()),
    }
}

/// Returns true if a file is a program that may be executed.
pub(crate) fn is_program(path: &Utf8Path) -> bool {
    is_file(path) && look(PathQuery::Execute(path.to_owned())).is_ok()
}

/// The nearest directory that exists already.
pub(crate) fn nearest(path: &Utf8Path) -> &Utf8Path {
    path.ancestors().find(|p| exists(p)).unwrap_or(Utf8Path::new("/"))
}

/// Returns true if files may be made in a directory; the error says why not.
pub(crate) fn may_write(dir: &Utf8Path) -> io::Result<()> {
    look(PathQuery::Write(dir.to_owned())).map(drop)
}

/// Makes a directory, and writes a file in it.
pub(crate) fn make(dir: &Utf8Path) -> io::Result<()> {
    look(PathQuery::Make(dir.to_owned())).map(drop)
}

/// Bytes that a file system has left for us; `None` where it does not tell.
pub(crate) fn free(path: &Utf8Path) -> Option<u64> {
    match look(PathQuery::Free(path.to_owned())) {
        Ok(PathAnswer::Free(free)) => free,
        _ => None,
    }
}

/// Space for checkpoints in a root whose steps' names begin so; `None` where the file system does not tell.
pub(crate) fn room(root: &Utf8Path, prefix: Option<&str>) -> Option<SaveSpace> {
    match look(PathQuery::Room(root.to_owned(), prefix.map(str::to_owned))) {
        Ok(PathAnswer::Room(room)) => room,
        _ => None,
    }
}
