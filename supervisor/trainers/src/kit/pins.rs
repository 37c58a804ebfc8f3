//! Pins: hashes that show whether a file was touched.

use supervise_core::checkpoint::{EntryKind, FileFact, PinsHash};
use supervise_core::id::fnv64;

/// Hashes the file system metadata of every file of a step: equal hashes mean that no file was touched.
///
/// The order of the facts does not matter; paths are relative to the step, so that a moved step keeps its hash.
pub fn pins<'a>(files: impl Iterator<Item = (&'a str, &'a FileFact)>) -> PinsHash {
    let mut sum = PinsSum::default();
    for (path, fact) in files {
        sum.add(path, fact);
    }
    sum.hash()
}

/// The same hash, updated as files appear and disappear.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PinsSum(u64);

impl PinsSum {
    pub(crate) fn add(&mut self, path: &str, fact: &FileFact) {
        self.0 = self.0.wrapping_add(of_one(path, fact));
    }

    /// Removes what was added with the same fact.
    pub(crate) fn take(&mut self, path: &str, fact: &FileFact) {
        self.0 = self.0.wrapping_sub(of_one(path, fact));
    }

    pub(crate) fn hash(self) -> PinsHash {
        PinsHash(self.0)
    }
}

fn of_one(path: &str, fact: &FileFact) -> u64 {
    if matches!(fact.kind, EntryKind::Gone | EntryKind::Dir) {
        return 0;
    }
    let numbers = [fact.dev, fact.ino, fact.size, fact.mtime as u64, fact.ctime as u64];
    let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
    mix(fnv64(numbers.chain(path.bytes())))
}

/// Spreads the bits of one file's hash, so that sums of similar hashes do not collide.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
