//! Forwards a trainer's output that the script redirects to files to the guard as well.
//!
//! Only regular files of this user, and only what is appended after the start. If a file grows faster than it is
//! read, only its end is read.

use camino::Utf8Path;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

const DESCRIPTORS: [u8; 2] = [1, 2];
const EVERY: Duration = Duration::from_millis(200);
/// Bytes of a file read at once, and the most it may be behind.
const CHUNK: usize = 64 << 10;
const BEHIND: u64 = 4 << 20;
/// How long the last output may take to be read after the trainer has exited.
const LAST: Duration = Duration::from_secs(5);

pub(super) struct Mirror {
    stop: Sender<()>,
    done: Receiver<()>,
}

impl Mirror {
    /// Starts to read the files that this process's output goes to, if any; `pipe`: the guard's.
    pub(super) fn start(pipe: &Utf8Path) -> Option<Self> {
        let mut files: Vec<Growing> = Vec::new();
        for fd in DESCRIPTORS {
            if let Some(file) = Growing::open(fd).filter(|f| files.iter().all(|other| other.id != f.id)) {
                files.push(file);
            }
        }
        if files.is_empty() {
            return None;
        }
        let mut pipe = OpenOptions::new().write(true).open(pipe).ok()?;
        let (stop, stopped) = channel();
        let (tell, done) = channel();
        std::thread::Builder::new()
            .spawn(move || {
                loop {
                    let is_last = !matches!(stopped.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout));
                    if files.iter_mut().any(|file| file.pass_on(&mut pipe).is_err()) || is_last {
                        break;
                    }
                }
                // There may be no receiver any more.
                let _ = tell.send(());
            })
            .ok()?;
        Some(Self { stop, done })
    }

    pub(super) fn finish(self) {
        // A reader that has ended has nothing more to read; a hanging disk is not waited for.
        let _ = self.stop.send(());
        let _ = self.done.recv_timeout(LAST);
    }
}

struct Growing {
    file: File,
    id: (u64, u64),
    read: u64,
}

impl Growing {
    fn open(fd: u8) -> Option<Self> {
        let path = format!("/proc/self/fd/{fd}");
        let meta = std::fs::metadata(&path).ok()?;
        if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() {
            return None;
        }
        let file = File::open(&path).ok()?;
        Some(Self {
            file,
            id: (meta.dev(), meta.ino()),
            read: next_write(fd, meta.size()),
        })
    }

    fn pass_on(&mut self, pipe: &mut File) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let size = self.file.metadata()?.size();
            // The file was truncated, as a rotation does.
            if size < self.read {
                self.read = 0;
            }
            self.read = self.read.max(size.saturating_sub(BEHIND));
            let n = self.file.read_at(&mut chunk, self.read)?;
            if n == 0 {
                return Ok(());
            }
            pipe.write_all(chunk.get(..n).unwrap_or(&[]))?;
            self.read = self.read.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        }
    }
}

/// Offset of the next write through this descriptor.
fn next_write(fd: u8, size: u64) -> u64 {
    use std::os::fd::AsFd;
    let (out, err) = (io::stdout(), io::stderr());
    let fd = if fd == 1 { out.as_fd() } else { err.as_fd() };
    let Ok(own) = fd.try_clone_to_owned() else { return size };
    let flags = nix::fcntl::fcntl(&own, nix::fcntl::FcntlArg::F_GETFL);
    let appends = flags.is_ok_and(|f| f & libc::O_APPEND != 0);
    match File::from(own).stream_position() {
        Ok(at) if !appends => at,
        _ => size,
    }
}
