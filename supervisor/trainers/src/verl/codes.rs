//! Finding codes that only verl has, with the meaning of each.

/// In alphabetical order.
pub(super) const CODES: [(&str, &str); 10] = [
    (
        "config_not_read",
        "the trainer is given a configuration that is not read here",
    ),
    (
        "data_ranks_differ",
        "the dataloader's state is of another number of data-parallel ranks than the run has",
    ),
    (
        "fsdp_config_not_written",
        "no fsdp_config.json, as verl 0.4.0 and older save: names and tracker tell that the save was finished",
    ),
    ("keep_two", "of a role that is kept once, two are kept"),
    (
        "manifest_differs",
        "the manifest says something of the checkpoint that its files or its own entries do not",
    ),
    (
        "megatron_v1_layout",
        "Megatron's first layout, which verl 0.9 does not load: supervise migrate converts it",
    ),
    (
        "mistyped_key",
        "a key that verl does not have, and that is almost one it has",
    ),
    ("overruled_by_verl", "verl itself changes what this setting says"),
    (
        "transfer_queue_of_other_step",
        "the saved transfer queue says that it is of another step",
    ),
    (
        "transfer_queue_size",
        "values that a unit of the transfer queue keeps on a disk have another size than it says",
    ),
];
