//! Lines of classes beside the one that each row has itself, and lines that look like them.

mod ends;

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
            "engine.sglang_watchdog",
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
            "Error: ENOSPC: no space left on device, write",
            "loading the dataset from /data/ENOSPC-test/train.parquet",
        ),
        (
            "disk.full",
            "write /data/x: disk quota exceeded",
            "loading '/data/Disk quota exceeded/train.parquet'",
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
            "hang.step",
            "WARNING heartbeat:watch - no step finished for 1800 s (median step 21.4 s), last step 1419",
            "no step finished for 20 s (median step 21.4 s)",
        ),
        (
            "hang.step",
            "INFO: iteration 312 has been running for 1800 s (median 6.1 s)",
            "INFO: iteration 312 has been running for 0.512 s",
        ),
        (
            "hang.step",
            "[monitor] step clock exceeded at step 703",
            "[monitor] step clock at step 703: 3.1 s",
        ),
        (
            "hang.step",
            "WARNING watchdog: heartbeat of rank 3 lost (last seen 1200 s ago)",
            "INFO watchdog: heartbeat of rank 3 is late by 40 s",
        ),
        (
            "hang.step",
            "liveness: last progress 2711 s ago (step 88), threshold 1200 s",
            "liveness: last progress 12 s ago (step 88), threshold 1200 s",
        ),
        (
            "hang.step",
            "[RankMonitorServer:4] Rank is considered hung. Killing rank process pid=88112",
            "rank 3 is considered the slowest: no hang detected",
        ),
        (
            "hang.step",
            "Timeout (0:20:00)!",
            "timeout (0:20:00) of the collectives",
        ),
        (
            "hang.step",
            "Thread 4411 (active): \"MainThread\"",
            "Thread 4411 (active): \"pt_autograd_0\"",
        ),
        (
            "hang.startup",
            "ERROR run has not produced its first step within the 1800 s start limit",
            "the run has produced its first step within 1800 s",
        ),
        (
            "hang.startup",
            "WARN still waiting for rollout engines to register (900s)",
            "waiting for rollout engines to register (timeout 1800s)",
        ),
        (
            "hang.startup",
            "monitor[n1]: no first iteration after 2700 s, setup limit is 1800 s",
            "monitor[n1]: first iteration after 270 s, setup limit is 1800 s",
        ),
        (
            "hang.save",
            "section 'checkpointing' opened at 00:00:31 exceeded its timeout of 420.0s on rank 12",
            "section 'checkpointing' opened at 00:00:31, timeout 420.0s",
        ),
        (
            "hang.save",
            "[monitor] save phase 1800 s, limit 600 s",
            "[monitor] save phase took 180 s of 600 s",
        ),
        (
            "hang.save",
            "[ckpt-monitor] checkpoint 3000 open for 1800 s (usual 95 s)",
            "[ckpt-monitor] checkpoint 3000 open for 120 s (usual 95 s)",
        ),
        (
            "hang.exit",
            "[watch] process 4411 still alive 900 s after the end of training, 3 non-daemon threads",
            "process 4411 is still alive, as it should",
        ),
        (
            "rollout.stall",
            "WARNING: 1 trajectory still running, no finished sample for 3600 s (median 402 s)",
            "1 trajectory still running, 12 samples finished in 60 s",
        ),
        (
            "rollout.stall",
            "WARN watcher: no sample finished for 1200 s (median 0.1 s), 82 outstanding",
            "no sample finished for 12 s, 82 outstanding",
        ),
        (
            "rollout.stall",
            "rollout: 509/512 sequences done, last completion 25 min ago",
            "time: 1200 s waiting for rollout, 300 s in training",
        ),
        (
            "hang.step",
            "ERROR monitor: trainer looks stuck: step 102 finished 41 min ago",
            "where the trainer looks stuck to you, send SIGUSR1",
        ),
        (
            "engine.all_gone",
            "health: 4 of 4 inference servers down",
            "health: 3 of 4 inference servers down",
        ),
        (
            "engine.all_gone",
            "trainer: no engine is alive, the rollout cannot start",
            "trainer: no engine is needed before the first rollout",
        ),
        (
            "engine.all_gone",
            "lb: no backend available for pool generate",
            "lb: no backend was removed",
        ),
        (
            "engine.all_gone",
            "manager: engine 0 lost, engine 1 lost, 0 engines remain",
            "manager: engine 0 lost, 3 engines remain",
        ),
        (
            "end.budget",
            "keeper: run failed 5 times, limit 5, not started again",
            "keeper: run failed 5 times, started again",
        ),
        (
            "end.budget",
            "keeper: max retries exceeded for the training job, leaving",
            "keeper: max retries for the training job: 5",
        ),
        (
            "end.budget",
            "Reached max restart attempts (5). Stopping.",
            "max restart attempts: 5",
        ),
        (
            "end.budget",
            "torch elastic: 3/3 restarts used, giving up",
            "the client retries 3 times before giving up",
        ),
        (
            "end.budget",
            "launcher: too many failures (4 in a row), no more tries",
            "launcher: 1 failure, 3 more tries, retry limit not reached",
        ),
        (
            "end.budget",
            "launcher: restart budget is empty, stop",
            "launcher: restart budget is 3",
        ),
        (
            "rollout.stall",
            "RemoteInfEngine INFO: Waiting for rollouts: 60/64 accepted (elapsed 900.1s)",
            "RemoteInfEngine INFO: Waiting for 64 rollouts (timeout=3600 s), elapsed 10.1s",
        ),
        (
            "engine.all_gone",
            "[slime] 0/4 rollout engines alive; train actor is waiting for rollout data",
            "[slime] 10/40 rollout engines alive",
        ),
        (
            "engine.all_gone",
            "[monitor] alive engines: 0/2; rollout is blocked",
            "[monitor] alive engines: 2/2",
        ),
        (
            "engine.all_gone",
            "router ERROR all workers are unhealthy or have open circuits",
            "router INFO all workers are healthy",
        ),
        (
            "engine.all_gone",
            "router: no workers left in the pool, returning 503",
            "router: 2 workers left in the pool",
        ),
        (
            "engine.http",
            "[health] GET http://10.0.0.3:30000/health_generate timed out (1/3)",
            "[health] GET http://10.0.0.3:30000/health_generate took 3 s",
        ),
        (
            "engine.http",
            "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 0.0 seconds.",
            "the vLLM server is reached at http://0.0.0.0:8000",
        ),
        (
            "engine.http",
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='vllm-0', port=8000): Read timed out.",
            "HTTPConnectionPool(host='vllm-0', port=8000) has 16 connections",
        ),
        (
            "reward.server",
            "ERROR:rl.reward: 512 of 512 rewards set to the default 0.0",
            "reward set to 0 for 12 truncated samples",
        ),
        (
            "reward.server",
            "ERROR:[Request ID: 1c2d] Sandbox API call failed. Last error: API Request Error",
            "Sandbox API: 512 calls, none failed",
        ),
        (
            "reward.server",
            "ERROR:reward:request to http://rm:8000/v1 gave up after 5 attempts (ConnectTimeout)",
            "reward: 512 requests to http://rm:8000/v1 in 5 s",
        ),
        (
            "ray.resources",
            "RuntimeError: Failed to create placement group with 8 bundles (requiring 8 GPUs) in 180 seconds.",
            "creating placement group with 8 bundles (requiring 8 GPUs) took 180 seconds",
        ),
        (
            "ray.resources",
            "still waiting for placement group after 600 s, cluster resources: 16.0 GPU",
            "waiting for placement group (timeout 600 s)",
        ),
        (
            "node.reboot",
            "agent on n08 returned after 311 s; boot id changed 3d1f0a22 -> a8c0117e",
            "agent on n08: boot id 3d1f0a22",
        ),
        (
            "hub.auth",
            "datasets.exceptions.DatasetNotFoundError: Dataset 'a/b' is a gated dataset on the Hub.",
            "a/b is a gated dataset on the Hub, its terms were accepted",
        ),
        (
            "hub.rate",
            "requests.exceptions.ReadTimeout: (HTTPSConnectionPool(host='cas-bridge.xethub.hf.co', port=443): Read timed out.)",
            "files come from cas-bridge.xethub.hf.co",
        ),
        (
            "data.loader",
            "ERROR: Unexpected segmentation fault encountered in worker.",
            "no unexpected fault encountered in worker 3",
        ),
        (
            "file.missing",
            "python: can't open file '/workspace/run.py': [Errno 2] No such file or directory",
            "python: opened file '/workspace/run.py'",
        ),
        (
            "file.permission",
            "python: can't open file '/workspace/run.py': [Errno 13] Permission denied",
            "permission of '/workspace/run.py': 0644",
        ),
        (
            "comm.store",
            "Timed out after 1801 seconds waiting for clients. 3/4 clients joined.",
            "4/4 clients joined after 18 seconds",
        ),
    ];
    check(&cases);
}

fn check(cases: &[(&str, &str, &str)]) {
    let mut scanner = Scanner::new(failure_rules()).unwrap();
    let mut class_of = |line: &str| match scanner.line(WorkerId(0), 1, line.as_bytes()).map(|h| h.kind) {
        Some(RuleKind::Failure(class)) => known(&class),
        _ => "",
    };
    for (class, line, lookalike) in cases {
        assert_eq!(class_of(line), *class, "{line}");
        assert_eq!(class_of(lookalike), "", "{lookalike}");
    }
}
