//! Codes of findings that only verl has, with what each means.

/// In alphabetical order.
pub(super) const CODES: [(&str, &str); 4] = [
    (
        "fsdp_config_not_written",
        "no fsdp_config.json, as verl 0.4.0 and older save: names and tracker tell that the save was finished",
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
];
