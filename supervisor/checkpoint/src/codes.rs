//! The finding codes and their meanings. Codes are stable: scripts may match on them.

/// Every code this crate reports, with its meaning, in alphabetical order.
pub const CODES: &[(&str, &str)] = &[
    (
        "all_zero",
        "data without a checksum holds only zeros: perhaps its blocks were never written",
    ),
    (
        "all_zero_weights",
        "all tensors of the file hold only zeros, as their checksums say",
    ),
    (
        "bad_persistent_id",
        "data.pkl refers to storages in a way torch cannot follow",
    ),
    (
        "config_missing",
        "weights lie beside files of Hugging Face, but without config.json",
    ),
    ("crc_mismatch", "bytes do not fit their checksum"),
    (
        "crc_not_written",
        "the archive was written without checksums: no byte of it is protected",
    ),
    ("dcp_empty", "`.metadata` names no files: nothing was saved"),
    (
        "dcp_metadata",
        "`.metadata` is no table that torch.distributed.checkpoint writes",
    ),
    (
        "dcp_metadata_missing",
        "`.metadata`, which is written last, is not there: the save broke off",
    ),
    (
        "dcp_names",
        "the names of values do not fit the ways through the nested dict that `.metadata` keeps for them",
    ),
    ("dcp_path", "`.metadata` names a file outside its directory"),
    (
        "dcp_places",
        "the chunks of a tensor and the places for them do not fit each other",
    ),
    (
        "dcp_ranges",
        "ranges of one file overlap, or are too short for what they hold",
    ),
    (
        "dcp_rank_metadata",
        "each rank kept a table of its own: whether they fit together is not looked at",
    ),
    ("dcp_tiling", "the chunks of a tensor do not make up the tensor"),
    ("dcp_unfinished", "a later save into the same directory did not end"),
    ("dcp_unknown", "`.metadata` describes something of an unknown kind"),
    ("dist_backend", "another writer than torch_dist wrote the directory"),
    (
        "dist_common_missing",
        "neither common.pt nor the object that newer versions of Megatron write in its place is there",
    ),
    (
        "dist_metadata_missing",
        "metadata.json, which Megatron writes last, is not there: the save broke off",
    ),
    (
        "distcp_alone",
        "a `.distcp` file was looked at without the `.metadata` that describes it",
    ),
    (
        "distcp_content",
        "a part holds another tensor than `.metadata` says: another save wrote it",
    ),
    (
        "distcp_encoded",
        "parts are compressed or encrypted and cannot be looked into",
    ),
    ("distcp_gap", "the file holds bytes that belong to no part"),
    ("distcp_missing", "a file that `.metadata` names is not there"),
    ("distcp_sampled", "not all parts of the file were looked into (limit)"),
    (
        "distcp_trailing",
        "bytes follow the last part of a file: it was written for another .metadata",
    ),
    ("distcp_truncated", "the file is shorter than `.metadata` says"),
    (
        "distcp_unreferenced",
        "`.metadata` does not name the file: it is left over from an earlier save",
    ),
    ("empty_file", "the file is empty"),
    ("file_changed", "the file became shorter while it was read"),
    (
        "headers_not_read",
        "some local headers of the archive were not looked at (limit)",
    ),
    (
        "index_tensor_missing",
        "a file lacks tensors that the index names for it",
    ),
    ("integrity", "Megatron's list of digests is of a kind that is not known"),
    (
        "integrity_file_missing",
        "a file that Megatron's list of digests names is not there",
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
    (
        "loader_state",
        "the state of a dataloader lacks a key, or says what cannot be",
    ),
    (
        "loaders_differ",
        "the dataloaders of two processes have given out different numbers of batches",
    ),
    ("manifest_format", "the manifest names a format that is not known"),
    ("manifest_path", "the manifest names a path outside its directory"),
    ("manifest_version", "the manifest has a version that is not known"),
    (
        "mixed_steps",
        "files of one optimizer have taken different numbers of steps: they come from two saves",
    ),
    ("more_findings", "further findings are not shown"),
    ("no_data_pkl", "the archive has no data.pkl: the save broke off"),
    ("non_finite", "tensors hold infinite numbers, or what is no number"),
    (
        "not_a_file",
        "a load opens a file here and would find a directory, a FIFO or a socket",
    ),
    (
        "not_a_zip",
        "a file that torch.save should have written does not begin like one",
    ),
    ("not_what_was_proven", "another or older file is where a proven one was"),
    ("pickle_broken", "data.pkl is no complete pickle"),
    ("pickle_trailing", "bytes follow the end of data.pkl's stream"),
    ("reading_unfinished", "a full reading ended early and does not count"),
    crate::set::recover::MISSING,
    ("rewritten", "the file was written anew since it was last proven"),
    (
        "rng_state",
        "the state of a random number generator has a form that its owner does not load",
    ),
    ("rot", "the bytes of a file changed while its size and time did not"),
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
        "steps_differ",
        "parameters of one optimizer have taken different numbers of steps",
    ),
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
        "torch_header",
        "version, byteorder or .storage_alignment of an archive is missing or none that torch reads",
    ),
    (
        "torchscript",
        "the archive holds compiled code, which no checkpoint does",
    ),
    (
        "torn_write",
        "the end of the file holds zeros: its blocks were never written",
    ),
    (
        "transfer_queue_units",
        "the units of a saved transfer queue are not listed as TransferQueue lists them",
    ),
    (
        "unfamiliar_global",
        "loading names or calls what no known trainer writes",
    ),
    (
        "unknown_device",
        "a storage was saved on a device that torch does not know by this name",
    ),
    ("unknown_storage", "a storage has an unknown class"),
    (
        "unknown_table_class",
        "`.metadata` names a class or an attribute that no known version of torch or Megatron writes",
    ),
    (
        "unsafe_call",
        "loading would run something that needs no dangerous name",
    ),
    (
        "unsafe_global",
        "loading would import or call a name on the danger list",
    ),
    (
        "weights_in_pieces",
        "weights are pieces that torch's distributed writer did not join yet",
    ),
    ("weights_index_missing", "weights in several files have no index"),
    ("weights_missing", "a file of the weights is not there"),
    (
        "zero_blocks",
        "there are blocks of zeros in data without a checksum: perhaps they were never written",
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
    ("zip_strangers", "entries are outside the folder of the archive"),
    ("zip_trailing_bytes", "bytes follow the end of the archive"),
    ("zip_truncated", "the archive has no end: the save was cut off"),
];

/// Returns the meaning of a code.
#[must_use]
pub fn meaning(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(c, _)| *c == code).map(|(_, meaning)| *meaning)
}
