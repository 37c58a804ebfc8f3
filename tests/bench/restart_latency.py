"""Times a launcher that keeps a gang of idle workers alive: start, restart after a kill, memory, idle CPU.

usage: restart_latency.py NAME [--workers 4] [--rounds 10] [--idle 10] -- COMMAND...

COMMAND must keep WORKERS copies of idle_worker running, each of which appends its
start time to the file named by STAMPS. Each round kills one of them with SIGKILL and
waits until WORKERS new ones have started. Printed is one JSON object; times in ms,
as [least, median, most]:

    cold    launcher's start -> first instruction of the last worker (one sample)
    first   kill -> first instruction of the first new worker
    all     kill -> first instruction of the last new worker
    private_mib, idle_cpu_percent: of everything the launcher runs except the workers
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


def started(stamps):
    """(start time in ns, pid) of each worker so far, in order of the file."""
    if not stamps.exists():
        return []
    return [tuple(map(int, line.split()[:2])) for line in stamps.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(stamps, count, launcher, limit=120):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        rows = started(stamps)
        if len(rows) >= count:
            return rows
        if launcher.poll() is not None:
            raise RuntimeError(f"the launcher ended with {launcher.returncode} at {len(rows)} of {count} starts")
        time.sleep(0.002)
    raise RuntimeError(f"{len(started(stamps))} of {count} workers started in {limit} s")


def spread(values):
    return [round(f(values), 1) for f in (min, statistics.median, max)] if values else None


def idle(launcher, tag, workers, seconds):
    """Private memory and CPU share of the launcher's own processes while nothing happens."""
    time.sleep(2)
    own = [pid for pid in processes.of_launcher(launcher.pid, tag) if pid not in workers]
    memory = sum(map(processes.private_kib, own)) / 1024
    before = processes.cpu_seconds(own)
    time.sleep(seconds)
    share = (processes.cpu_seconds(own) - before) / seconds * 100
    return {
        "processes": [processes.command_line(pid)[:60].strip() for pid in own],
        "private_mib": round(memory, 1),
        "idle_cpu_percent": round(share, 2),
    }


def measure(name, command, workers, rounds, seconds):
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    stamps, log = folder / "stamps", folder / "log"
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    command = [word.replace("{dir}", str(folder)) for word in command]
    launcher = processes.start(command, folder.name, log, STAMPS=str(stamps), OMP_NUM_THREADS="1")
    result = {"name": name, "workers": workers}
    first, last = [], []
    try:
        rows = wait_for(stamps, workers, launcher)
        result["cold_ms"] = round((max(at for at, _ in rows) - begin) / 1e6, 1)
        result |= idle(launcher, folder.name, {pid for _, pid in rows}, seconds)
        for _ in range(rounds):
            victim = random.choice(rows[-workers:])[1]
            killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            os.kill(victim, signal.SIGKILL)
            rows = wait_for(stamps, len(rows) + workers, launcher)
            fresh = sorted(at for at, _ in rows[-workers:])
            first.append((fresh[0] - killed) / 1e6)
            last.append((fresh[-1] - killed) / 1e6)
            time.sleep(random.uniform(0.7, 1.7))
    except RuntimeError as error:
        result["stuck"] = f"{error}; see {log}"
    finally:
        processes.end(launcher, folder.name)
    if "stuck" not in result:
        shutil.rmtree(folder)
    return result | {"rounds": len(last), "first_ms": spread(first), "all_ms": spread(last)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("name")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle", type=float, default=10)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:split])
    print(json.dumps(measure(args.name, sys.argv[split + 1 :], args.workers, args.rounds, args.idle)))


if __name__ == "__main__":
    main()
