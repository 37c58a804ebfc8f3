//! Lines that tell how a process or a run ended, of classes beside the one that each row has itself.

use super::check;

#[test]
fn ends_are_known_and_their_lookalikes_are_not() {
    check(&[
        (
            "end.budget",
            "[supervisor] retries used up: 6 of 6",
            "[supervisor] retries used: 1 of 6",
        ),
        (
            "end.budget",
            "[ft] No more restarts allowed, budget used up",
            "[ft] restarts allowed: 10",
        ),
        (
            "end.budget",
            "run_with_retry.sh: giving up after 3 attempts",
            "the client is giving up after 3 attempts on http://rm:8000/score",
        ),
        (
            "end.budget",
            "rayjob-controller: RayJob ppo: retried 3 times, backoffLimit 3 reached, status Failed",
            "rayjob-controller: RayJob ppo: backoffLimit 3",
        ),
        (
            "end.budget",
            "Failed: exceeded max_failures=3",
            "max_failures=3, 1 so far",
        ),
        (
            "native.crash",
            "pt_main_thread[41]: segfault at 7f797fe0 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2",
            "node_exporter[41]: segfault at 0 ip 00007f7c sp 00007f7c error 4",
        ),
        (
            "native.crash",
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV",
            "process 1 terminated with exit code 0",
        ),
        (
            "kill.unknown",
            "Exception: process 1 terminated with signal SIGKILL",
            "stale engine 1 terminated with signal SIGKILL as asked",
        ),
        (
            "code.syntax_import",
            "RuntimeError: Failed to import trl.models.x because of the following error (look up to see its traceback):",
            "optional backend: failed to import flashinfer",
        ),
        (
            "hub.auth",
            "HfHubHTTPError('The token available to HF does not allow writing to the Hub.')",
            "the token available to HF is read from the cache",
        ),
        (
            "mem.engine_oom",
            "vice cuda:0 (9.02/11.63 GiB) on startup is less than desired GPU memory utilization (0.9, 10.47 GiB).",
            "gpu_memory_utilization=0.9",
        ),
    ]);
}
