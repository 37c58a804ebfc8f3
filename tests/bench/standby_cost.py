"""Step time of a training run whose next interpreters import, wait, and are gone, in alternating blocks.

usage: standby_cost.py SUPERVISE PYTHON [--trainer fsdp2] [--rounds 8] [--seconds 10]

Each round is an attempt of one run: its interpreters import (a block until they are ready), wait (a block), are killed (a block without
any); then a rank is killed. Printed are the ratios to the block without any, their median and the upper end of the mean's 95 % interval.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import comeback
import processes

# One-sided 95 % of Student's distribution, by degrees of freedom.
STUDENT = {2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83, 11: 1.80, 15: 1.75, 19: 1.73}


def pace(run, wait):
    """Seconds a step takes until `wait` returns."""
    first, begun = run.trainer.steps(run.folder), time.monotonic()
    wait()
    return (time.monotonic() - begun) / max(run.trainer.steps(run.folder) - first, 1)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--trainer", choices=comeback.TRAINERS, default="fsdp2")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    ratios = {"import": [], "wait": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        trainer = comeback.TRAINERS[args.trainer](args.python, Path(place))
        run = comeback.Run("cost", trainer, comeback.command("standby", trainer, args.supervise))
        try:
            for _ in range(args.rounds):
                run.step_after(run.trainer.steps(run.folder) + 1)
                run.wait("interpreters", lambda: len(run.ranks()[1]) == 2)
                imports = pace(run, run.ready)
                waits = pace(run, lambda: time.sleep(args.seconds))
                for pid in run.ranks()[1]:
                    os.kill(pid, signal.SIGKILL)
                run.wait("their end", lambda: not any(map(processes.stat, run.ranks()[1])))
                none = pace(run, lambda: time.sleep(args.seconds))
                ratios["import"].append(imports / none)
                ratios["wait"].append(waits / none)
                run.kill()
        finally:
            run.end(False)
    for name, values in ratios.items():
        t = STUDENT[max(n for n in STUDENT if n <= len(values) - 1)]
        bound = statistics.mean(values) + t * statistics.stdev(values) / len(values) ** 0.5
        print(f"{args.trainer}, while they {name}: step time x {statistics.median(values):.3f} (mean at most {bound:.3f} at 95 %, {len(values)} rounds)")


if __name__ == "__main__":
    main()
