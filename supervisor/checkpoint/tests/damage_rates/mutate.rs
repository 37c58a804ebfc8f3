//! Events that can happen to a file.

use crate::random::Random;
use std::ops::Range;

/// A block of a file system.
pub(crate) const BLOCK: usize = 4096;

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    BitFlip,
    ByteSet,
    Burst,
    ZeroBlocks,
    ZeroHead,
    ZeroTail,
    Overwritten,
    SwappedRanges,
    Truncated,
    TruncatedAtBlock,
    ExtendedByZeros,
    Extended,
    Duplicated,
    Removed,
    OtherRank,
    OtherStep,
}

use Kind::*;

pub(crate) const KINDS: [Kind; 16] = [
    BitFlip,
    ByteSet,
    Burst,
    ZeroBlocks,
    ZeroHead,
    ZeroTail,
    Overwritten,
    SwappedRanges,
    Truncated,
    TruncatedAtBlock,
    ExtendedByZeros,
    Extended,
    Duplicated,
    Removed,
    OtherRank,
    OtherStep,
];

impl Kind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            BitFlip => "one bit flipped",
            ByteSet => "one byte changed",
            Burst => "2 to 64 bytes of noise",
            ZeroBlocks => "1 to 4 aligned 4 KiB blocks zeroed",
            ZeroHead => "zeros from the start",
            ZeroTail => "zeros to the end",
            Overwritten => "a range overwritten with another of the file",
            SwappedRanges => "two ranges swapped",
            Truncated => "cut",
            TruncatedAtBlock => "cut at a block",
            ExtendedByZeros => "zeros appended",
            Extended => "bytes appended",
            Duplicated => "a range written twice",
            Removed => "a range left out",
            OtherRank => "the file of another rank",
            OtherStep => "the same file of another step",
        }
    }

    /// The size stays, so that only the bytes tell.
    pub(crate) fn keeps_size(self) -> bool {
        matches!(
            self,
            BitFlip | ByteSet | Burst | ZeroBlocks | ZeroHead | ZeroTail | Overwritten | SwappedRanges
        )
    }
}

/// Files that could be put in this one's place by mistake.
#[derive(Default)]
pub(crate) struct Others<'a> {
    pub(crate) ranks: Vec<&'a [u8]>,
    pub(crate) steps: Vec<&'a [u8]>,
}

/// Changes a file; `near` is where it should happen, if the kind has a place. None where nothing would change.
pub(crate) fn mutate(
    kind: Kind,
    bytes: &[u8],
    near: &Range<usize>,
    others: &Others<'_>,
    r: &mut Random,
) -> Option<Vec<u8>> {
    let len = bytes.len();
    let mut out = bytes.to_vec();
    let at = near.start + r.below(near.len());
    let span = (1 + r.below(300)).min(len - at.min(len));
    match kind {
        BitFlip => out[at] ^= 1 << r.below(8),
        ByteSet => out[at] = r.next() as u8,
        Burst => {
            let n = 2 + r.below(63);
            let noise = r.bytes(n);
            let n = n.min(len - at);
            out[at..at + n].copy_from_slice(&noise[..n]);
        }
        ZeroBlocks => {
            let from = at - at % BLOCK;
            let to = (from + BLOCK * (1 + r.below(4))).min(len);
            out[from..to].fill(0);
        }
        ZeroHead => out[..at.max(1)].fill(0),
        ZeroTail => out[at..].fill(0),
        Overwritten => out.copy_within(at..at + span, r.below(len - span + 1)),
        SwappedRanges => {
            let (a, b) = (at.min(len - span), r.below(len - span + 1));
            if a.abs_diff(b) < span {
                return None;
            }
            let (a, b) = (a.min(b), a.max(b));
            let (left, right) = out.split_at_mut(b);
            left[a..a + span].swap_with_slice(&mut right[..span]);
        }
        Truncated => out.truncate(at),
        TruncatedAtBlock => out.truncate(at - at % BLOCK),
        ExtendedByZeros => out.resize(len + 1 + r.below(2 * BLOCK), 0),
        Extended => {
            let n = 1 + r.below(500);
            out.extend(r.bytes(n));
        }
        Duplicated => {
            let twice = out[at..at + span].to_vec();
            out.splice(at..at, twice);
        }
        Removed => drop(out.drain(at..at + span)),
        OtherRank => out = choose(&others.ranks, r)?,
        OtherStep => out = choose(&others.steps, r)?,
    }
    (out != bytes).then_some(out)
}

fn choose(from: &[&[u8]], r: &mut Random) -> Option<Vec<u8>> {
    (!from.is_empty()).then(|| r.pick(from).to_vec())
}
