"""areal's worker process, with the faults that FAULTS names for its rank (fault_hooks.py), and those that are asked for while it runs.

usage: areal_worker.py ARGUMENTS      (those of areal.infra.rpc.rpc_server)

`ASKED/RANK`, a file with `sleep` or `spin`, in the folder that FAULT_LEDGER names: the rank takes it away at its next step, and does so
until somebody opens the FIFO `ASKED/RANK.go` for writing. So one run shows many hangs. The rollout server's rank is `rollout`.
"""

import json
import os
import runpy
import threading
from pathlib import Path

ASKED = "asked"


def strike_if_asked(rank):
    folder = Path(os.environ.get("FAULT_LEDGER", "/nonexistent"), ASKED)
    try:
        kind = (folder / str(rank)).read_text()
    except OSError:
        return
    (folder / str(rank)).unlink()
    go = folder / f"{rank}.go"
    if kind == "sleep":
        return go.read_bytes()
    gone_on = []
    threading.Thread(target=lambda: gone_on.append(go.read_bytes()), daemon=True).start()
    while not gone_on:
        pass


def arm():
    import fault_hooks

    armed = []

    def before_optimizer(optimizer, args, kwargs):
        # The rank is told to a worker after its start.
        rank = int(os.environ.get("RANK", "0"))
        if not armed:
            armed.append(fault_hooks.Faults(json.loads(os.environ["FAULTS"]), os.environ["FAULT_LEDGER"], rank))
        strike_if_asked(rank)
        armed[0].before_optimizer(optimizer, args, kwargs)

    if os.environ.get("FAULTS"):
        fault_hooks.register_optimizer_step_pre_hook(before_optimizer)


if __name__ == "__main__":
    arm()
    runpy.run_module("areal.infra.rpc.rpc_server", run_name="__main__", alter_sys=True)
