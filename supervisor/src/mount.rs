//! Paths under a user's mounts, for commands that are not the driver: an I/O worker looks, and may be left behind where a file
//! system hangs. That is said, and waited for: a mount comes back, or a person ends this.
//!
//! If no worker can be had we look ourselves, and what is started next says what is wrong.

use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use supervise_host::io_worker::{Answer, Client, IoWorkerError, Kind, Look, Question, Room, Seen};
use supervise_host::ownership::PathTrust;

/// A file system has this long to answer before anything is said.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long it is waited for until another worker tries.
const ANOTHER: Duration = Duration::from_secs(600);
/// A worker that is not needed any more has this long to end.
const LAST_WORDS: Duration = Duration::from_millis(500);

static WORKER: Mutex<Worker> = Mutex::new(Worker::Unasked);

enum Worker {
    Unasked,
    Lives(Client),
    /// None can be had.
    None,
}

/// Looks at a path. Blocks for as long as its file system hangs.
///
/// # Errors
/// The system's.
fn look(look: Look) -> io::Result<Seen> {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limit = PATIENCE;
    loop {
        if matches!(*worker, Worker::Unasked) {
            *worker = started();
        }
        let Worker::Lives(client) = &mut *worker else {
            return look.here(&mut |_| true);
        };
        match client.ask(Question::Look(look.clone()), limit) {
            Ok(Answer::Seen(seen)) => return seen.map_err(Into::into),
            Err(IoWorkerError::Stalled(_)) => {
                if limit == PATIENCE {
                    let path = look.path();
                    printer::err(&format!(
                        "waiting: the file system under {path} does not answer (SIGTERM or Ctrl-C ends this)\n"
                    ));
                }
                limit = ANOTHER;
                *worker = Worker::Unasked;
            }
            _ => *worker = Worker::None,
        }
    }
}

fn started() -> Worker {
    // The program of a test is no worker.
    let exe = std::env::current_exe().ok().filter(|_| !cfg!(test));
    let client = exe.and_then(|exe| Client::start(&exe).ok());
    client.map_or(Worker::None, Worker::Lives)
}

/// Ends the worker: nothing is looked at for a while.
pub(crate) fn rest() {
    let mut worker = WORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Worker::Lives(client) = std::mem::replace(&mut *worker, Worker::Unasked) {
        client.end(LAST_WORDS);
    }
}

fn odd() -> io::Error {
    io::Error::other("the helper gave an unexpected answer")
}

/// Entry at a path, links followed.
pub(crate) fn kind(path: &Utf8Path) -> io::Result<Kind> {
    match look(Look::Kind(path.to_owned()))? {
        Seen::Kind(kind) => Ok(kind),
        _ => Err(odd()),
    }
}

pub(crate) fn exists(path: &Utf8Path) -> bool {
    kind(path).is_ok()
}

pub(crate) fn is_dir(path: &Utf8Path) -> bool {
    kind(path).is_ok_and(|kind| kind == Kind::Dir)
}

pub(crate) fn is_file(path: &Utf8Path) -> bool {
    kind(path).is_ok_and(|kind| kind == Kind::File)
}

/// The number of the user whose it is.
pub(crate) fn owner(path: &Utf8Path) -> io::Result<u32> {
    match look(Look::Owner(path.to_owned()))? {
        Seen::Owner(user) => Ok(user),
        _ => Err(odd()),
    }
}

/// Whether what stands there may be acted on.
pub(crate) fn trust(path: &Utf8Path) -> io::Result<PathTrust> {
    match look(Look::Trust(path.to_owned()))? {
        Seen::Trust(trust) => Ok(trust),
        _ => Err(odd()),
    }
}

/// The first bytes of a regular file as text, whether they are text, and whether that file may be acted on.
pub(crate) fn read_judged(path: &Utf8Path, limit: u64) -> io::Result<(String, bool, PathTrust)> {
    match look(Look::ReadJudged(path.to_owned(), limit))? {
        Seen::Judged(trust, text, exact) => Ok((text, exact, trust)),
        _ => Err(odd()),
    }
}

/// Place where a link leads.
pub(crate) fn link(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(Look::Link(path.to_owned()))?)
}

/// The path with all links followed.
pub(crate) fn canonical(path: &Utf8Path) -> io::Result<Utf8PathBuf> {
    found(look(Look::Canonical(path.to_owned()))?)
}

fn found(seen: Seen) -> io::Result<Utf8PathBuf> {
    match seen {
        Seen::Path(path) => Ok(path),
        _ => Err(odd()),
    }
}

/// The path without links and `..`, where it exists.
pub(crate) fn plain(path: &Utf8Path) -> Utf8PathBuf {
    canonical(path).unwrap_or_else(|_| path.to_owned())
}

/// The first bytes of a file as text, and whether they are text.
pub(crate) fn read(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(Look::Read(path.to_owned(), limit))?)
}

/// The same of a small regular file: nothing is waited for, whatever stands there.
pub(crate) fn read_small(path: &Utf8Path, limit: u64) -> io::Result<(String, bool)> {
    read_text(look(Look::ReadSmall(path.to_owned(), limit))?)
}

fn read_text(seen: Seen) -> io::Result<(String, bool)> {
    match seen {
        Seen::Text(text, exact) => Ok((text, exact)),
        _ => Err(odd()),
    }
}

/// Names in a directory that begin so, at most so many.
pub(crate) fn names(dir: &Utf8Path, prefix: &str, most: usize) -> io::Result<Vec<String>> {
    match look(Look::Names(dir.to_owned(), prefix.to_owned(), most))? {
        Seen::Names(names) => Ok(names),
        _ => Err(odd()),
    }
}

/// Returns true if a file is a program that may be executed.
pub(crate) fn is_program(path: &Utf8Path) -> bool {
    is_file(path) && look(Look::Execute(path.to_owned())).is_ok()
}

/// The nearest directory that exists already.
pub(crate) fn nearest(path: &Utf8Path) -> &Utf8Path {
    path.ancestors().find(|p| exists(p)).unwrap_or(Utf8Path::new("/"))
}

/// Returns true if files may be made in a directory; the error says why not.
pub(crate) fn may_write(dir: &Utf8Path) -> io::Result<()> {
    look(Look::Write(dir.to_owned())).map(drop)
}

/// Makes a directory, and writes a file in it.
pub(crate) fn make(dir: &Utf8Path) -> io::Result<()> {
    look(Look::Make(dir.to_owned())).map(drop)
}

/// Bytes that a file system has left for us; `None` where it does not tell.
pub(crate) fn free(path: &Utf8Path) -> Option<u64> {
    match look(Look::Free(path.to_owned())) {
        Ok(Seen::Free(free)) => free,
        _ => None,
    }
}

/// Space for checkpoints in a root whose steps' names begin so; `None` where the file system does not tell.
pub(crate) fn room(root: &Utf8Path, prefix: Option<&str>) -> Option<Room> {
    match look(Look::Room(root.to_owned(), prefix.map(str::to_owned))) {
        Ok(Seen::Room(room)) => room,
        _ => None,
    }
}
