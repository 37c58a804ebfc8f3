//! One reader: a buffer that stays in the processor's cache, and everything computed over it.

use super::kernels::{self, NonFiniteCounter};
use super::pieces::{PartResult, SweepPiece};
use super::{CHUNK, SweepError, SweepOptions};
use crate::plan::{ExtentResult, ReadPlan};
use crate::source::{ByteSource, ReadFault, fill};

/// The unit in which file systems lose writes, in bytes.
const BLOCK: u64 = 4096;

pub(super) struct SweepReader {
    buffer: Vec<u8>,
    options: SweepOptions,
}

impl SweepReader {
    pub(super) fn new(options: SweepOptions) -> Self {
        Self {
            buffer: Vec::new(),
            options,
        }
    }

    /// Reads one piece; `read` is called with the bytes of each chunk and may stop it.
    pub(super) fn piece(
        &mut self,
        src: &dyn ByteSource,
        plan: &ReadPlan,
        piece: &SweepPiece,
        read: &mut dyn FnMut(u64) -> Result<(), SweepError>,
    ) -> Result<Vec<PartResult>, SweepError> {
        let len = src.len().map_err(|error| ReadFault::Io { at: 0, error })?;
        if piece.to > len {
            return Err(ReadFault::Shrank {
                before: piece.to,
                now: len,
            }
            .into());
        }
        let extents = plan.extents.get(piece.extents.clone()).unwrap_or_default();
        let mut parts = Vec::with_capacity(extents.len());
        let mut held = BufferedRange { at: 0, len: 0 };
        for (n, e) in piece.extents.clone().zip(extents) {
            let range = piece.part(n, e);
            let mut sums = Sums::new(e.dtype, range.end.saturating_sub(range.start), self.options);
            let mut at = range.start;
            while at < range.end {
                if !(held.at..held.at + held.len as u64).contains(&at) {
                    held = self.chunk(src, len, at, piece.to)?;
                    read(held.len as u64)?;
                }
                let from = (at - held.at) as usize;
                let to = usize::try_from(range.end - held.at).unwrap_or(usize::MAX).min(held.len);
                let bytes = self.buffer.get(from..to).unwrap_or_default();
                sums.feed(bytes, at);
                at += bytes.len() as u64;
            }
            parts.push((sums.result(), range.end.saturating_sub(range.start)));
        }
        Ok(parts)
    }

    /// Reads from `at` to the next multiple of a chunk or the end of the piece.
    fn chunk(&mut self, src: &dyn ByteSource, len: u64, at: u64, end: u64) -> Result<BufferedRange, SweepError> {
        let n = (CHUNK as u64 - at % CHUNK as u64).min(end - at) as usize;
        if self.buffer.len() < n {
            self.buffer.resize(n, 0);
        }
        let room = self.buffer.get_mut(..n).unwrap_or_default();
        fill(src, len, at, room)?;
        Ok(BufferedRange { at, len: n })
    }
}

struct BufferedRange {
    at: u64,
    len: usize,
}

struct Sums {
    crc: crc32fast::Hasher,
    finite: Option<NonFiniteCounter>,
    zeros: Option<Zeros>,
}

impl Sums {
    fn new(dtype: Option<crate::dtype::Dtype>, len: u64, options: SweepOptions) -> Self {
        Self {
            crc: crc32fast::Hasher::new(),
            finite: dtype.filter(|_| options.finite).and_then(NonFiniteCounter::new),
            zeros: options.zero.then_some(Zeros {
                all: len > 0,
                blocks: 0,
                first: None,
            }),
        }
    }

    fn feed(&mut self, bytes: &[u8], at: u64) {
        self.crc.update(bytes);
        if let Some(f) = &mut self.finite {
            f.feed(bytes);
        }
        if let Some(z) = &mut self.zeros {
            z.feed(bytes, at);
        }
    }

    fn result(self) -> ExtentResult {
        let zeros = self.zeros.unwrap_or_default();
        ExtentResult {
            crc: self.crc.finalize(),
            all_zero: zeros.all,
            non_finite: self.finite.map_or(0, |f| f.count()),
            zero_blocks: zeros.blocks,
            first_zero: zeros.first,
        }
    }
}

/// Checks the beginning of each block first: nonzero blocks usually show it there, so the bytes are not read twice.
#[derive(Default)]
struct Zeros {
    all: bool,
    blocks: u64,
    first: Option<u64>,
}

impl Zeros {
    fn feed(&mut self, bytes: &[u8], at: u64) {
        let head = ((BLOCK - at % BLOCK) % BLOCK).min(bytes.len() as u64) as usize;
        let (ragged, rest) = bytes.split_at(head);
        self.all = self.all && kernels::is_zero(ragged);
        let mut place = at + head as u64;
        for block in rest.chunks(BLOCK as usize) {
            let whole = block.len() as u64 == BLOCK;
            // A partial block at the end counts for `all` only.
            if whole || self.all {
                let zero = kernels::is_zero(block);
                self.all = self.all && zero;
                if zero && whole {
                    self.blocks += 1;
                    self.first.get_or_insert(place);
                }
            }
            place += block.len() as u64;
        }
    }
}
