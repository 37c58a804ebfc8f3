//! The table of classes as rules for the scanner, and the classes of exceptions.

use crate::action::FailureLine;
use crate::event::Sighting;
use crate::record::Action;
use crate::scan::{Filter, RuleKind, ScanRule, USER};
use crate::taxonomy;
use std::sync::OnceLock;

/// The table as rules for the scanner.
#[must_use]
pub fn failure_rules() -> Vec<ScanRule> {
    let mut rules = Vec::new();
    for row in taxonomy::rows() {
        for (n, line) in row.lines.iter().enumerate() {
            let kind = RuleKind::Failure(row.name.to_owned());
            let id = format!("{}/{n}", row.name);
            rules.push(ScanRule::holding(&id, line.holds, &insensitive(line.regex), kind));
        }
    }
    rules
}

/// The user's lines as rules for the scanner: they count before the table's.
#[must_use]
pub fn user_rules(lines: &[FailureLine]) -> Vec<ScanRule> {
    let all = lines.iter().enumerate();
    let rule = |(n, line): (usize, &FailureLine)| {
        let kind = RuleKind::Failure(line.class.clone());
        ScanRule::new(&format!("{USER}{n}"), &line.pattern, kind)
    };
    all.map(rule).collect()
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
pub(super) fn classify_exception(s: &Sighting, stage: Stage) -> &'static str {
    let text = s.text.as_str();
    let class = by_text(s, stage);
    // A request for rewards gets no answer.
    let gone = match class {
        "engine.http" | "comm.conn" => true,
        "code.exception" => ["timed out", "Timeout", "onnect", "Request error"]
            .iter()
            .any(|w| text.contains(w)),
        _ => false,
    };
    match s.rule.ends_with(".reward") && gone {
        true => "reward.server",
        false => class,
    }
}

fn by_text(s: &Sighting, stage: Stage) -> &'static str {
    let text = s.text.as_str();
    if let Some(class) = by_line(text) {
        return class;
    }
    // All that reading a shard that was cut says.
    let loading = stage == Stage::Resuming || s.rule.ends_with(".load");
    let cut = ["[Errno 22] Invalid argument", "CheckpointException", "EOFError"];
    if loading && cut.iter().any(|w| text.contains(w)) {
        return "ckpt.corrupt";
    }
    let class = taxonomy::rows()
        .find(|row| row.errors.iter().any(|needle| text.contains(needle)))
        .map_or("code.exception", |row| row.name);
    match class {
        "ckpt.save_failed" if !s.rule.ends_with(".save") => "code.exception",
        "code.exception" if s.rule.ends_with(".save") => "ckpt.save_failed",
        "code.type_key" if stage != Stage::Stepping => "code.at_start",
        other => other,
    }
}

/// The class of the first pattern that matches.
fn by_line(text: &str) -> Option<&'static str> {
    static FILTER: OnceLock<Option<Filter>> = OnceLock::new();
    let rules = || taxonomy::rows().flat_map(|row| row.lines.iter().map(move |line| (row, line)));
    let filter = FILTER.get_or_init(|| {
        let patterns: Vec<String> = rules().map(|(_, line)| insensitive(line.regex)).collect();
        let all = rules().zip(&patterns).enumerate();
        Filter::new(all.map(|(at, ((_, line), pattern))| (at, line.holds, pattern.as_str()))).ok()
    });
    let at = filter.as_ref()?.first(text.as_bytes())?;
    rules().nth(at).map(|(row, _)| row.name)
}

/// The expression of a row, which does not look at the case; nothing stays nothing.
fn insensitive(regex: &str) -> String {
    match regex {
        "" => String::new(),
        regex => format!("(?i-u){regex}"),
    }
}

/// The class under its own name, or `exit.unexplained` for one this version does not know.
#[must_use]
pub(super) fn known(class: &str) -> &'static str {
    taxonomy::row(class).map_or("exit.unexplained", |row| row.name)
}

/// Answer of the table to a run under supervision: nobody asked for an end where a signal from outside ended a worker, and a
/// cluster that lost a machine may get it back.
#[must_use]
pub fn action(class: &str) -> Action {
    match class {
        "op.signal" | "ray.resources" | "ray.gcs" => Action::RelaunchLater,
        _ => taxonomy::action(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::WorkerId;
    use crate::scan::Scanner;

    fn said(text: &str) -> Sighting {
        Sighting {
            rule: "py.exception".to_owned(),
            worker: WorkerId(0),
            line: 1,
            text: text.to_owned(),
            number: None,
            count: 1,
        }
    }

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
    fn each_row_knows_its_example_and_not_its_lookalike() {
        let mut wrong = Vec::new();
        for row in taxonomy::rows().filter(|r| !r.example.is_empty()) {
            let mut scanner = Scanner::new(failure_rules()).unwrap();
            let mut class_of = |line: &str| match scanner.line(WorkerId(0), 1, line.as_bytes()).map(|h| h.kind) {
                Some(RuleKind::Failure(class)) => known(&class),
                _ => "",
            };
            let (line, other) = (class_of(row.example), class_of(row.lookalike));
            let raised = || classify_exception(&said(row.example), Stage::Stepping);
            if line != row.name && (!line.is_empty() || raised() != row.name) {
                wrong.push(format!("{}: its example is {line} or {}", row.name, raised()));
            }
            if other == row.name {
                wrong.push(format!("{}: its look-alike is taken for it", row.name));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn each_of_these_lines_is_known_and_its_lookalike_is_not() {
        let cases = [
            (
                "gpu.app_fault",
                "Memory access fault by GPU node-3 (Agent handle: 0x5a) on address (nil). Reason: Unknown.",
                "memory access pattern of GPU node-3",
            ),
            (
                "gpu.app_fault",
                "Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation",
                "HSA_STATUS_SUCCESS",
            ),
            (
                "sched.timelimit",
                "JobId=7 JobState=TIMEOUT Reason=TimeLimit",
                "NCCL_IB_TIMEOUT=22 State=ok",
            ),
            (
                "sched.timelimit",
                "77125.0    python    TIMEOUT    0:15",
                "rdzv TIMEOUT 900",
            ),
            ("sched.preempt", "77125      grpo  PREEMPTED    0:0", "num_preempted: 0"),
            (
                "sched.launch",
                "srun: error: timeout waiting for task launch, started 0 of 1 tasks",
                "waiting for task launch",
            ),
            (
                "sched.launch",
                "slurmstepd: error: pyxis: container start failed with error code: 1",
                "pyxis: importing docker image",
            ),
            (
                "sched.launch",
                "An ORTE daemon has unexpectedly failed after launch and before",
                "the daemon has launched",
            ),
            (
                "mem.host_oom",
                "77123  batch OUT_OF_ME+    0:125",
                "OUT_OF_ME is a state",
            ),
            (
                "mem.host_oom",
                "earlyoom[911]: sending SIGKILL to process 4411 uid 1000 \"python3\"",
                "earlyoom[911]: mem avail: 90 %",
            ),
            (
                "mem.engine_oom",
                "RuntimeError: Prefill out of memory. Try to lower your batch size.",
                "KV cache pool is full. Retract requests. #retracted_reqs: 12",
            ),
            (
                "mem.engine_oom",
                "ValueError: token_to_kv_pool_allocator memory leak detected! x",
                "token_to_kv_pool_allocator size 396701",
            ),
            (
                "mem.shm",
                "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Yv8Hp3 (size 33030528)",
                "opened /dev/shm/nccl-Yv8Hp3",
            ),
            (
                "mem.shm",
                "*** SIGBUS (@0x7f1c) received by PID 119",
                "a handler for SIGBUS is there",
            ),
            (
                "disk.full",
                "sqlite3.OperationalError: database or disk is full",
                "the database is on disk",
            ),
            (
                "disk.full",
                "OSError: Not enough disk space. Needed: 14.1 GiB",
                "enough disk space: 14.1 GiB",
            ),
            (
                "hub.auth",
                "Client error '401 Unauthorized' for url 'https://huggingface.co/api/x'",
                "Client error '401 Unauthorized' for url 'http://rm:8000/x'",
            ),
            (
                "hub.rate",
                "Server error '504 Gateway Time-out' for url 'https://huggingface.co/api/x'",
                "Server error '504 Gateway Time-out' for url 'http://rm:8000/x'",
            ),
            (
                "hub.rate",
                "RuntimeError: Data processing error: CAS service error : Reqwest Error",
                "CAS number of the sample",
            ),
            (
                "hub.rate",
                "HTTPSConnectionPool(host='hf-mirror.com', port=443): Max retries exceeded with url: /x",
                "endpoint: https://hf-mirror.com",
            ),
            ("store.remote", "fsspec.exceptions.FSTimeoutError", "FSTimeoutErrors: 0"),
            (
                "ckpt.mismatch",
                "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
                "the size of optimizer's group is 12",
            ),
            (
                "cfg.batch",
                "AssertionError: only support equal chunk. Got size of DataProto 20 and chunk 8.",
                "equal chunks of 8",
            ),
            (
                "cfg.command",
                "/w/run.sh: line 3: torchrun: command not found",
                "Pyspy failed to dump PID 9. Error: /bin/bash: line 1: py-spy: command not found",
            ),
            (
                "loader.version",
                "ImportError: libgomp.so.1: cannot allocate memory in static TLS block",
                "the static TLS block is 1 KiB",
            ),
            (
                "loader.version",
                "AssertionError: libcuda.so cannot found!",
                "libcuda.so found",
            ),
            (
                "num.nan",
                "FloatingPointError: Gradients are Nan/Inf",
                "np.seterr raises a FloatingPointError",
            ),
            (
                "num.nan",
                "ValueError: Detected nan and/or inf values in `model.embed.weight`.",
                "Detected nan-safe kernels",
            ),
            (
                "code.syntax_import",
                "RuntimeError: Error loading module from '/w/rewards/math.py'",
                "loading module from '/w/rewards/math.py'",
            ),
            (
                "engine.vllm_dead",
                "TimeoutError: RPC call to sample_tokens timed out.",
                "RPC call to sample_tokens took 3 s",
            ),
            (
                "ray.resources",
                "TimeoutError: Timed out waiting for placement groups to be ready.",
                "waiting for placement groups",
            ),
            (
                "sandbox.exhausted",
                "RateLimitException: 429: You have reached the maximum number of concurrent E2B sandboxes (100).",
                "maximum number of tokens: 4096",
            ),
            (
                "comm.nccl_timeout",
                "RuntimeError: Rank 3 failed to pass monitoredBarrier in 300000 ms",
                "rank 3 passed monitoredBarrier",
            ),
            (
                "comm.conn",
                "ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
                "the remote end is up",
            ),
            (
                "comm.launcher_teardown",
                "WorkerFailedError: Worker 'actor/0' failed with exit code 1",
                "Worker 'actor/0' ended with exit code 0",
            ),
        ];
        let mut scanner = Scanner::new(failure_rules()).unwrap();
        let mut class_of = |line: &str| match scanner.line(WorkerId(0), 1, line.as_bytes()).map(|h| h.kind) {
            Some(RuleKind::Failure(class)) => known(&class),
            _ => "",
        };
        for (class, line, lookalike) in cases {
            assert_eq!(class_of(line), class, "{line}");
            assert_eq!(class_of(lookalike), "", "{lookalike}");
        }
    }

    #[test]
    fn every_pattern_compiles_and_is_tried_where_its_text_stands() {
        for row in taxonomy::rows() {
            for line in row.lines.iter().filter(|l| !l.regex.is_empty()) {
                let compiled = regex::bytes::Regex::new(&insensitive(line.regex));
                assert!(compiled.is_ok(), "{}: {}", row.name, line.regex);
            }
        }
    }

    #[test]
    fn a_class_of_another_version_is_unexplained() {
        assert_eq!(known("made.up"), "exit.unexplained");
    }

    #[test]
    fn an_exception_at_start_is_deterministic() {
        let action_at = |stage| action(classify_exception(&said("KeyError: 'x'"), stage));
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
            let class = classify_exception(&said(text), Stage::Starting);
            assert_eq!((class, action(class)), ("cfg.args", Action::Stop), "{text}");
        }
    }

    #[test]
    fn a_checkpoint_that_torch_cannot_load_is_a_reason_to_fall_back() {
        let text = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])";
        assert_eq!(classify_exception(&said(text), Stage::Resuming), "ckpt.corrupt");
        assert_eq!(classify_exception(&said(text), Stage::Stepping), "code.exception");
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
            assert_eq!(classify_exception(&said(text), Stage::Stepping), class, "{text}");
        }
    }
}
