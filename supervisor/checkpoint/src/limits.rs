//! Bounds on what untrusted bytes may make us do.
//!
//! A file beyond a limit is not damaged: it gets the verdict `Unknown` and the finding `limit_reached`, which names the
//! limit. The defaults leave an order of magnitude above the largest shards seen.

/// Cost of inspecting one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectLimits {
    /// Entries in a zip archive.
    pub entries: u64,
    /// Bytes of a zip's central directory.
    pub directory_bytes: u64,
    /// Reads spent on the local headers of a zip; the rest is derived from the directory.
    pub header_reads: u32,
    /// Bytes of a pickle.
    pub pickle_bytes: u64,
    /// Opcodes of a pickle.
    pub pickle_opcodes: u64,
    /// Bytes of memory that a file may take while it is looked at: its pickle, the values in it, what is listed of them
    /// (`proof.memory`).
    pub memory: usize,
    /// Of those, what is taken before the pickle is read.
    pub held: usize,
    /// A name in a pickle that nobody knows is left to a question, and does not make the file unsafe by itself.
    pub asks: bool,
    /// Values visited when tensors are listed, and how deep.
    pub walk_values: u64,
    /// Nesting followed when tensors are listed.
    pub walk_depth: u32,
    /// Tensors listed in an inventory; further ones are counted only.
    pub tensors: usize,
    /// Bytes of a JSON file.
    pub json_bytes: u64,
    /// Bytes of a safetensors header.
    pub header_bytes: u64,
    /// Findings kept for one file.
    pub findings: usize,
    /// Bytes of the record of a proof.
    pub record_bytes: usize,
    /// Bytes that the files of a record may take in memory.
    pub record_memory: usize,
    /// All parts of a `.distcp` file are looked into, however many: what a full proof needs.
    pub all_parts: bool,
    /// Otherwise as many are looked into, spread evenly; where there are more, a full proof is not to be had.
    pub parts: usize,
    /// Corners compared when the chunks of one tensor are checked: chunks times two to the power of the split dimensions.
    pub corners: usize,
}

/// Bytes of memory, where nothing else is set.
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
