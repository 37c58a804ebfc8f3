//! A file in memory that notes how it is read.

use std::cell::Cell;
use std::io;
use supervise_checkpoint::ByteSource;

/// Reads of one file that are still reasonable: all limits are tight here.
const CALLS: u64 = 200_000;

/// Bytes that note what is asked of them.
pub(crate) struct Watched<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
    calls: Cell<u64>,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            read: Cell::new(0),
            calls: Cell::new(0),
        }
    }

    /// Bytes read since the last call.
    pub(crate) fn take_read(&self) -> u64 {
        self.calls.set(0);
        self.read.take()
    }
}

impl ByteSource for Watched<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = off.checked_add(buf.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.bytes.len() as u64),
            "{} bytes at {off} of a file of {}",
            buf.len(),
            self.bytes.len()
        );
        self.read.set(self.read.get() + buf.len() as u64);
        self.calls.set(self.calls.get() + 1);
        assert!(self.calls.get() <= CALLS, "too many reads");
        self.bytes.read_at(off, buf)
    }
}
