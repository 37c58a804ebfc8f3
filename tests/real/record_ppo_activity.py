"""Records what the processes of a real verl PPO run use, before and after a rank hangs or spins, for the tests of stalls.

usage: record_ppo_activity.py OUT.json

Run it with the interpreter of the environment that install.sh makes. Each run (main_ppo, its own Ray, two FSDP2 workers, a critic; see
ppo_recovery.py) trains until a worker sleeps or computes for ever inside a step (fault_hooks.py). Its processes are looked at every ten
seconds, as a guard does: the windows before that are `healthy`, those after it `stalled`. Each process is a rank of its own, since one
driver started them all. To be run as root: the run has a network namespace of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ppo_recovery as ppo
from own_network import own_network
from record_activity import read, sample

EVERY = 10.0
WINDOWS = 8
AT = 40  # an optimizer's step of the worker, of actor and critic together
TRACES = {
    "one_sleeps": [{"kind": "hang", "step": AT, "rank": 1}],
    "one_spins": [{"kind": "spin", "step": AT, "rank": 1}],
    "one_spins_5": [{"kind": "spin", "step": AT, "rank": 1, "share": 0.05}],
    "all_spin": [{"kind": "spin", "step": AT, "rank": 0}, {"kind": "spin", "step": AT, "rank": 1}],
}


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in read(task / "children").split():
            found += [int(child), *descendants(int(child))]
    return found


def windows(pids, until):
    """Windows until something holds; the last one, in which it began to, is dropped."""
    before, out = sample(pids, None)[0], []
    while not until(out):
        time.sleep(EVERY)
        before, window = sample(pids, before)
        out.append(window)
    return out


def trace(name, model, work):
    folder, faults = work / name, TRACES[name]
    folder.mkdir()
    (folder / "ppo.yaml").write_text(ppo.YAML.format(model=model, root=folder / "checkpoints", here=ppo.HERE, steps=1000)
                                     .replace("save_freq: 1\n", "save_freq: 1000\n").partition("supervisor:")[0])
    ledger = folder / "ledger"
    env = dict(ppo.ENV, FAULTS=json.dumps(faults), FAULT_LEDGER=str(ledger), FAULT_PACE="1", RAY_AUTH_MODE="disabled")
    with open(folder / "log", "w+b") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(folder), "--config-name", "ppo", f"hydra.run.dir={folder}/hydra"],
            env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            limit = time.monotonic() + 900
            while b"step:1 " not in Path(log.name).read_bytes():
                if run.poll() is not None or time.monotonic() > limit:
                    raise SystemExit(f"{name}: it did not get there:\n{Path(log.name).read_text()[-3000:]}")
                time.sleep(0.2)
            pids = [run.pid, *descendants(run.pid)]
            healthy = windows(pids, lambda _: ledger.is_dir() and len(list(ledger.iterdir())) == len(faults))[:-1]
            stalled = windows(pids, lambda out: len(out) == WINDOWS)
        finally:
            run.terminate()
            run.wait()
    print(f"{name}: {len(healthy)} windows, then {len(stalled)}", flush=True)
    return {"healthy": healthy, "stalled": stalled}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", type=Path)
    args = p.parse_args()
    own_network()
    with tempfile.TemporaryDirectory(prefix="sv-ppo-") as work:
        work = Path(work)
        ppo.call([sys.executable, ppo.HERE / "make_tiny_model.py", work / "model"], ppo.ENV)
        traces = {name: trace(name, work / "model", work) for name in TRACES}
    rows = [f'"{name}": {{' + ",\n".join(f'"{part}": [\n' + ",\n".join(json.dumps(w) for w in ws) + "\n]" for part, ws in t.items()) + "}"
            for name, t in traces.items()]
    source = "tests/real/record_ppo_activity.py: verl's main_ppo over its own Ray, 2 CPU ranks"
    args.out.write_text('{\n"source": ' + json.dumps(source) + ",\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
