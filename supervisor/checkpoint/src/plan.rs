//! What a full proof has to read, and what reading gave.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// The extents of one file to read, in order of offset and without overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReadPlan {
    /// The extents.
    pub extents: Vec<Extent>,
}

impl ReadPlan {
    /// Bytes to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents.iter().fold(0, |sum, e| sum.saturating_add(e.len))
    }
}

/// A run of bytes that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins.
    pub off: u64,
    /// How long it is.
    pub len: u64,
    /// The CRC-32 it should have, where the file says.
    pub crc: Option<u32>,
    /// The type of its elements, where it is a tensor's storage in native byte order.
    pub dtype: Option<Dtype>,
    /// What it is, as the file names it.
    pub what: String,
}

/// What reading one extent gave.
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
    /// Where the first such block begins in the file.
    pub first_zero: Option<u64>,
}
