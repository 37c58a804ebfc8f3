//! The codes of findings, with what each means. They are stable: scripts may match on them.

/// Every code this crate gives, with its meaning, in alphabetical order.
pub const CODES: &[(&str, &str)] = &[
    (
        "all_zero",
        "data without a checksum holds only zeros: perhaps its blocks were never written",
    ),
    (
        "bad_persistent_id",
        "data.pkl refers to storages in a way torch cannot follow",
    ),
    ("crc_mismatch", "bytes do not fit their checksum"),
    (
        "crc_not_written",
        "the archive was written without checksums: only its structure can be proven",
    ),
    ("empty_file", "the file is empty"),
    ("file_changed", "the file became shorter while it was read"),
    (
        "headers_not_read",
        "some local headers of the archive were not looked at (limit)",
    ),
    (
        "inventory_cut",
        "not all values were looked at when tensors were listed (limit)",
    ),
    (
        "io_error",
        "the file system refused to read: nothing is known about the bytes",
    ),
    ("json_broken", "the file is no JSON"),
    ("json_content", "the JSON text does not say what it has to"),
    ("json_truncated", "the JSON text ends in the middle"),
    ("legacy_torch_file", "the file has torch's format from before 1.6"),
    ("limit_reached", "the file is larger or more involved than is looked at"),
    ("more_findings", "further findings are not shown"),
    ("no_data_pkl", "the archive has no data.pkl: the save broke off"),
    ("non_finite", "tensors hold infinite numbers, or what is no number"),
    (
        "not_a_zip",
        "a file that torch.save should have written does not begin like one",
    ),
    ("pickle_broken", "data.pkl is no complete pickle"),
    ("pickle_trailing", "bytes follow the end of data.pkl's stream"),
    ("reading_unfinished", "a full reading ended early and does not count"),
    ("safetensors_dtype", "a tensor has an unknown type"),
    (
        "safetensors_header",
        "the header of a safetensors file contradicts itself",
    ),
    (
        "safetensors_index",
        "the index names no tensors, or files outside its folder",
    ),
    ("safetensors_trailing", "bytes follow the last tensor"),
    ("safetensors_truncated", "the file is shorter than its header says"),
    ("short_read", "the file system delivers fewer bytes than it reports"),
    (
        "storage_missing",
        "tensors refer to storages that are not there: the save broke off",
    ),
    ("storage_size", "a storage has another size than its tensors ask for"),
    (
        "storage_unreferenced",
        "the archive holds storages that no tensor refers to",
    ),
    ("tensor_range", "a tensor reaches beyond its storage"),
    (
        "torchscript",
        "the archive holds compiled code, which no checkpoint does",
    ),
    (
        "torn_write",
        "the end of the file holds zeros: its blocks were never written",
    ),
    (
        "unfamiliar_global",
        "loading imports a name that torch and numpy do not write",
    ),
    ("unknown_storage", "a storage has an unknown class"),
    (
        "unsafe_call",
        "loading would run something that needs no dangerous name",
    ),
    (
        "unsafe_global",
        "loading would import or call a name on the danger list",
    ),
    (
        "zero_filled",
        "the file begins with zeros: its blocks were never written",
    ),
    (
        "zip_descriptor",
        "a data descriptor of the archive disagrees with its directory",
    ),
    ("zip_directory", "the directory of the archive contradicts itself"),
    ("zip_end_record", "the end records of the archive contradict each other"),
    (
        "zip_local_header",
        "a local header of the archive disagrees with its directory",
    ),
    (
        "zip_no_zip64",
        "the archive has no zip64 end record: another program wrote it",
    ),
    (
        "zip_not_stored",
        "an entry is compressed or encrypted, which torch does not write",
    ),
    ("zip_overlap", "entries of the archive overlap"),
    ("zip_strangers", "entries stand outside the folder of the archive"),
    ("zip_trailing_bytes", "bytes follow the end of the archive"),
    ("zip_truncated", "the archive has no end: the save was cut off"),
];

/// What a code means.
#[must_use]
pub fn meaning(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(c, _)| *c == code).map(|(_, meaning)| *meaning)
}
