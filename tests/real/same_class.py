"""Two ranks under the real torchrun end in several ways: `supervise run` settles each with the class that `supervise diagnose` gives its logs.

usage: same_class.py PROGRAMS

A rank that is killed, that crashes, that raises, that runs out of memory and that exits. The rank that was killed is named. An exception whose
words nobody kept is read from torch's error file. Ends with `6 passed`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = """
import os, signal, sys
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def recorded():
    raise KeyError("loss")


how = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 4):
    if rank == 0:
        print(f"step:{step} - loss:0.5", flush=True)
    if rank == 1 and step == 3:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "raise":
            raise KeyError("loss")
        if how == "recorded":
            recorded()
        if how == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if how == "exit":
            os._exit(3)
    dist.barrier()
"""
# How rank 1 ends, and the class; `None`: whichever rank speaks first decides.
ENDS = {"kill": "kill.unknown", "crash": "native.crash", "raise": "code.type_key", "memory": "mem.cuda_oom", "exit": None}


def told(supervise: str, *words: str) -> dict:
    done = subprocess.run([supervise, *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main(supervise: str) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "t.py")
        script.write_text(TRAIN)
        for how, expected in ENDS.items():
            run = f"{place}/{how}"
            settings = ["supervisor.trainer=plain", f"supervisor.run_dir={run}", "supervisor.retries=0"]
            words = [word for setting in settings for word in ("--set", setting)]
            command = [str(torchrun), "--nproc_per_node", "2", str(script), how]
            subprocess.run([supervise, "run", *words, "--", *command], capture_output=True, cwd=place)
            found = told(supervise, "explain", run)["attempts"][-1]["diagnosis"]
            logs = told(supervise, "diagnose", "--exit-code", "1", f"{run}/attempts/0001/worker-0.log")
            assert found["class"] == logs["class"], (how, found, logs)
            assert expected in (None, found["class"]), (how, found)
            assert how != "kill" or found["text"].startswith("rank 1 under the launcher"), found
            print(f"{how}: {found['class']}")
        # Nobody keeps what torchrun prints.
        run = f"{place}/recorded"
        words = [word for s in ("trainer=plain", f"run_dir={run}", "retries=0") for word in ("--set", f"supervisor.{s}")]
        command = ["bash", "-c", f"exec {torchrun} --nproc_per_node 2 {script} recorded >/dev/null 2>&1"]
        subprocess.run([supervise, "run", *words, "--", *command], capture_output=True, cwd=place)
        found = told(supervise, "explain", run)["attempts"][-1]["diagnosis"]
        assert found["class"] == "code.type_key", found
        assert found["text"].startswith("the error file of worker 0: KeyError"), found
        print(f"recorded: {found['class']}")
    print(f"{len(ENDS) + 1} passed")


if __name__ == "__main__":
    main(str(Path(sys.argv[1], "supervise").resolve()))
