//! The bytes that a full proof reads, and the results of reading them.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

const GAP: &str = "between entries";

/// The extents of one file to read, in order of offset and without overlap; those of a full proof cover the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReadPlan {
    pub extents: Vec<ByteExtent>,
}

impl ReadPlan {
    /// Returns the number of bytes to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents.iter().fold(0, |sum, e| sum.saturating_add(e.len))
    }

    /// Adds extents for the bytes between the named ones (headers, descriptors, directories), so that the plan reads each byte of a file
    /// of `len` bytes once. An empty plan stays empty: reading its file is pointless.
    pub(crate) fn cover(&mut self, len: u64) {
        if self.extents.is_empty() {
            return;
        }
        let mut out = Vec::with_capacity(2 * self.extents.len() + 1);
        let mut at = 0;
        for e in self.extents.drain(..) {
            if e.off > at {
                out.push(ByteExtent::gap(at, e.off - at));
            }
            at = at.max(e.off.saturating_add(e.len));
            out.push(e);
        }
        if at < len {
            out.push(ByteExtent::gap(at, len - at));
        }
        self.extents = out;
    }

    /// A plan for a whole file without named parts.
    pub(crate) fn unnamed(len: u64) -> Self {
        Self {
            extents: vec![ByteExtent::gap(0, len)],
        }
    }

    pub(crate) fn covers(&self, len: u64) -> bool {
        let end = self
            .extents
            .iter()
            .try_fold(0, |at, e| (e.off == at).then(|| at.saturating_add(e.len)));
        end == Some(len)
    }
}

/// A range of bytes that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteExtent {
    /// First byte in the file.
    pub off: u64,
    pub len: u64,
    /// The expected CRC-32, if the file has one.
    pub crc: Option<u32>,
    /// The element type, if it is a tensor's storage in native byte order.
    pub dtype: Option<Dtype>,
    /// Its name in the file.
    pub what: String,
}

impl ByteExtent {
    fn gap(off: u64, len: u64) -> Self {
        Self {
            off,
            len,
            crc: None,
            dtype: None,
            what: GAP.to_owned(),
        }
    }

    /// Whether it covers bytes between entries, which were checked with the structure.
    #[must_use]
    pub fn is_gap(&self) -> bool {
        self.crc.is_none() && self.dtype.is_none() && self.what == GAP
    }
}

/// Result of reading one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExtentResult {
    pub crc: u32,
    /// Whether every byte was zero (false for an empty extent).
    pub all_zero: bool,
    pub non_finite: u64,
    /// Number of all-zero blocks of 4096 bytes, aligned in the file.
    pub zero_blocks: u64,
    /// File offset of the first such block.
    pub first_zero: Option<u64>,
}
