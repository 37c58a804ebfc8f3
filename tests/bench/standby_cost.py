"""Step time of a training run whose next interpreters import, wait, and are gone, in alternating blocks.

usage: standby_cost.py SUPERVISE PYTHON [--rounds 20] [--seconds 10]

Each round is an attempt of one run of ../real/fsdp2_train.py: its interpreters import (a block until they are ready), wait (a block), are
killed (a block without any); then a rank is killed. Printed are the ratios to the block without any, of the mean step and
of the median one, which leaves out what else the machine did meanwhile: the median of the rounds, and the upper end of their mean's 95 % interval.
"""

import argparse
import itertools
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


class Timed(comeback.Fsdp2):
    def words(self):
        return [*super().words(), "--times", "{dir}/times"]


def pace(run, wait):
    """Seconds that a step takes until `wait` returns: their mean, and the median."""
    begun = time.monotonic()
    wait()
    ends = [float(line) for line in (run.folder / "times").read_text().splitlines()]
    within = [at for at in ends if begun <= at <= time.monotonic()]
    steps = [later - sooner for sooner, later in itertools.pairwise(within)]
    return statistics.mean(steps), statistics.median(steps)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    ratios, used = {}, 0
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        trainer = Timed(args.python, Path(place))
        run = comeback.Run("cost", trainer, comeback.command("standby", trainer, args.supervise))
        try:
            for _ in range(args.rounds):
                run.step_after(run.trainer.steps(run.folder) + 1)
                run.wait("interpreters", lambda: len(run.ranks()[1]) == 2)
                # A look at all processes takes time of its own.
                imports = pace(run, lambda: run.ready(every=0.5))
                waiting = run.ranks()[1]
                before = processes.cpu_seconds(waiting)
                waits = pace(run, lambda: time.sleep(args.seconds))
                used += processes.cpu_seconds(waiting) - before
                for pid in waiting:
                    os.kill(pid, signal.SIGKILL)
                run.wait("their end", lambda: not any(map(processes.stat, run.ranks()[1])))
                none = pace(run, lambda: time.sleep(args.seconds))
                for name, block in {"import": imports, "wait": waits}.items():
                    for kind, with_them, without in zip(("mean", "median"), block, none):
                        ratios.setdefault((name, kind), []).append(with_them / without)
                run.kill()
        finally:
            run.end(False)
    print(f"fsdp2, while they wait: {used:.2f} s of processor time in {args.rounds * args.seconds:.0f} s, both together")
    for (name, kind), values in ratios.items():
        t = STUDENT[max(n for n in STUDENT if n <= len(values) - 1)]
        bound = statistics.mean(values) + t * statistics.stdev(values) / len(values) ** 0.5
        print(f"fsdp2, while they {name}: {kind} step x {statistics.median(values):.3f} (mean at most {bound:.3f} at 95 %, {len(values)} rounds)")


if __name__ == "__main__":
    main()
