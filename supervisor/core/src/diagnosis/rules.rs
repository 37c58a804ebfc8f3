//! The failure table: patterns, classes, actions.
//!
//! Order matters: memory in `/dev/shm` before a full disk, GPU faults before communication.

use crate::record::Action;
use crate::scan::{RuleKind, ScanRule};
use crate::taxonomy;
use regex::bytes::RegexSet;
use std::sync::OnceLock;

/// Patterns that count anywhere in the output: (rule, class, regular expression).
const LINES: &[(&str, &str, &str)] = &[
    ("xid_bus", "gpu.fallen_off_bus", r"Xid.*: 79\b|fallen off the bus"),
    (
        "xid_ecc",
        "gpu.ecc_uncorrectable",
        r"(?i-u)Xid.*: (48|140|171|172)\b|uncorrectable (ECC|double bit)",
    ),
    (
        "cuda_fault",
        "gpu.app_fault",
        r"illegal memory access|unspecified launch failure|misaligned address|device-side assert triggered",
    ),
    (
        "cuda_oom",
        "mem.cuda_oom",
        r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory\. Tried|CUBLAS_STATUS_ALLOC_FAILED",
    ),
    (
        "ray_oom",
        "mem.ray_oom",
        r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory",
    ),
    (
        "host_oom",
        "mem.host_oom",
        r"Out of memory: Killed process \d+|Memory cgroup out of memory|Detected \d+ oom_kill event",
    ),
    (
        "shm",
        "mem.shm",
        r"killed by signal: Bus error|unable to (open|write to) (shared memory|file </torch_)|out of shared memory",
    ),
    (
        "disk_full",
        "disk.full",
        r"No space left on device|Errno 28\b|Disk quota exceeded|Errno 122\b|basic_ios::clear: iostream error",
    ),
    (
        "disk_stale",
        "disk.readonly",
        r"Read-only file system|Stale file handle|\[Errno (5|30|107|116)\]",
    ),
    (
        "tracker_torn",
        "ckpt.tracker_torn",
        r"invalid literal for int\(\) with base 10: ''",
    ),
    (
        "ckpt_corrupt",
        "ckpt.corrupt",
        r"PytorchStreamReader failed|failed finding central directory|UnpicklingError|Ran out of input",
    ),
    (
        "ckpt_shard",
        "ckpt.corrupt",
        r"No such file or directory: '.*_world_size_\d+_rank_\d+\.pt'",
    ),
    (
        "ckpt_mismatch",
        "ckpt.mismatch",
        r"Missing key\(s\) in state_dict|Unexpected key\(s\)|size mismatch for",
    ),
    (
        "ckpt_old_layout",
        "ckpt.old_layout",
        r"Detected deprecated Megatron checkpoint layout|Found legacy PEFT checkpoint",
    ),
    (
        "ckpt_dist",
        "ckpt.corrupt",
        r"is not a distributed checkpoint|Common file .* does not exist|Checkpoint path .* does not exist",
    ),
    ("hdfs", "cfg.args", r"load from hdfs is not implemented yet"),
    (
        "hydra",
        "cfg.args",
        r"Could not override '|Key '.*' is not in struct|OverrideParseException|Ambiguous value for argument",
    ),
    ("usage", "cfg.args", r"error: unrecognized arguments|^usage: "),
    ("nan_probability", "num.nan", r"probability tensor contains either"),
    ("port", "comm.port_in_use", r"EADDRINUSE|Address already in use"),
    (
        "nccl_timeout",
        "comm.nccl_timeout",
        r"Watchdog caught collective operation timeout|ProcessGroupNCCL.*(timed out|Terminating the process)",
    ),
    (
        "nccl",
        "comm.nccl_remote",
        r"ncclRemoteError|ncclSystemError|NCCL error.*remote process exited",
    ),
    (
        "gloo",
        "comm.conn",
        r"Gloo connectFullMesh failed|Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe",
    ),
    ("ray_cluster", "ray.gcs", r"Failed to connect to (Ray cluster at|GCS)"),
    (
        "ray_gpus",
        "ray.resources",
        r"Total available GPUs .* is less than total desired GPUs",
    ),
    (
        "ray_name",
        "ray.name_taken",
        r"Failed to create placement group .* already exists",
    ),
    (
        "ray_node",
        "node.lost",
        r"NodeDiedError|ActorUnavailableError|The node .* has been marked dead",
    ),
    (
        "ray_actor",
        "ray.actor_died",
        r"ActorDiedError|RayActorError|The actor died unexpectedly|Worker exit type: SYSTEM_ERROR",
    ),
    (
        "torchrun",
        "comm.launcher_teardown",
        r"Sending process \d+ closing signal|ChildFailedError|torch\.multiprocessing\.errors\.ProcessRaisedException",
    ),
    (
        "segfault",
        "native.crash",
        r"Fatal Python error|[Ss]egmentation fault|double free or corruption",
    ),
    (
        "loader",
        "data.loader",
        r"DataLoader worker .* (exited unexpectedly|is killed by signal)",
    ),
];

/// Exceptions by the text that ends a traceback: (class, needles).
const EXCEPTIONS: &[(&str, &[&str])] = &[
    ("mem.cuda_oom", &["OutOfMemoryError", "CUDA out of memory"]),
    (
        "disk.full",
        &["Errno 28", "Errno 122", "No space left", "iostream error"],
    ),
    ("disk.readonly", &["Errno 5]", "Errno 30]", "Errno 116]"]),
    ("ckpt.tracker_torn", &["invalid literal for int() with base 10: ''"]),
    (
        "ckpt.corrupt",
        &[
            "PytorchStreamReader",
            "central directory",
            "UnpicklingError",
            "Ran out of input",
            "_world_size_",
        ],
    ),
    (
        "ckpt.mismatch",
        &["Missing key(s)", "Unexpected key(s)", "size mismatch for"],
    ),
    ("num.nan", &["probability tensor contains", "is nan", "non-finite"]),
    (
        "comm.conn",
        &[
            "Connection reset",
            "Connection closed",
            "Connection refused",
            "BrokenPipeError",
            "DistBackendError",
            "DistNetworkError",
        ],
    ),
    ("comm.port_in_use", &["EADDRINUSE", "Address already in use"]),
    (
        "comm.launcher_teardown",
        &["ChildFailedError", "ProcessRaisedException", "ProcessExitedException"],
    ),
    ("ray.actor_died", &["ActorDiedError", "RayActorError"]),
    (
        "cfg.args",
        &[
            "ConfigAttributeError",
            "ConfigKeyError",
            "MissingMandatoryValue",
            "MissingConfigException",
            "hydra.errors",
            "omegaconf.errors",
            "Invalid recover mode",
            "Unknown scheduler type",
            "AllocationValidationError",
            "GatewayTrainController",
            "fileroot '",
            "flattened_range is not supported",
        ],
    ),
    (
        "code.syntax_import",
        &["SyntaxError", "ImportError", "ModuleNotFoundError", "NameError"],
    ),
    ("file.missing", &["FileNotFoundError"]),
    ("file.permission", &["PermissionError"]),
    ("op.signal", &["KeyboardInterrupt", "SystemExit"]),
    (
        "code.type_key",
        &[
            "TypeError",
            "KeyError",
            "AttributeError",
            "IndexError",
            "ValueError",
            "ZeroDivisionError",
            "AssertionError",
        ],
    ),
];

/// The table as rules for the scanner.
#[must_use]
pub fn failure_rules() -> Vec<ScanRule> {
    LINES
        .iter()
        .map(|(id, class, pattern)| ScanRule::new(id, pattern, RuleKind::Failure((*class).to_owned())))
        .collect()
}

/// How far an attempt had come when an exception was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No step yet, and nothing to load.
    Starting,
    /// No step yet, and a checkpoint to load.
    Resuming,
    /// It stepped.
    Stepping,
}

/// The class of an exception by the text that ended its traceback: by the patterns for lines first, for torch says
/// almost everything as RuntimeError. Before the first step a programming error is one at start-up: relaunching
/// cannot help.
#[must_use]
pub(super) fn classify_exception(text: &str, stage: Stage) -> &'static str {
    if let Some(class) = by_line(text) {
        return class;
    }
    // All that reading a shard that was cut says.
    if stage == Stage::Resuming && text.contains("[Errno 22] Invalid argument") {
        return "ckpt.corrupt";
    }
    if stage == Stage::Resuming && text.contains("CheckpointException") {
        return "ckpt.corrupt";
    }
    let class = EXCEPTIONS
        .iter()
        .find(|(_, needles)| needles.iter().any(|n| text.contains(n)))
        .map_or("code.exception", |(class, _)| class);
    match class {
        "code.type_key" if stage != Stage::Stepping => "code.at_start",
        other => other,
    }
}

/// The class of the first pattern that matches.
fn by_line(text: &str) -> Option<&'static str> {
    static SET: OnceLock<Option<RegexSet>> = OnceLock::new();
    let set = SET.get_or_init(|| RegexSet::new(LINES.iter().map(|(_, _, pattern)| pattern)).ok());
    let first = set.as_ref()?.matches(text.as_bytes()).into_iter().min()?;
    LINES.get(first).map(|(_, class, _)| *class)
}

/// The class under its own name, or `exit.unexplained` for one this version does not know.
#[must_use]
pub(super) fn known(class: &str) -> &'static str {
    LINES
        .iter()
        .map(|(_, c, _)| *c)
        .find(|c| *c == class)
        .unwrap_or("exit.unexplained")
}

/// Answer of the table. Nobody asked this supervisor for an end where a signal from outside ended a worker: it goes on.
#[must_use]
pub fn action(class: &str) -> Action {
    match class {
        "op.signal" => Action::RelaunchLater,
        _ => taxonomy::action(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scanner;

    #[test]
    fn the_table_compiles_and_sorts_known_lines() {
        let mut s = Scanner::new(failure_rules()).unwrap();
        let cases = [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                "mem.cuda_oom",
            ),
            ("OSError: [Errno 28] No space left on device", "disk.full"),
            (
                "RuntimeError: unable to write to file </torch_12_3>: No space left on device (28)",
                "mem.shm",
            ),
            (
                "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
                "ckpt.corrupt",
            ),
            (
                "NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.",
                "gpu.fallen_off_bus",
            ),
            (
                "[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580",
                "comm.nccl_timeout",
            ),
        ];
        for (n, (line, class)) in cases.iter().enumerate() {
            let hit = s.line(crate::id::WorkerId(0), n as u64, line.as_bytes()).unwrap();
            assert_eq!(hit.kind, RuleKind::Failure((*class).to_owned()), "{line}");
        }
    }

    #[test]
    fn every_class_named_by_a_pattern_is_known() {
        for (_, class, _) in LINES {
            assert_eq!(known(class), *class);
        }
        assert_eq!(known("made.up"), "exit.unexplained");
    }

    #[test]
    fn an_exception_at_start_is_deterministic() {
        let action_at = |stage| action(classify_exception("KeyError: 'x'", stage));
        assert_eq!(action_at(Stage::Starting), Action::Stop);
        assert_eq!(action_at(Stage::Resuming), Action::Stop);
        assert_eq!(action_at(Stage::Stepping), Action::RelaunchOnce);
    }

    #[test]
    fn what_areal_refuses_at_its_start_is_no_reason_to_relaunch() {
        for text in [
            "omegaconf.errors.ConfigKeyError: Key 'freq_step' not in 'RecoverConfig'",
            "hydra.errors.ConfigCompositionException: Could not override 'total_train_steps'.",
            "omegaconf.errors.MissingMandatoryValue: Structured config of type `SFTConfig` has missing mandatory value: trial_name",
            "ValueError: Invalid recover mode 'True'. Valid options: {'on', 'off', 'auto', 'disabled'}.",
            "FileNotFoundError: cluster.fileroot '/nowhere' does not exist.",
            "NotImplementedError: Unknown scheduler type: None",
        ] {
            let class = classify_exception(text, Stage::Starting);
            assert_eq!((class, action(class)), ("cfg.args", Action::Stop), "{text}");
        }
    }

    #[test]
    fn a_checkpoint_that_torch_cannot_load_is_a_reason_to_fall_back() {
        let text = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])";
        assert_eq!(classify_exception(text, Stage::Resuming), "ckpt.corrupt");
        assert_eq!(classify_exception(text, Stage::Stepping), "code.exception");
    }

    #[test]
    fn a_runtime_error_is_classed_by_what_it_says() {
        let cases = [
            (
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                "gpu.app_fault",
            ),
            (
                "RuntimeError: unable to write to file </torch_1_2>: No space left on device (28)",
                "mem.shm",
            ),
            (
                "RuntimeError: DataLoader worker (pid 229) is killed by signal: Bus error.",
                "mem.shm",
            ),
            (
                "RuntimeError: NCCL error in: x.cpp:1, remote process exited or there was",
                "comm.nccl_remote",
            ),
            ("OSError: [Errno 28] No space left on device: '/data/x'", "disk.full"),
            ("RuntimeError: something else", "code.exception"),
        ];
        for (text, class) in cases {
            assert_eq!(classify_exception(text, Stage::Stepping), class, "{text}");
        }
    }
}
