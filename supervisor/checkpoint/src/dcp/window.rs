//! A part of a file, read like a file of its own.
//!
//! There are many parts, mostly small, and their neighbours are inspected next. So each read also fetches what follows and keeps it: a
//! small part costs a fraction of a read, a large one the read of its end and of the next one's head.

use crate::source::{ByteSource, fill};
use std::cell::RefCell;
use std::io;

/// Parts up to this size are fetched as a whole, together with what follows.
pub(super) const SMALL: u64 = 64 << 10;
/// Bytes to fetch at once for small parts, and around the ends of large ones.
const RUN: usize = 256 << 10;
const EDGE: usize = 8 << 10;

pub(super) struct ReadAhead<'s> {
    src: &'s dyn ByteSource,
    len: u64,
    held: RefCell<[ReadAheadBlock; 2]>,
}

#[derive(Default)]
struct ReadAheadBlock {
    at: u64,
    bytes: Vec<u8>,
}

impl ReadAheadBlock {
    fn copy(&self, off: u64, buf: &mut [u8]) -> bool {
        let from = off.checked_sub(self.at).and_then(|n| usize::try_from(n).ok());
        let Some(from) = from.filter(|f| *f < self.bytes.len()) else {
            return false;
        };
        match self.bytes.get(from..from.saturating_add(buf.len())) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return false,
        }
        true
    }
}

impl<'s> ReadAhead<'s> {
    pub(super) fn new(src: &'s dyn ByteSource, len: u64) -> Self {
        Self {
            src,
            len,
            held: RefCell::default(),
        }
    }

    /// Reads at an offset of the file; for a small part, fetches as much as is worthwhile.
    fn read(&self, off: u64, buf: &mut [u8], small: bool) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut held = self.held.borrow_mut();
        if held.iter().any(|h| h.copy(off, buf)) {
            return Ok(buf.len());
        }
        let ahead = if small { RUN } else { EDGE };
        let left = usize::try_from(self.len.saturating_sub(off)).unwrap_or(usize::MAX);
        if buf.len() < ahead && buf.len() <= left {
            held.swap(0, 1);
            let [first, _] = &mut *held;
            first.at = off;
            first.bytes.clear();
            first.bytes.resize(ahead.min(left), 0);
            if fill(self.src, self.len, off, &mut first.bytes).is_ok() && first.copy(off, buf) {
                return Ok(buf.len());
            }
            // The failure may be beyond the requested bytes.
            first.bytes.clear();
        }
        self.src.read_at(off, buf)
    }
}

pub(super) struct PartWindow<'a> {
    ahead: &'a ReadAhead<'a>,
    base: u64,
    len: u64,
}

impl<'a> PartWindow<'a> {
    /// A window of `len` bytes at `base`, inside the file.
    pub(super) fn new(ahead: &'a ReadAhead<'a>, base: u64, len: u64) -> Self {
        Self { ahead, base, len }
    }
}

impl ByteSource for PartWindow<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.ahead.src.len()?.saturating_sub(self.base).min(self.len))
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(off);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let place = self.base.saturating_add(off);
        self.ahead.read(place, &mut buf[..n], self.len <= SMALL)
    }
}
