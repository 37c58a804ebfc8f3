"""Failures of torch itself under `supervise run`: a port that somebody else holds, and what its error handler writes.

usage: torch_failures.py PROGRAMS

A gang of two ranks whose port is taken before rank 0 listens: the class is that of a port, and the next attempt has another one. Ranks
whose `main` is wrapped by torch's `record`: each leaves its error file beside the attempt. The same program under torchrun, which starts
its ranks by itself: the file of the first that failed is there, too. Two ranks that each wait in a collective for the other, for ever:
found to be stuck, with the line at which each of them stood, and brought back. Ends with `4 passed`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = '''
import os, socket, subprocess, sys, time
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

HOLDS = "import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2]))); print(flush=True); time.sleep(600)"
rank, taken = int(os.environ["RANK"]), sys.argv[1] == "taken" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if taken and rank == 0:
    where = [os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]]
    subprocess.Popen([sys.executable, "-c", HOLDS, *where], stdout=subprocess.PIPE).stdout.readline()

@record
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    other = dist.new_group([0, 1])
    for step in range(1, 6):
        print("step", step, flush=True)
        if sys.argv[1] == "fails" and step == 3 and rank == 1:
            raise ValueError("the batch of rank 1 is empty")
        if sys.argv[1] == "deadlock" and step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            dist.barrier(group=other if rank else None)
        dist.barrier()
    dist.destroy_process_group()

main()
'''
GANG = ["gang.launcher=gang", "gang.workers=2", "gang.gpus=none"]


def run(programs, work, name, settings, command):
    """The exit code, the output, and the run directory of one run."""
    here = work / name
    (here / "home").mkdir(parents=True)
    env = dict(os.environ, HOME=str(here / "home"), PATH=f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    words = [word for s in ["trainer=plain", f"run_dir={here / 'run'}", "retries=1", *settings] for word in ("--set", f"supervisor.{s}")]
    done = subprocess.run([programs / "supervise", "run", *words, "--", *command], cwd=here, env=env, capture_output=True, text=True,
                          timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr, here / "run"


def attempts(folder):
    return sorted(path.name for path in (folder / "attempts").iterdir())


def message(file):
    return json.loads(file.read_text())["message"]


def main():
    programs = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work).resolve()
        train = work / "train.py"
        train.write_text(TRAIN)
        code, said, folder = run(programs, work, "port", GANG, [sys.executable, train, "taken"])
        assert code == 0 and "comm.port_in_use" in said and "EADDRINUSE" in said, said
        assert attempts(folder) == ["0001", "0002"], attempts(folder)

        code, said, folder = run(programs, work, "ranks", [*GANG, "retries=0"], [sys.executable, train, "fails"])
        told = message(folder / "attempts/0001/evidence/error-1.json")
        assert code != 0 and told["message"] == "ValueError: the batch of rank 1 is empty", (told, said)
        assert "in main" in told["extraInfo"]["py_callstack"], told

        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", train, "fails"]
        code, said, folder = run(programs, work, "torchrun", ["retries=0"], torchrun)
        told = message(folder / "attempts/0001/evidence/error-0.json")
        assert code != 0 and told["message"] == "ValueError: the batch of rank 1 is empty", (told, said)

        stall = ["stall.minimum=10s", "stall.factor=1.0", "stall.hard=20m"]
        code, said, folder = run(programs, work, "deadlock", [*GANG, *stall], [sys.executable, train, "deadlock"])
        assert code == 0 and "hang.step" in said and "longer than the hard limit" not in said, said
        assert attempts(folder) == ["0001", "0002"], attempts(folder)
        assert "workers 0, 1 wait in barrier (" in said, said
    print("4 passed")


if __name__ == "__main__":
    main()
