//! Pins: what tells that nobody touched a file.

use supervise_core::checkpoint::{EntryKind, FileFact, PinsHash};
use supervise_core::id::fnv64;

/// A hash over what a file system says of every file of a step: equal means that nobody touched one.
///
/// The order of the facts does not matter; paths count relative to the step, so that a moved step keeps its hash.
pub fn pins<'a>(files: impl Iterator<Item = (&'a str, &'a FileFact)>) -> PinsHash {
    let mut sum = 0_u64;
    let mut bytes = Vec::with_capacity(256);
    for (path, fact) in files {
        if matches!(fact.kind, EntryKind::Gone | EntryKind::Dir) {
            continue;
        }
        bytes.clear();
        for number in [fact.dev, fact.ino, fact.size, fact.mtime as u64, fact.ctime as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(path.as_bytes());
        sum = sum.wrapping_add(mix(fnv64(&bytes)));
    }
    PinsHash(sum)
}

/// Spreads the bits of one file's hash, so that sums of similar hashes do not meet.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
