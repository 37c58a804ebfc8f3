//! Limits on the work that untrusted bytes can cause.
//!
//! A file beyond a limit is not damaged: it gets the verdict `Unknown` and the finding `limit_reached`, which names the limit. The
//! defaults are ten times the largest shards seen.

/// Limits for inspecting one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectLimits {
    /// Entries in a zip archive.
    pub entries: u64,
    /// Bytes of a zip's central directory.
    pub directory_bytes: u64,
    /// Reads for local zip headers; the rest is derived from the directory.
    pub header_reads: u32,
    pub pickle_bytes: u64,
    pub pickle_opcodes: u64,
    /// Bytes of memory that the inspection of a file may take: its pickle, the values in it, and their lists (`proof.memory`).
    pub memory: usize,
    /// The part of `memory` that is taken before the pickle is read.
    pub held: usize,
    /// Whether an unknown name in a pickle is left to the operator instead of making the file unsafe.
    pub asks: bool,
    /// Values visited when tensors are listed.
    pub walk_values: u64,
    /// Nesting followed when tensors are listed.
    pub walk_depth: u32,
    /// Tensors listed in an inventory; further ones are only counted.
    pub tensors: usize,
    pub json_bytes: u64,
    pub header_bytes: u64,
    /// Findings kept for one file.
    pub findings: usize,
    /// Bytes of a proof record.
    pub record_bytes: usize,
    /// Bytes that the files of a record may take in memory.
    pub record_memory: usize,
    /// Whether to inspect all parts of a `.distcp` file, however many, which a full proof needs.
    pub all_parts: bool,
    /// Otherwise, inspect this many, spread evenly; a file with more cannot be fully proven.
    pub parts: usize,
    /// Corners compared when the chunks of one tensor are checked: chunks times two to the power of the split dimensions.
    pub corners: usize,
}

/// Default memory limit in bytes.
pub const MEMORY: usize = 256 << 20;

impl Default for InspectLimits {
    fn default() -> Self {
        Self {
            entries: 524_288,
            directory_bytes: 64 << 20,
            header_reads: 4096,
            pickle_bytes: 128 << 20,
            pickle_opcodes: 64_000_000,
            memory: MEMORY,
            held: 0,
            asks: false,
            walk_values: 64_000_000,
            walk_depth: 64,
            tensors: 524_288,
            json_bytes: 128 << 20,
            header_bytes: 100_000_000,
            findings: 64,
            record_bytes: 256 << 20,
            record_memory: 1 << 30,
            parts: 4096,
            all_parts: true,
            corners: 2 << 20,
        }
    }
}
