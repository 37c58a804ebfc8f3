"""Hangs that look alive, in a real FSDP2 training (fsdp2_train.py), two ranks over gloo, under `supervise`: found, named, ended, resumed.

usage: fsdp2_stalls.py PROGRAMS [--work DIR]

A rank spins at 5 % of a core inside a step. With FULL=1 beside it, in a second run, one prints a heartbeat each second and takes no step:
neither is still, and each must be found by what its ranks did while they were well, long before the hard limit (that may end it without
FULL=1, beside other tests). The weights at the end
are those of a run without faults, and the rank stands where it hung. As root, each run has a network namespace of its own: what the other
one sends would pass for a sign of life. Ends with `N passed, M failed`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from own_network import own_network
from recovery import FULL, places_named

HERE = Path(__file__).resolve().parent
STEPS, PACE, BATCH = 57, 1, 256
LIMIT = 1500  # seconds: only a hang that nobody finds takes so long
SETS = {"trainer": "plain", "gang.launcher": "gang", "gang.workers": 2, "gang.gpus": "none", "backoff.initial": "0s", "retries": 3,
        "stall.minimum": "10s", "stall.factor": 1.0, "stall.hard": "20m" if FULL else "8m"}
# Healthy for a minute before, on a third of a core: a profile takes four windows of ten, of steps alone, and whoever uses less than 5 %
# of one hardly tells. Beside other tests, that rank may get so little of a core that it counts as waiting, and no window may be free
# enough of other load to judge a rank: then the whole tree is judged, or the hard limit ends it.
SPINS = r"worker 1 \(pid \d+\) spins: [1-9] % of a core"
STARVED = r"worker 1 \(pid \d+\) waits|neither computed nor printed|hard limit"
CASES = {
    "spins": ({"kind": "spin", "step": 55, "rank": 1, "share": 0.05}, SPINS if FULL else f"{SPINS}|{STARVED}", "spin"),
    "chats": ({"kind": "chat", "step": 55, "rank": 1}, r"worker 1 \(pid \d+\) waits", "chat"),
}
ENV = dict(os.environ, OMP_NUM_THREADS="1")
TRAIN = [sys.executable, "-u", HERE / "fsdp2_train.py", "--batch", BATCH]


def call(argv, env):
    done = subprocess.run([str(a) for a in argv], env=env, timeout=LIMIT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


def weights(text):
    return re.findall(rf"final step {STEPS}, weights (\w+)", text)


def one(name, programs, work, wanted):
    own_network()
    fault, named, place = CASES[name]
    run, ledger = work / "run", work / "ledger"
    sets = [word for key, value in {**SETS, "run_dir": run}.items() for word in ("--set", f"supervisor.{key}={value}")]
    env = dict(ENV, FAULTS=json.dumps([fault]), FAULT_LEDGER=str(ledger), FAULT_PACE=str(PACE))
    said = call([programs / "supervise", "run", *sets, "--", *TRAIN, work / "out", STEPS], env)
    told = [line for line in said.splitlines() if "killing the workers" in line and "stuck: " in line]
    print(*told, sep="\n")
    assert len(told) == 1 and re.search(named, told[0]) and not (FULL and "hard limit" in told[0]), "\n".join([said, "lines of the hang:", *told])
    began = json.loads((ledger / "fault-0").read_text())["at"]
    logs = sorted(run.glob("attempts/*/worker-*.log"))
    beats = sum(log.read_text(errors="replace").count("heartbeat ") for log in logs)
    assert beats >= 20 if fault["kind"] == "chat" else not beats, f"{beats} heartbeats"
    stories = json.loads(call([programs / "supervise", "explain", run, "--json"], ENV))["attempts"]
    stories = [s for s in stories if s["attempt"]]
    hung = [s for s in stories if (s.get("diagnosis") or {}).get("class") == "hang.step"]
    assert len(hung) == 1 and len(stories) == 2, stories
    stands = [p["text"] for p in hung[0]["account"]["evidence"]]
    places_named(stands, 1, place)
    got = [w for log in logs for w in weights(log.read_text(errors="replace"))]
    assert got == [wanted], (got, wanted)
    print(f"{hung[0]['account']['at'] / 1000 - began:.0f} s from the fault to the end of the attempt")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("programs", type=Path)
    p.add_argument("--work", type=Path)
    p.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    p.add_argument("--weights", help=argparse.SUPPRESS)
    args = p.parse_args()
    programs = args.programs.resolve()
    if args.case:
        return one(args.case, programs, args.work, args.weights)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        work = (args.work or Path(work)).resolve()
        [wanted] = weights(call([HERE / "gang.sh", 2, *TRAIN, work / "straight", STEPS], ENV))
        runs, names = {}, list(CASES) if FULL else ["spins"]
        for name in names:
            (work / name).mkdir(parents=True)
            argv = [sys.executable, __file__, programs, "--case", name, "--work", work / name, "--weights", wanted]
            runs[name] = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for name, run in runs.items():
            said, _ = run.communicate()
            failed += run.returncode != 0
            print(f"{'FAILED' if run.returncode else 'ok'} {name}\n{said}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
