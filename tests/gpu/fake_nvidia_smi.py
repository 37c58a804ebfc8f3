#!/usr/bin/env python3
"""Answers as nvidia-smi where there is no GPU: the trainer of FAKE_LEDGER holds 40 GiB, and what stands by holds none."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
import processes  # noqa: E402

SAID = {"index": "0", "uuid": "GPU-0", "name": "none", "driver_version": "0", "persistence_mode": "Disabled", "memory.total": "81559",
        "ecc.errors.uncorrected.volatile.total": "0", "retired_pages.pending": "[N/A]",
        "power.draw": "300.00", "utilization.gpu": "60", "utilization.memory": "40"}


def trainers():
    ledger = os.environ["FAKE_LEDGER"]
    mine = [pid for pid in processes.pids() if (processes.environment(pid, "FAULT_LEDGER") or "").startswith(ledger) and processes.stat(pid)]
    ranks = [pid for pid in mine if processes.environment(pid, "RANK") is not None]
    return [pid for pid in ranks if processes.environment(pid, "SUPERVISE_ATTEMPT") or not processes.environment(pid, "SUPERVISE_AWAITED")]


def main():
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    while True:
        if "--query-gpu" in words:
            said = SAID | {"memory.used": str(3 + 40960 * len(trainers()))}
            print(", ".join(said[field] for field in words["--query-gpu"].split(",")), flush=True)
        for pid in trainers() if "--query-compute-apps" in words else []:
            print(f"{pid}, 40960" if words["--query-compute-apps"].startswith("pid") else f"GPU-0, {pid}, python, 40960")
        if "-lms" in sys.argv:
            time.sleep(int(sys.argv[sys.argv.index("-lms") + 1]) / 1e3)
        elif "--loop" in words:
            time.sleep(float(words["--loop"]))
        else:
            break


if __name__ == "__main__":
    main()
