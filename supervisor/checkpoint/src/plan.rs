//! Bytes that a full proof has to read, and what reading gave.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// Name of a gap extent.
const GAP: &str = "between entries";

/// The extents of one file to read, in order of offset and without overlap; those of a full proof cover the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReadPlan {
    /// The extents.
    pub extents: Vec<ByteExtent>,
}

impl ReadPlan {
    /// Bytes to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents.iter().fold(0, |sum, e| sum.saturating_add(e.len))
    }

    /// Adds extents for the bytes between those that are named (headers, descriptors, directories), so that reading the
    /// plan reads each byte of a file of `len` bytes once. A plan that names nothing stays so: its file is no use reading.
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

    /// All of a file in which nothing is named.
    pub(crate) fn unnamed(len: u64) -> Self {
        Self {
            extents: vec![ByteExtent::gap(0, len)],
        }
    }

    /// Returns true if the extents are a file of `len` bytes, one after the other.
    pub(crate) fn covers(&self, len: u64) -> bool {
        let end = self
            .extents
            .iter()
            .try_fold(0, |at, e| (e.off == at).then(|| at.saturating_add(e.len)));
        end == Some(len)
    }
}

/// A run of bytes that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteExtent {
    /// Place where it begins.
    pub off: u64,
    /// How long it is.
    pub len: u64,
    /// The CRC-32 it should have, where the file says.
    pub crc: Option<u32>,
    /// The type of its elements, where it is a tensor's storage in native byte order.
    pub dtype: Option<Dtype>,
    /// Its kind, as the file names it.
    pub what: String,
}

impl ByteExtent {
    /// Bytes that belong to no entry or tensor.
    fn gap(off: u64, len: u64) -> Self {
        Self {
            off,
            len,
            crc: None,
            dtype: None,
            what: GAP.to_owned(),
        }
    }

    /// Returns true if it stands for bytes between entries: their meaning was looked at with the structure.
    #[must_use]
    pub fn is_gap(&self) -> bool {
        self.crc.is_none() && self.dtype.is_none() && self.what == GAP
    }
}

/// Result of reading one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExtentResult {
    /// The CRC-32 of the bytes read.
    pub crc: u32,
    /// Every byte was zero (false for an empty extent).
    pub all_zero: bool,
    /// Elements that are infinite or not a number.
    pub non_finite: u64,
    /// Whole blocks of 4096 bytes (aligned in the file) that held only zeros.
    pub zero_blocks: u64,
    /// Place where the first such block begins in the file.
    pub first_zero: Option<u64>,
}
