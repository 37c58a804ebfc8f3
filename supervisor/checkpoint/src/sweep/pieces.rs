//! Cuts a plan into pieces that threads read independently, and joins their results.
//!
//! A piece is a run of extents, or a part of a long one. Boundaries inside an extent are at multiples of [`PIECE`] in the file, so no
//! file system block and no number of a tensor is split: the results equal those of a single pass, whichever thread reads which piece.

use super::{SweepOptions, kernels};
use crate::plan::{ByteExtent, ExtentResult, ReadPlan};
use std::ops::Range;

/// Approximate bytes of a piece.
pub(super) const PIECE: u64 = 8 << 20;

/// A part of a plan: from the byte `from` of the first extent to the byte `to` of the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SweepPiece {
    pub(super) extents: Range<usize>,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl SweepPiece {
    /// The part of an extent that belongs to this piece, as a range of the file.
    pub(super) fn part(&self, n: usize, e: &ByteExtent) -> Range<u64> {
        let end = e.off.saturating_add(e.len);
        let from = if n == self.extents.start { self.from } else { e.off };
        let to = if n + 1 == self.extents.end { self.to } else { end };
        from..to
    }
}

pub(super) fn cut(plan: &ReadPlan, options: SweepOptions) -> Vec<SweepPiece> {
    let mut out = Vec::new();
    let mut first = 0;
    let mut from = plan.extents.first().map_or(0, |e| e.off);
    for (n, e) in plan.extents.iter().enumerate() {
        let end = e.off.saturating_add(e.len);
        if first < n && end.saturating_sub(from) > PIECE && e.off.saturating_sub(from) >= PIECE / 2 {
            out.push(SweepPiece {
                extents: first..n,
                from,
                to: plan.extents[n - 1].off.saturating_add(plan.extents[n - 1].len),
            });
            (first, from) = (n, e.off);
        }
        while divisible(e, options) {
            let border = (from.max(e.off) / PIECE + 1).saturating_mul(PIECE);
            if border >= end {
                break;
            }
            out.push(SweepPiece {
                extents: first..n + 1,
                from,
                to: border,
            });
            (first, from) = (n, border);
        }
    }
    if let Some(last) = plan.extents.last() {
        out.push(SweepPiece {
            extents: first..plan.extents.len(),
            from,
            to: last.off.saturating_add(last.len),
        });
    }
    out
}

/// Whether a boundary at a multiple of [`PIECE`] falls between two numbers of the extent.
fn divisible(e: &ByteExtent, options: SweepOptions) -> bool {
    let width = e.dtype.filter(|_| options.finite).and_then(kernels::width);
    width.is_none_or(|w| e.off.is_multiple_of(w))
}

/// Result of reading one part, with the length of the part.
pub(super) type PartResult = (ExtentResult, u64);

/// Joins the parts of the pieces, in order, into one result per extent.
pub(super) fn join(extents: usize, pieces: &[SweepPiece], parts: Vec<Vec<PartResult>>) -> Vec<ExtentResult> {
    let mut out: Vec<Option<ExtentResult>> = vec![None; extents];
    for (piece, parts) in pieces.iter().zip(parts) {
        for (n, (part, len)) in piece.extents.clone().zip(parts) {
            let Some(slot) = out.get_mut(n) else {
                continue;
            };
            *slot = Some(match slot.take() {
                None => part,
                Some(before) => follow(before, part, len),
            });
        }
    }
    out.into_iter().map(Option::unwrap_or_default).collect()
}

/// Combines the results of two adjacent parts, the second `len` bytes long.
fn follow(a: ExtentResult, b: ExtentResult, len: u64) -> ExtentResult {
    ExtentResult {
        crc: combine(a.crc, b.crc, len),
        all_zero: a.all_zero && b.all_zero,
        non_finite: a.non_finite.saturating_add(b.non_finite),
        zero_blocks: a.zero_blocks.saturating_add(b.zero_blocks),
        first_zero: a.first_zero.or(b.first_zero),
    }
}

/// The CRC-32 of bytes with CRC-32 `a`, followed by `len` bytes with CRC-32 `b`.
pub(crate) fn combine(a: u32, b: u32, len: u64) -> u32 {
    let mut sum = crc32fast::Hasher::new_with_initial(a);
    sum.combine(&crc32fast::Hasher::new_with_initial_len(b, len));
    sum.finalize()
}
