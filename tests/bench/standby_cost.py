"""Step time of a training run beside its next interpreters, and the moment after without them.

usage: standby_cost.py SUPERVISE PYTHON [--rounds 60] [--seconds 3]

Each round is an attempt of one run of ../real/fsdp2_train.py: its interpreters import, wait, and are killed; then a rank is killed. Its steps
in the last seconds that they wait are compared with those of the first seconds without them, and so are the last seconds in which they import: what is close
together is alike in what else the machine does, which changes by a fifth within ten seconds. Of the rounds' ratios (mean and median step) the median is printed,
and what it is at most at 95 %, whatever they are distributed like (the order statistic of the sign test).
"""

import argparse
import itertools
import math
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import comeback
import processes

# The processes are looked at so often, in seconds: a look takes time of its own.
LOOK = 0.5


class Timed(comeback.Fsdp2):
    def words(self):
        return [*super().words(), "--times", "{dir}/times"]


def at_most(values):
    """The upper end of the one-sided 95 % interval of the median."""
    ordered, below = sorted(values), 0
    for rank in range(len(ordered)):
        below += math.comb(len(ordered), rank)
        if below >= 0.95 * 2 ** len(ordered):
            return ordered[rank]
    return math.inf


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    ratios, used = {}, 0
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        trainer = Timed(args.python, Path(place))
        run = comeback.Run("cost", trainer, comeback.command("standby", trainer, args.supervise))

        def steps(since, until):
            """Seconds that a step took between two moments: their mean, and the median."""
            ends = [float(line) for line in (run.folder / "times").read_text().splitlines()]
            within = [at for at in ends if since <= at <= until]
            took = [later - sooner for sooner, later in itertools.pairwise(within)]
            return {"mean": statistics.mean(took), "median": statistics.median(took)}

        try:
            for _ in range(args.rounds):
                run.step_after(run.trainer.steps(run.folder) + 1)
                run.wait("interpreters", lambda: len(run.ranks()[1]) == 2)
                run.ready(every=LOOK)
                # By then at the latest; at the look before they were not ready yet.
                imported = time.monotonic() - LOOK
                waiting = run.ranks()[1]
                before = processes.cpu_seconds(waiting)
                time.sleep(args.seconds + LOOK)
                used += processes.cpu_seconds(waiting) - before
                killed = time.monotonic()
                for pid in waiting:
                    os.kill(pid, signal.SIGKILL)
                run.wait("their end", lambda: not any(map(processes.stat, waiting)))
                gone = time.monotonic()
                time.sleep(args.seconds)
                without = steps(gone, gone + args.seconds)
                blocks = {"import": steps(imported - args.seconds, imported), "wait": steps(killed - args.seconds, killed)}
                for (name, block), kind in itertools.product(blocks.items(), without):
                    ratios.setdefault((name, kind), []).append(block[kind] / without[kind])
                run.kill()
        finally:
            run.end(False)
    print(f"fsdp2, while they wait: {used:.2f} s of processor time in {args.rounds * (args.seconds + LOOK):.0f} s, both together")
    for (name, kind), values in ratios.items():
        print(f"fsdp2, while they {name}: {kind} step x {statistics.median(values):.3f} (at most {at_most(values):.3f} at 95 %, {len(values)} rounds)")


if __name__ == "__main__":
    main()
