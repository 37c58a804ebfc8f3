//! Finding codes that only AReaL has, with the meaning of each.

/// In alphabetical order.
pub(super) const CODES: [(&str, &str); 11] = [
    (
        "ahead",
        "AReaL: the weights are newer than the counters and the place in the data beside them: a save was cut short between the two",
    ),
    (
        "background_save",
        "AReaL with Megatron saving in the background: what describes the save is there before its data",
    ),
    (
        "data_behind",
        "AReaL: the place in the data is older than the step, so batches may come again",
    ),
    (
        "frequency_stored",
        "AReaL would save, export or evaluate as often as it did when it saved, not as the configuration says: changed before a launch",
    ),
    (
        "generations",
        "AReaL: proven saves are copied, for the trainer overwrites its only checkpoint",
    ),
    (
        "info_of_two_saves",
        "AReaL: the files of `recover_info` are of two saves",
    ),
    (
        "pointer_damaged",
        "AReaL's pointer to the newest of its own generations names none: it would end before any work",
    ),
    (
        "pointer_dangling",
        "AReaL's pointer names a generation that is not there: it would end before any work",
    ),
    (
        "pointer_engines",
        "AReaL's pointer names other engines than its generation or this run has: it would end before any work",
    ),
    (
        "shard_after_metadata",
        "AReaL: a later save began to write over this one and was cut short",
    ),
    ("unprotected", "AReaL: no copy of the only checkpoint is kept"),
];
