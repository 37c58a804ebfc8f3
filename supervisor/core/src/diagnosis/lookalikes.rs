//! Lines of classes beside the one that each row has itself, and lines that look like them.

use super::rules::{failure_rules, known};
use crate::id::WorkerId;
use crate::scan::{RuleKind, Scanner};

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
        (
            "comm.init",
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1",
            "initializing process group with a timeout of 600 s",
        ),
        (
            "data.bad_sample",
            "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.",
            "skipped: pyarrow.lib.ArrowInvalid: no magic bytes",
        ),
        (
            "reward.server",
            "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://svc:8000/get_reward",
            "200 OK for url: http://svc:8000/get_reward",
        ),
        (
            "reward.server",
            "httpx.ConnectError: All connection attempts failed: http://judge-svc:8080/score",
            "httpx: POST http://judge-svc:8080/score in 3 s",
        ),
        (
            "mem.shm",
            "OSError: [Errno 28] No space left on device: '/psm_1b2c'",
            "attached '/psm_1b2c'",
        ),
        (
            "cfg.args",
            "In 'ppo_trainer': Could not find 'actor/megatron_actorr'",
            "Could not find a cached module, it is built",
        ),
        (
            "hang.step",
            "training hang detected: no step reported in the last 1800 seconds",
            "change detected in the data folder",
        ),
        (
            "end.budget",
            "Failed: exceeded max_failures=3",
            "max_failures=3, 1 so far",
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
