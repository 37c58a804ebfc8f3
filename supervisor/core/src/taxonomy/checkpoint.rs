//! Checkpoints: what loading and saving them says.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "ckpt.tracker_torn",
        Kind::Deterministic,
        Some(Action::Relaunch),
        "Write the newest whole step into the tracker file, or pass its path; `supervise run` does so by itself.",
    )
    .lines(&[
        line("invalid literal for int() with base 10: ''", r"invalid literal for int\(\) with base 10: ''"),
        line("Invalid metadata file", r"Invalid metadata file .*latest_checkpointed_iteration"),
    ])
    .errors(&["invalid literal for int() with base 10: ''"])
    .examples(
        "ValueError: invalid literal for int() with base 10: ''",
        "ValueError: invalid literal for int() with base 10: 'auto'",
    ),
    class(
        "ckpt.old_layout",
        Kind::Deterministic,
        Some(Action::Stop),
        "Convert the checkpoint (`supervise migrate`).",
    )
    .lines(&[
        holds("Detected deprecated Megatron checkpoint layout"),
        holds("Found legacy PEFT checkpoint"),
    ])
    .examples(
        "ValueError: Detected deprecated Megatron checkpoint layout at /data/run/global_step_4",
        "the layout of the checkpoint is that of Megatron 0.9",
    ),
    class(
        "ckpt.mismatch",
        Kind::Deterministic,
        Some(Action::Stop),
        "Go back to the model, world size and layout that the checkpoint was written with: an older step has the same.",
    )
    .lines(&[
        holds("Error(s) in loading state_dict for"),
        holds("Missing key(s) in state_dict"),
        line("Unexpected key(s)", r"Unexpected key\(s\)"),
        line("size mismatch for", r"size mismatch for [\w.]+"),
        line("different|does not match|mismatch|incompatible|another", r"(?:checkpoint|state|resum|load|saved).{0,120}(?:different|does not match|mismatch|incompatible|another).{0,60}(?:world size|dp size|data parallel|tensor.parallel|pipeline)"),
        line("world size", r"(?:different|mismatch|does not match).{0,60}world size.{0,120}(?:checkpoint|saved|state)"),
        holds("doesn't match the size of parameter group"),
        holds("doesn't match the size of optimizer's group"),
        holds("loaded state dict has a different number of parameter groups"),
        line("DP world size", r"The checkpoint being loaded used a DP world size of \d+ but the current world size is"),
        line("value from checkpoint", r"value from checkpoint \(.*\) is not equal to the input argument value"),
        line("shape mismatch", r"Global shape mismatch|(?:CheckpointingException|AssertionError|ValueError).{0,120}shape mismatch (?:for|between)"),
        line("Size mismatch between saved", r"Size mismatch between saved .{1,120} and current"),
        line("Missing key in checkpoint", r"Missing key in checkpoint state_dict"),
    ])
    .errors(&["Missing key(s)", "Unexpected key(s)", "size mismatch for", "Missing key in checkpoint"])
    .examples(
        "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM: size mismatch for lm_head.weight: copying a param with shape torch.Size([151936, 896])",
        "Some weights of the model checkpoint were not used when initializing the value head",
    ),
    class(
        "ckpt.corrupt",
        Kind::Deterministic,
        Some(Action::FallBack),
        "Keep the damaged step for a look (`supervise verify`), and go on from the one before.",
    )
    .lines(&[
        holds("PytorchStreamReader failed"),
        holds("failed finding central directory"),
        line("Invalid magic number", r"Invalid magic number"),
        line("SafetensorError", r"SafetensorError"),
        line("deserializing header", r"Error while deserializing header"),
        holds("HeaderTooLarge"),
        holds("InvalidHeaderDeserialization"),
        holds("MetadataIncompleteBuffer"),
        line("unexpected EOF", r"unexpected EOF|Unexpected EOF"),
        line("UnpicklingError", r"UnpicklingError(?::\s+[^W\s]|:?\s*$)"),
        holds("Ran out of input"),
        line("pickle data was truncated", r"pickle data was truncated"),
        line("metadata is None", r"AssertionError: metadata is None|^metadata is None"),
        line("CheckpointConsistencyError", r"CheckpointConsistencyError"),
        line("_world_size_", r"No such file or directory: '.*_world_size_\d+_rank_\d+\.pt'"),
        line("is not a distributed checkpoint", r"is not a distributed checkpoint"),
        line("Common file", r"Common file .* does not exist"),
        line("Checkpoint path", r"Checkpoint path .* does not exist"),
        line(".distcp|.metadata", r"No such file or directory: '.*\.(?:distcp|metadata)'"),
        line("invalid load key", r"invalid load key"),
        line("storage has wrong|file in archive|ZIP archive|is not a ZIP|Bad magic number", r"storage has wrong (?:byte )?size|file in archive is not in a subdirectory|not a ZIP archive|is not a ZIP|Bad magic number for (?:file|central)"),
        line("BadZipFile", r"BadZipFile"),
        holds("The following zero checkpoints paths are missing"),
        line("Can't find a valid checkpoint", r"^ValueError: Can't find a valid checkpoint at \S"),
        line("safetensors", r"safetensors.{0,80}(?:corrupt|truncated|incomplete)"),
        line("checksum|CRC", r"checkpoint.{0,120}checksum (?:mismatch|does not match|failed)|(?:CRC|crc|checksum).{0,30}(?:mismatch|does not match).{0,120}(?:checkpoint|shard|\.pt|\.distcp)"),
    ])
    .errors(&["PytorchStreamReader", "central directory", "Ran out of input", "_world_size_"])
    .examples(
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "no magic number is needed: the batch size follows from the world size",
    ),
    class(
        "ckpt.missing_part",
        Kind::Deterministic,
        Some(Action::Stop),
        "Stop before the next save, which may replace the last good state: the trainer starts from nothing.",
    )
    .lines(&[
        holds("Failed to load recover info"),
        line("Recover checkpoint for model", r"Recover checkpoint for model .* does not exist"),
    ])
    .errors(&["should not be a resumed experiment"])
    .examples(
        "Failed to load recover info from /data/fileroot/checkpoints/me/e/t/recover_info",
        "Training from scratch",
    )
    .told_by("the order to resume, beside a line that says that the trainer starts from nothing: a fresh start prints the same"),
    class(
        "ckpt.save_failed",
        Kind::Transient,
        Some(Action::Relaunch),
        "Do not trust that step; look at the disk before the next save.",
    )
    .lines(&[
        line(" to sav| while sav| when sav| in sav", r"(?:failed|error|unable) (?:to|while|when|in) (?:saving|save)\b.{0,40}(?:checkpoint|model|state|optimizer|step)"),
        line("PytorchStreamWriter failed", r"PytorchStreamWriter failed"),
        line("save failed|saving failed|save has failed|saving has failed|async", r"(?:async|asynchronous) (?:checkpoint )?sav(?:e|ing).{0,40}(?:failed|error)|[Cc]heckpoint sav(?:e|ing) (?:has )?failed"),
    ])
    .errors(&["CheckpointException"])
    .examples(
        "RuntimeError: Failed to save checkpoint at step 120: worker 3 did not answer",
        "best model so far, saved at step 120",
    )
    .told_by("an exception whose traceback goes through the saving of a checkpoint"),
];
