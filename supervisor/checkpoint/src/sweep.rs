//! The second call of a proof: reading what the plan names, once, in order.
//!
//! Pure kernels over a [`Source`]: chunks of 512 KiB, a CRC, and on request counts of zero blocks and of numbers that are
//! not finite. After each chunk the caller is told and may stop; throttling is the caller's pause in that call.

mod kernels;

use crate::plan::{Extent, ExtentResult, ReadPlan};
use crate::source::{ReadFault, Source, fill};
use kernels::Finite;
use std::ops::ControlFlow;
use supervise_core::checkpoint::Finding;

/// Bytes of one read.
pub const CHUNK: usize = 512 << 10;
/// The unit in which file systems lose writes.
const BLOCK: u64 = 4096;

/// What is looked for beside checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// Count blocks of zeros.
    pub zero: bool,
    /// Count numbers that are infinite or not a number.
    pub finite: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            zero: true,
            finite: true,
        }
    }
}

/// How far a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes the plan names.
    pub of: u64,
}

/// Why a sweep gave no results.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The caller asked for it.
    #[error("the reading was called off")]
    Cancelled,
    /// The bytes could not be had.
    #[error(transparent)]
    Read(#[from] ReadFault),
}

impl SweepError {
    /// What is said about the file; nothing where the caller called it off.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        match self {
            Self::Cancelled => None,
            Self::Read(fault) => Some(fault.finding()),
        }
    }
}

/// Reads the plan's extents, which are in order of offset.
///
/// # Errors
/// Where the caller called it off or the bytes could not be had.
pub fn sweep(
    src: &dyn Source,
    plan: &ReadPlan,
    options: SweepOptions,
    tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<ExtentResult>, SweepError> {
    let len = src.len().map_err(|error| ReadFault::Io { at: 0, error })?;
    let mut chunk = Chunk {
        src,
        len,
        at: 0,
        bytes: Vec::new(),
        done: 0,
        of: plan.bytes(),
    };
    plan.extents
        .iter()
        .map(|e| extent(&mut chunk, e, options, tell))
        .collect()
}

fn extent(
    chunk: &mut Chunk<'_>,
    e: &Extent,
    options: SweepOptions,
    tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ExtentResult, SweepError> {
    let end = e.off.saturating_add(e.len);
    if end > chunk.len {
        return Err(ReadFault::Shrank {
            before: end,
            now: chunk.len,
        }
        .into());
    }
    let mut crc = crc32fast::Hasher::new();
    let mut finite = options.finite.then_some(e.dtype).flatten().and_then(Finite::new);
    let mut zeros = Zeros {
        all: e.len > 0 && options.zero,
        blocks: 0,
        first: None,
    };
    let mut at = e.off;
    while at < end {
        let bytes = chunk.from(at, end, tell)?;
        crc.update(bytes);
        if let Some(f) = finite.as_mut() {
            f.feed(bytes);
        }
        if options.zero {
            zeros.feed(bytes, at);
        }
        at += bytes.len() as u64;
    }
    Ok(ExtentResult {
        crc: crc.finalize(),
        all_zero: zeros.all,
        non_finite: finite.map_or(0, |f| f.count()),
        zero_blocks: zeros.blocks,
        first_zero: zeros.first,
    })
}

/// The chunk at hand. Chunks begin at multiples of a block, so neighbours share them.
struct Chunk<'s> {
    src: &'s dyn Source,
    len: u64,
    at: u64,
    bytes: Vec<u8>,
    done: u64,
    of: u64,
}

impl Chunk<'_> {
    /// The bytes from `at` on, up to `end` or the end of the chunk; at least one.
    fn from(
        &mut self,
        at: u64,
        end: u64,
        tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<&[u8], SweepError> {
        let held = self.at..self.at + self.bytes.len() as u64;
        if !held.contains(&at) {
            let start = at - at % BLOCK;
            let n = (self.len - start).min(CHUNK as u64 - start % CHUNK as u64) as usize;
            // Cleared first: after a fault nothing half-read is held.
            self.bytes.clear();
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.resize(n, 0);
            fill(self.src, self.len, start, &mut bytes)?;
            self.bytes = bytes;
            self.at = start;
            self.done = self.done.saturating_add(n as u64).min(self.of);
            if tell(Progress {
                done: self.done,
                of: self.of,
            })
            .is_break()
            {
                return Err(SweepError::Cancelled);
            }
        }
        let from = (at - self.at) as usize;
        let to = usize::try_from(end - self.at)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }
}

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
            let zero = kernels::is_zero(block);
            self.all = self.all && zero;
            if zero && block.len() as u64 == BLOCK {
                self.blocks += 1;
                self.first.get_or_insert(place);
            }
            place += block.len() as u64;
        }
    }
}
