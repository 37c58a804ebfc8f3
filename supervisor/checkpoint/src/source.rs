//! Byte sources, and the findings for bytes that cannot be read.
//!
//! A [`ByteSource`] is a length and a positioned read: a file in an I/O worker, a slice in a test. [`FileReader`] adds what every format
//! needs: exact reads within the length seen at the start, a cached tail (directories are at the end of files), and one translation of
//! faults into findings. An I/O error says nothing about the bytes, so it is `Unreadable`; a file that shrinks while it is read is being
//! rewritten, so it is `Incomplete` and worth another try.

use std::cell::Cell;
use std::io;
use supervise_core::checkpoint::{Finding, Verdict};

/// A file as this crate sees it.
pub trait ByteSource {
    /// Returns the current number of bytes.
    ///
    /// # Errors
    /// The file system's error.
    fn len(&self) -> io::Result<u64>;

    /// Reads at a position; like `pread`, may return fewer bytes than asked, and 0 only at the end.
    ///
    /// # Errors
    /// The file system's error.
    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Whether there are currently no bytes.
    ///
    /// # Errors
    /// The file system's error.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl ByteSource for [u8] {
    fn len(&self) -> io::Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(off)
            .ok()
            .and_then(|at| self.get(at..))
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl ByteSource for &[u8] {
    fn len(&self) -> io::Result<u64> {
        ByteSource::len(*self)
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(off, buf)
    }
}

impl ByteSource for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        ByteSource::len(self.as_slice())
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(off, buf)
    }
}

/// Why bytes inside the file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// The file system returned an error.
    #[error("reading failed: {error}")]
    Io {
        /// File offset.
        at: u64,
        #[source]
        error: io::Error,
    },
    /// The file became shorter while it was read.
    #[error("the file shrank from {before} to {now} bytes while it was read")]
    Shrank {
        /// Its length when reading began.
        before: u64,
        /// Its length now.
        now: u64,
    },
    /// The file system reports more bytes than it delivers.
    #[error("reading ended at byte {at}, before the end of the file")]
    Short {
        /// File offset.
        at: u64,
    },
}

/// Errors that may be temporary: EAGAIN, EINTR, EIO, EBUSY, ETIMEDOUT, EHOSTUNREACH, EHOSTDOWN, ESTALE, EREMOTEIO, ENOTCONN, ECONNRESET.
/// Numbers, because this crate makes no system calls and links no libc wrapper.
const MAY_PASS: &[i32] = &[11, 4, 5, 16, 110, 113, 112, 116, 121, 107, 104];

impl ReadFault {
    /// Returns the finding for the file.
    #[must_use]
    pub fn finding(&self) -> Finding {
        match self {
            Self::Io { at, error } => {
                let mut f = Finding::error("io_error", Verdict::Unreadable, self.to_string()).at(*at);
                f.retryable = may_pass(error);
                f
            }
            Self::Shrank { now, .. } => {
                let mut f = Finding::error("file_changed", Verdict::Incomplete, self.to_string()).at(*now);
                f.retryable = true;
                f
            }
            Self::Short { at } => {
                let mut f = Finding::error("short_read", Verdict::Unreadable, self.to_string()).at(*at);
                f.retryable = true;
                f
            }
        }
    }
}

/// Whether the same read may succeed later.
#[must_use]
pub fn may_pass(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(n) => MAY_PASS.contains(&n),
        None => matches!(
            error.kind(),
            io::ErrorKind::Interrupted
                | io::ErrorKind::TimedOut
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::UnexpectedEof
        ),
    }
}

impl From<ReadFault> for Box<Finding> {
    fn from(fault: ReadFault) -> Self {
        Self::new(fault.finding())
    }
}

/// Fills `buf` from `off`, inside a file that was `len` bytes long.
///
/// # Errors
/// A fault, with its offset.
pub fn fill(src: &dyn ByteSource, len: u64, off: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
        let at = off.saturating_add(done as u64);
        match src.read_at(at, rest) {
            Ok(0) => {
                let now = src.len().map_err(|error| ReadFault::Io { at, error })?;
                return Err(if now < len {
                    ReadFault::Shrank { before: len, now }
                } else {
                    ReadFault::Short { at }
                });
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadFault::Io { at, error }),
        }
    }
    Ok(())
}

/// Reads exact ranges of one file, and caches its tail.
pub struct FileReader<'a> {
    src: &'a dyn ByteSource,
    len: u64,
    tail: Vec<u8>,
    crc: Cell<Option<u32>>,
}

impl<'a> FileReader<'a> {
    /// Gets the length and reads up to `tail` bytes at the end.
    ///
    /// # Errors
    /// A fault, with its offset.
    pub fn open(src: &'a dyn ByteSource, tail: usize) -> Result<Self, ReadFault> {
        let len = src.len().map_err(|error| ReadFault::Io { at: 0, error })?;
        let n = usize::try_from(len).unwrap_or(usize::MAX).min(tail);
        let mut bytes = vec![0; n];
        fill(src, len, len - n as u64, &mut bytes)?;
        Ok(Self {
            src,
            len,
            tail: bytes,
            crc: Cell::new((len == 0).then_some(0)),
        })
    }

    /// Returns the file's length when it was opened.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file was empty when it was opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the cached end of the file.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Returns the CRC-32 of the file, if it was read in one piece.
    #[must_use]
    pub fn crc(&self) -> Option<u32> {
        self.crc.get()
    }

    /// Returns the offset of the cached end.
    #[must_use]
    pub fn tail_at(&self) -> u64 {
        self.len - self.tail.len() as u64
    }

    /// Reads `n` bytes at `off`; bytes in the tail need no read. The caller bounds `n`.
    ///
    /// # Errors
    /// A fault; also if the range is not inside the file.
    pub fn bytes(&self, off: u64, n: usize) -> Result<Vec<u8>, ReadFault> {
        if off.checked_add(n as u64).is_none_or(|end| end > self.len) {
            return Err(ReadFault::Short { at: self.len });
        }
        if let Some(in_tail) = off.checked_sub(self.tail_at()) {
            let from = usize::try_from(in_tail).unwrap_or(usize::MAX);
            if let Some(bytes) = self.tail.get(from..from.saturating_add(n)) {
                return Ok(bytes.to_vec());
            }
        }
        let mut buf = vec![0; n];
        fill(self.src, self.len, off, &mut buf)?;
        if n as u64 == self.len {
            self.crc.set(Some(crc32fast::hash(&buf)));
        }
        Ok(buf)
    }
}
