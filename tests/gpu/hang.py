"""A real CUDA training that hangs in a kernel, under `supervise run`: found by its GPU, ended, and brought back.

usage: hang.py SUPERVISE            needs a GPU, and an interpreter with torch and triton

Prints what the program that follows GPUs used meanwhile. Ends with `N passed, M failed`; 77 where there is no GPU.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
import processes  # noqa: E402

SETS = {"trainer": "plain", "gang.launcher": "gang", "gang.workers": 1, "gang.gpus": "[0]", "stall.minimum": "5s", "stall.factor": 1.0,
        "backoff.initial": "0s", "retries": 3}

# Seconds of the run at which the follower of the GPUs is looked at, while all is well.
LOOKS = (25.0, 45.0)


def cost_of_following(cost):
    """Processor time and private memory of this program's `nvidia-smi --loop`, from outside."""
    used = []
    began = time.monotonic()
    for at in LOOKS:
        time.sleep(max(0.0, began + at - time.monotonic()))
        found = [pid for pid in processes.descendants(os.getpid()) if "--loop" in processes.command_line(pid)]
        used.append((found, processes.cpu_seconds(found), sum(map(processes.private_kib, found)) / 1024))
    (first, before, _), (last, after, mib) = used
    cost |= {"followers": len(last), "the_same": first == last, "cpu_ms": round((after - before) * 1000, 1),
             "seconds": LOOKS[1] - LOOKS[0], "private_mib": round(mib, 1)}


def main():
    if not Path("/dev/nvidia0").exists():
        print("skipped: no GPU (/dev/nvidia0)")
        sys.exit(77)
    supervise = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for key, value in {**SETS, "run_dir": f"{folder}/run"}.items() for word in ("--set", f"supervisor.{key}={value}")]
        cost = {}
        threading.Thread(target=cost_of_following, args=(cost,), daemon=True).start()
        done = subprocess.run([supervise, "run", *sets, "--", sys.executable, "-u", str(HERE / "hang_train.py"), folder],
                              capture_output=True, text=True, timeout=400)
        told = subprocess.run([supervise, "explain", f"{folder}/run", "--attempt", "1"], capture_output=True, text=True)
        said = done.stdout + done.stderr
        checks = {
            "one program followed the GPUs": cost.get("followers") == 1 and cost["the_same"],
            "it ended well": done.returncode == 0,
            "it hung once": Path(folder, "hung").exists(),
            "its GPU was seen to spin": "GPU 0 spins (100 % busy, 0 % at its memory" in said,
            "soon, and not by the hard limit": "longer than the hard limit" not in said,
            "it was brought back once": len(list(Path(folder).glob("run/attempts/*/worker-0.log"))) == 2,
            "evidence holds what the driver says": any("Gpu" in f.read_text() or "GPU" in f.read_text()
                                                       for f in Path(folder).glob("run/attempts/*1/evidence/gpu.txt")),
        }
        for name, held in checks.items():
            print("ok" if held else "FAILED", name)
        stuck = [line for line in said.splitlines() if "stuck" in line]
        print("\n".join(stuck or said.splitlines()[-40:]))
        print(told.stdout or told.stderr)
    print(json.dumps({"hang": stuck[:1], "following": cost}))
    failed = sum(not held for held in checks.values())
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
