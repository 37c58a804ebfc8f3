"""Cases of areal_alone.py: areal's own way since 1.0, one controller with a worker for each rank that its scheduler starts."""

import contextlib
import functools
import os
import signal
import sys
import time
from pathlib import Path

import areal_stage as stage

CALM = 15  # seconds without an answer, after the error


def controller(model, root, steps):
    from areal.api.cli_args import SchedulerConfig
    from areal.trainer.sft_trainer import SFTTrainer
    from areal_sft import samples

    # The workers are started as `python -m areal.infra.rpc.rpc_server`.
    os.environ |= {"AREAL_SPMD_MODE": "0", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    config = stage.config(model, root, steps)
    config.scheduler = SchedulerConfig(type="local")
    for part in config.actor.scheduling_spec:
        part.gpu = 0
    with SFTTrainer(config, train_dataset=samples(str(model))) as trainer:
        trainer.train()


def start(b, root, steps):
    log = root.parent / f"{root.name}.{b.count}.log"
    b.count += 1
    log.touch()
    (root / "names").mkdir(parents=True, exist_ok=True)
    return stage.fork(functools.partial(controller, b.model, root, steps), {}, log), log


def wait_for(log, words, pid):
    until = time.monotonic() + stage.LIMIT
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < until and os.waitpid(pid, os.WNOHANG) == (0, 0), log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


def controllers(b, case):
    """[process.orphans, process.two_hours, load.hang_in_controller] Killed, it leaves its workers; a damaged load is never answered."""
    root = b.root(case)
    pid, log = start(b, root, 8)
    try:
        wait_for(log, "Train step 2/", pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        left, records = of_run(root), list((root / "names").rglob("ENTRY"))
        b.note({"case": case, "what": "the controller was killed", "happens": f"{len(left)} processes stay"})
        assert len(left) >= 2 and len(records) == 2, (left, records)
    finally:
        end_all(root, pid)
    shard = stage.dcp(root) / "__1_0.distcp"
    os.truncate(shard, shard.stat().st_size // 2)
    pid, log = start(b, root, 8)
    try:
        wait_for(log, "Exception in thread EngineWorker", pid)
        time.sleep(CALM)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        b.note({"case": case, "what": f"a shard cut short, under a controller: {CALM} s after the error", "happens": "hang"})
    finally:
        end_all(root, pid)


def of_run(root):
    """Processes whose command line names this root: workers, and what writes their logs."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(root) in line:
            found[int(pid)] = line
    return found


def end_all(root, *pids):
    """Ends what the case started, those that look after others first."""
    for pid in pids:
        # The case may have ended it.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    while left := of_run(root):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
