//! Single path queries while a run is prepared: a hanging mount blocks only the I/O worker.

use super::files::{open_regular, read_small};
use super::judged::trust_here;
use super::probe::DiskRoom;
use crate::disk::write_test;
use crate::ownership::{OwnedPath, PathTrust};
use crate::system::space;
use camino::{Utf8Path, Utf8PathBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};

const STEPS: usize = 4;
/// How long a pipe may stay silent.
const PIPE: Duration = Duration::from_secs(10);
const FILES: usize = 200_000;

/// A query. Links are followed, except by [`PathQuery::Link`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathQuery {
    Kind(Utf8PathBuf),
    Owner(Utf8PathBuf),
    /// Whether it may be acted on.
    Trust(Utf8PathBuf),
    /// The same, and the first bytes of what was judged: a regular file.
    ReadJudged(Utf8PathBuf, u64),
    /// Where a link leads; anything else is an error.
    Link(Utf8PathBuf),
    /// The path with all links resolved.
    Canonical(Utf8PathBuf),
    /// The first bytes of a file, up to this many.
    Read(Utf8PathBuf, u64),
    /// The first bytes of a regular file; never blocks.
    ReadSmall(Utf8PathBuf, u64),
    /// Names in a directory with this prefix, up to this many.
    Names(Utf8PathBuf, String, usize),
    /// Whether a program may be executed.
    Execute(Utf8PathBuf),
    /// Whether files may be created in a directory.
    Write(Utf8PathBuf),
    /// Free space for this user, in bytes.
    Free(Utf8PathBuf),
    /// Used bytes of a file system, and its size.
    Usage(Utf8PathBuf),
    /// Space for checkpoints in a root whose steps have this name prefix.
    Room(Utf8PathBuf, Option<String>),
    /// Creates a directory, and writes a file in it.
    Make(Utf8PathBuf),
    /// Free space on a checkpoint root's disk: as reported, and as shown by creating and removing a small file.
    Disk {
        root: Utf8PathBuf,
        /// The run directory; the file is created there if it is on the same disk.
        run_dir: Utf8PathBuf,
        /// Bytes that a save needs; 0: no file is created.
        bytes: u64,
    },
}

/// Answer to a [`PathQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAnswer {
    Yes,
    Kind(PathKind),
    Owner(u32),
    Trust(PathTrust),
    /// Whether it may be acted on, and text as in [`PathAnswer::Text`].
    Judged(PathTrust, String, bool),
    Path(Utf8PathBuf),
    /// Text, and whether it is exactly what was read; invalid UTF-8 is replaced.
    Text(String, bool),
    Names(Vec<String>),
    /// Bytes; `None`: the file system does not report them.
    Free(Option<u64>),
    /// Bytes in use, and bytes in total; `None`: the file system does not report them.
    Usage(Option<(u64, u64)>),
    /// `None`: the file system does not report it.
    Room(Option<SaveSpace>),
    Disk(DiskRoom),
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    Dir,
    File,
    Other,
}

/// Free space, and the size of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveSpace {
    /// Free space for this user, in bytes.
    pub free: u64,
    /// Size of the largest of the newest steps, in bytes; 0 if there is none.
    pub step: u64,
    pub steps: u32,
}

/// A system error that was sent through a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathError {
    number: Option<i32>,
    what: String,
}

impl From<io::Error> for PathError {
    fn from(e: io::Error) -> Self {
        Self {
            number: e.raw_os_error(),
            what: e.to_string(),
        }
    }
}

impl From<PathError> for io::Error {
    fn from(f: PathError) -> Self {
        match f.number {
            Some(number) => Self::from_raw_os_error(number),
            None => Self::other(f.what),
        }
    }
}

impl PathQuery {
    /// The path that is queried.
    #[must_use]
    pub fn path(&self) -> &Utf8Path {
        match self {
            Self::Kind(p) | Self::Owner(p) | Self::Link(p) | Self::Canonical(p) | Self::Execute(p) | Self::Write(p) => {
                p
            }
            Self::Read(p, _) | Self::ReadSmall(p, _) | Self::Names(p, ..) => p,
            Self::Trust(p) | Self::ReadJudged(p, _) => p,
            Self::Free(p) | Self::Usage(p) | Self::Room(p, _) | Self::Make(p) | Self::Disk { root: p, .. } => p,
        }
    }

    /// Runs the query. `working` is called now and then during a long one.
    ///
    /// # Errors
    /// The system's.
    pub fn here(&self, working: &mut dyn FnMut(u64) -> bool) -> io::Result<PathAnswer> {
        Ok(match self {
            Self::Kind(path) => PathAnswer::Kind(kind(path)?),
            Self::Owner(path) => PathAnswer::Owner(fs::metadata(path)?.uid()),
            Self::Trust(path) => PathAnswer::Trust(trust_here(&OwnedPath::of(path)?, above(path))),
            Self::ReadJudged(path, limit) => read_judged(path, *limit)?,
            Self::Link(path) => PathAnswer::Path(path.read_link_utf8()?),
            Self::Canonical(path) => PathAnswer::Path(path.canonicalize_utf8()?),
            Self::Read(path, limit) => text(read(path, *limit, PIPE, working)?),
            Self::ReadSmall(path, limit) => text(read_small(path, *limit)?),
            Self::Names(dir, prefix, most) => {
                let names = dir.read_dir_utf8()?.flatten().map(|e| e.file_name().to_owned());
                PathAnswer::Names(names.filter(|name| name.starts_with(prefix)).take(*most).collect())
            }
            Self::Execute(path) => may(path, AccessFlags::X_OK)?,
            Self::Write(dir) => may(dir, AccessFlags::W_OK | AccessFlags::X_OK)?,
            Self::Free(path) => PathAnswer::Free(free(path)?),
            Self::Usage(path) => {
                let found = space(path)?;
                let known = (found.size > 0).then_some((found.size.saturating_sub(found.free), found.size));
                PathAnswer::Usage(known)
            }
            Self::Disk { root, run_dir, bytes } => PathAnswer::Disk(DiskRoom::of(root, run_dir, *bytes)?),
            Self::Room(root, prefix) => PathAnswer::Room(SaveSpace::of(root, prefix.as_deref(), working)),
            Self::Make(dir) => {
                fs::create_dir_all(dir)?;
                write_test(dir)?;
                PathAnswer::Yes
            }
        })
    }
}

/// Reads a file, or a pipe (`<(…)` of a shell) as long as data arrives. `patience`: how long a pipe may stay silent.
fn read(path: &Utf8Path, limit: u64, patience: Duration, working: &mut dyn FnMut(u64) -> bool) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // A pipe without a writer would block forever.
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(limit).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut last = Instant::now();
    let mut file = file.take(limit);
    loop {
        // Before a writer opens it, there is nothing to read and no end of file.
        let mut fds = [PollFd::new(file.get_ref().as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(100_u8)).map_err(io::Error::from)? > 0;
        let before = bytes.len();
        match ready.then(|| file.read_to_end(&mut bytes)) {
            Some(Ok(_)) => return Ok(bytes),
            Some(Err(e)) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
        if bytes.len() > before {
            last = Instant::now();
        } else if last.elapsed() >= patience {
            let what = format!("a pipe that nothing came out of for {} s", patience.as_secs());
            return Err(io::Error::other(what));
        }
        working(bytes.len() as u64);
    }
}

fn above(path: &Utf8Path) -> &Utf8Path {
    match path.parent() {
        Some(dir) if !dir.as_str().is_empty() => dir,
        _ => Utf8Path::new("."),
    }
}

fn read_judged(path: &Utf8Path, limit: u64) -> io::Result<PathAnswer> {
    let file = open_regular(path)?;
    let trust = trust_here(&OwnedPath::of_open(path, &file)?, above(path));
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let (text, exact) = words(bytes);
    Ok(PathAnswer::Judged(trust, text, exact))
}

fn kind(path: &Utf8Path) -> io::Result<PathKind> {
    let meta = fs::metadata(path)?;
    Ok(match (meta.is_dir(), meta.is_file()) {
        (true, _) => PathKind::Dir,
        (_, true) => PathKind::File,
        _ => PathKind::Other,
    })
}

fn text(bytes: Vec<u8>) -> PathAnswer {
    let (text, exact) = words(bytes);
    PathAnswer::Text(text, exact)
}

fn words(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, true),
        Err(e) => (String::from_utf8_lossy(e.as_bytes()).into_owned(), false),
    }
}

fn may(path: &Utf8Path, how: AccessFlags) -> io::Result<PathAnswer> {
    access(path.as_std_path(), how).map_err(|e| io::Error::other(e.desc()))?;
    Ok(PathAnswer::Yes)
}

/// A file system that reports no blocks (some of the kernel's own) reports no free space either.
fn free(path: &Utf8Path) -> io::Result<Option<u64>> {
    let found = space(path)?;
    Ok((found.size > 0).then_some(found.free))
}

impl SaveSpace {
    /// Measures a root whose steps have this name prefix. `None`: the file system does not report free space.
    fn of(root: &Utf8Path, prefix: Option<&str>, working: &mut dyn FnMut(u64) -> bool) -> Option<Self> {
        let here = root.ancestors().find(|p| p.exists())?;
        let free = free(here).ok().flatten()?;
        let steps = prefix.map(|prefix| steps(root, prefix)).unwrap_or_default();
        let newest = steps.values().rev().take(STEPS);
        Some(Self {
            free,
            step: newest.map(|dir| bytes_below(dir, working)).max().unwrap_or(0),
            steps: u32::try_from(steps.len()).unwrap_or(u32::MAX),
        })
    }
}

fn steps(root: &Utf8Path, prefix: &str) -> BTreeMap<u64, Utf8PathBuf> {
    let Ok(listing) = root.read_dir_utf8() else {
        return BTreeMap::new();
    };
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
    listing
        .flatten()
        .filter_map(|entry| Some((number(entry.file_name())?, entry.into_path())))
        .collect()
}

fn bytes_below(dir: &Utf8Path, working: &mut dyn FnMut(u64) -> bool) -> u64 {
    let (mut waiting, mut sum, mut seen) = (vec![dir.to_owned()], 0_u64, 0);
    while let Some(dir) = waiting.pop() {
        let Ok(listing) = dir.read_dir_utf8() else { continue };
        for entry in listing.flatten() {
            seen += 1;
            let Ok(meta) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if seen > FILES {
                return sum;
            }
            working(sum);
            if meta.is_dir() {
                waiting.push(entry.into_path());
            } else {
                sum = sum.saturating_add(meta.len());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_worker::temp_dir;

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_one() {
        let (_keep, dir) = temp_dir();
        let pipe = dir.join("pipe");
        nix::unistd::mkfifo(pipe.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let nothing = read(&pipe, 100, Duration::from_millis(1), &mut |_| true).unwrap_err();
        assert!(nothing.to_string().contains("nothing came out"), "{nothing}");
        let begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut to = OpenOptions::new().write(true).open(&pipe).unwrap();
                std::io::Write::write_all(&mut to, b"a: 1\n").unwrap();
                // The first part was read before the second was written.
                begun.wait();
                std::io::Write::write_all(&mut to, b"b: 2\n").unwrap();
            });
            let mut waits = true;
            let found = read(&pipe, 100, Duration::from_secs(600), &mut |n| {
                if n > 0 && std::mem::take(&mut waits) {
                    begun.wait();
                }
                true
            });
            assert_eq!(found.unwrap(), b"a: 1\nb: 2\n");
        });
    }

    #[test]
    fn the_largest_of_the_newest_steps_counts() {
        let (_keep, root) = temp_dir();
        for (step, size) in [(2, 9000), (10, 700), (12, 800), (14, 100), (16, 50)] {
            let actor = root.join(format!("global_step_{step}/actor"));
            fs::create_dir_all(&actor).unwrap();
            fs::write(actor.join("model.pt"), vec![0; size]).unwrap();
        }
        let of = |root: &Utf8Path| SaveSpace::of(root, Some("global_step_"), &mut |_| true);
        let room = of(&root).unwrap();
        assert_eq!((room.step, room.steps), (800, 5));
        assert!(of(&root.join("not/yet")).is_some_and(|r| r.steps == 0 && r.free > 0));
    }

    #[test]
    fn an_error_keeps_its_number_and_its_words() {
        let gone = PathQuery::Kind("/no/such/place".into())
            .here(&mut |_| true)
            .unwrap_err();
        let words = gone.to_string();
        let told = io::Error::from(PathError::from(gone));
        assert_eq!((told.kind(), told.to_string()), (io::ErrorKind::NotFound, words));
    }

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        let (_keep, dir) = temp_dir();
        let file = dir.join("x");
        fs::write(&file, b"#!/bin/sh\n\xff").unwrap();
        let read = |limit| PathQuery::Read(file.clone(), limit).here(&mut |_| true).unwrap();
        assert_eq!(read(10), PathAnswer::Text("#!/bin/sh\n".into(), true));
        assert_eq!(read(11), PathAnswer::Text("#!/bin/sh\n\u{fffd}".into(), false));
    }
}
