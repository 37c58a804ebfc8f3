"""Records what the processes of real areal runs use, healthy and hung, for the tests of stalls.

usage: record_areal_activity.py sft|ppo|turns OUT.json

Run it with the interpreter of install_areal.sh's environment, as root: the run has a network namespace of its own.

    sft  its SFT trainer in SPMD mode, two ranks over gloo, as record_activity.py records verl's: pieces of two seconds, by trace
    ppo  its PPO trainer: a controller, two actors, a rollout server (areal_ppo.py), looked at every ten seconds as a guard does. In one
         run each hang is asked for in turn, and let go of again: the windows before it are `healthy`, those after it `stalled`
    turns  the same with a larger model, longer answers and none that is behind: actors and rollout server take turns that are longer
         than a window. Those that sleep are left out: no CPU time at all tells them
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import areal_bench
import areal_ppo
from own_network import own_network
from record_activity import count, network, read, sample
from record_ppo_activity import descendants

HERE = Path(__file__).resolve().parent
LATE = 60  # a step that comes long after the imports
SFT = {
    "healthy": [],
    "one_sleeps": [{"kind": "hang", "step": LATE, "rank": 1}],
    "one_spins": [{"kind": "spin", "step": LATE, "rank": 1}],
    "one_spins_5": [{"kind": "spin", "step": LATE, "rank": 1, "share": 0.05}],
    "all_spin": [{"kind": "spin", "step": LATE, "rank": 0}, {"kind": "spin", "step": LATE, "rank": 1}],
}
PPO = {
    "actor_sleeps": {"1": "sleep"},
    "actor_spins": {"1": "spin"},
    "actors_spin": {"0": "spin", "1": "spin"},
    "rollout_sleeps": {"rollout": "sleep"},
    "rollout_spins": {"rollout": "spin"},
}
PIECE, WINDOW = 2.0, 10.0
STALLED = 6
LIMIT = 1200  # seconds for what takes one or two minutes


def until(true, run, log):
    limit = time.monotonic() + LIMIT
    while not true():
        if run.poll() is not None or time.monotonic() > limit:
            raise SystemExit(f"it did not get there:\n{Path(log).read_text()[-5000:]}")
        time.sleep(0.2)


def sft(work):
    return {name: sft_trace(name, faults, work / "model", work) for name, faults in SFT.items()}


def sft_trace(name, faults, model, work):
    root, log, ledger = work / name, work / f"{name}.log", work / f"{name}.ledger"
    (root / "names").mkdir(parents=True)
    yaml = work / f"{name}.yaml"
    yaml.write_text(areal_bench.YAML.format(root=root, model=model, steps=100000, batch=4, schedule="constant").partition("supervisor:")[0])
    env = dict(os.environ, AREAL_SPMD_MODE="1", TORCH_COMPILE_DISABLE="1", FAULTS=json.dumps(faults), FAULT_LEDGER=str(ledger), PYTHONWARNINGS="ignore")
    more = ["total_train_epochs=100000", "recover.mode=auto", "recover.freq_steps=1000000"]
    with open(log, "wb") as out:
        run = subprocess.Popen([HERE / "gang.sh", "2", sys.executable, HERE / "areal_faulty.py", "--config", yaml, *more],
                               env=env, stdout=out, stderr=subprocess.STDOUT)  # fmt: skip
        try:
            until(lambda: len(list(ledger.glob("fault-*"))) == len(faults) if faults else "Train step 20/" in log.read_text(), run, log)
            pids = [int(p) for p in read(f"/proc/{run.pid}/task/{run.pid}/children").split()]
            windows, before = [], None
            for _ in range(31 if faults else 61):
                before, window = sample(pids, before)
                windows += [window] if window else []
                time.sleep(PIECE)
        finally:
            run.terminate()
            run.wait()
    print(f"{name}: {len(windows)} windows", flush=True)
    return windows


class Tree:
    """Windows of all processes below one, whenever they begin and end. Each keeps its number."""

    def __init__(self, pid):
        self.pid, self.numbers, self.before = pid, {}, None

    def window(self):
        at, total = time.monotonic(), network()
        now = {p: c for p in [self.pid, *descendants(self.pid)] if (c := counts(p))}
        before, self.before = self.before, (at, total, now)
        if before is None:
            return None
        ranks = []
        for pid, c in now.items():
            n = self.numbers.setdefault(pid, len(self.numbers))
            was = before[2].get(pid, {})
            ranks.append({"n": n} | {k: v if k == "state" else v - was.get(k, 0) for k, v in c.items()})
        return {"over_ms": round(1000 * (at - before[0])), "network": total - before[1], "ranks": ranks}

    def windows(self, some):
        out = []
        while len(out) < some:
            time.sleep(WINDOW)
            window = self.window()
            out += [window] if window else []
        return out


def counts(pid):
    try:
        return count(pid)
    except (IndexError, ValueError):  # it is gone
        return None


def ppo(work, tokens=16, stale=1, windows=8, hangs=tuple(PPO)):
    root, log, ledger, yaml = work / "ppo", work / "ppo.log", work / "ledger", work / "ppo.yaml"
    (root / "names").mkdir(parents=True)
    asked = ledger / "asked"
    asked.mkdir(parents=True)
    yaml.write_text(areal_ppo.YAML.format(root=root, model=work / "model", steps=100000, tokens=tokens, stale=stale, freq=100000))
    traces = {}
    with open(log, "wb") as out:
        run = subprocess.Popen([sys.executable, HERE / "areal_ppo.py", "--config", yaml], env=areal_ppo.environment(work, ledger, [{"kind": "hang", "step": -1}]),
                               stdout=out, stderr=subprocess.STDOUT)  # fmt: skip
        try:
            until(lambda: "Train step 2/" in log.read_text(), run, log)
            tree = Tree(run.pid)
            for name, kinds in ((name, PPO[name]) for name in hangs):
                healthy = tree.windows(windows)
                for rank, kind in kinds.items():
                    os.mkfifo(asked / f"{rank}.go")
                    (asked / f"{rank}.new").write_text(kind)
                    (asked / f"{rank}.new").rename(asked / rank)
                while any((asked / rank).exists() for rank in kinds):
                    if run.poll() is not None:
                        raise SystemExit(f"{name}: it has ended:\n{log.read_text()[-5000:]}")
                    healthy += tree.windows(1)
                # In the last one it began, and what was under way goes on for a while.
                tree.windows(1)
                traces[name] = {"healthy": healthy[:-1], "stalled": tree.windows(STALLED)}
                for rank in kinds:
                    (asked / f"{rank}.go").write_text("go")
                    (asked / f"{rank}.go").unlink()
                print(f"{name}: {len(healthy)} windows, then {STALLED}", flush=True)
                tree.windows(1)
        finally:
            run.terminate()
            run.wait()
            for pid in areal_bench.processes(str(ledger)):
                os.kill(pid, 9)
    return traces


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["sft", "ppo", "turns"])
    p.add_argument("out", type=Path)
    p.add_argument("--work", type=Path)
    args = p.parse_args()
    own_network("10.77.0.1")
    with tempfile.TemporaryDirectory(prefix="areal-") as work:
        work = args.work or Path(work)
        work.mkdir(exist_ok=True)
        size = ["--hidden", "512", "--layers", "6"] if args.what == "turns" else []
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", work / "model", *size], check=True, stdout=subprocess.DEVNULL)
        how, run = {
            "sft": ("SFT, 2 CPU ranks over gloo", lambda: sft(work)),
            "ppo": ("PPO, a step in two seconds, 2 CPU actors and a rollout server", lambda: ppo(work)),
            "turns": ("PPO, a step in a minute, 2 CPU actors and a rollout server", lambda: ppo(work, tokens=64, stale=0, windows=12, hangs=("actor_spins", "rollout_spins"))),
        }[args.what]
        traces = run()
    rows = {"source": f"tests/real/record_areal_activity.py: areal 1.0.4 {how}"}
    args.out.write_text(lines(rows | traces) + "\n")


def lines(value, depth=0):
    """JSON with one window a line."""
    if isinstance(value, dict) and "over_ms" not in value:
        return "{" + ",\n".join(f"{json.dumps(k)}: {lines(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
