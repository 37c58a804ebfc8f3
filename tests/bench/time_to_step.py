"""Kills ranks of a real training run: how long until the next new training step is on record?

usage: time_to_step.py NAME [--kills 20] [--pattern fsdp2_train.py] -- COMMAND...

COMMAND runs fsdp2_train.py (or any trainer that appends {"step": N} lines to
losses.jsonl) with {dir} for its directory. Each kill is a SIGKILL of a random rank
after two more steps; the clock stops at the first line with a step larger than any
before the kill. Printed is one JSON object; times in ms, as [least, median, most].
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import processes


def newest(losses):
    if not losses.exists():
        return 0
    lines = losses.read_text().splitlines(keepends=True)
    return max((json.loads(line)["step"] for line in lines if line.endswith("\n")), default=0)


def wait(losses, step, launcher, limit=120):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if newest(losses) >= step:
            return time.monotonic()
        if launcher.poll() is not None:
            raise RuntimeError(f"the launcher ended with {launcher.returncode} before step {step}")
        time.sleep(0.01)
    raise RuntimeError(f"step {step} not on record within {limit} s")


def ranks(launcher, tag, pattern):
    """The training processes themselves: they match the pattern and were given a rank."""
    mine = processes.of_launcher(launcher.pid, tag)
    return [p for p in mine if pattern in processes.command_line(p) and processes.environment(p, "RANK") is not None]


def measure(name, command, kills, pattern):
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    run, log = folder / "run", folder / "log"
    run.mkdir()
    losses = run / "losses.jsonl"
    begin = time.monotonic()
    command = [word.replace("{dir}", str(run)) for word in command]
    launcher = processes.start(command, folder.name, log, OMP_NUM_THREADS="1")
    result, took = {"name": name}, []
    try:
        result["cold_to_step1_ms"] = round((wait(losses, 1, launcher) - begin) * 1e3)
        for _ in range(kills):
            wait(losses, newest(losses) + 2, launcher)
            victim = random.choice(ranks(launcher, folder.name, pattern))
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            # The other ranks may still finish the step they are in.
            time.sleep(0.15)
            took.append((wait(losses, newest(losses) + 1, launcher) - killed) * 1e3)
    except RuntimeError as error:
        result["stuck"] = f"{error}; see {log}"
    finally:
        processes.end(launcher, folder.name)
    if "stuck" not in result:
        shutil.rmtree(folder)
    spread = [round(f(took)) for f in (min, statistics.median, max)] if took else None
    return result | {"kills": len(took), "kill_to_step_ms": spread}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("name")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pattern", default="fsdp2_train.py")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:split])
    print(json.dumps(measure(args.name, sys.argv[split + 1 :], args.kills, args.pattern)))


if __name__ == "__main__":
    main()
