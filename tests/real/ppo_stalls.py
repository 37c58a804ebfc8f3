"""Hangs in verl's own PPO trainer, over its own Ray, under `supervise`: found, ended, resumed.

usage: ppo_stalls.py PROGRAMS [--work DIR] [--sleeps]

One run in which a worker computes for ever inside a step; with --sleeps, one in which it falls asleep instead. Ray's processes
wake up a hundred times a second whatever the training does: the hang must be found by what the processes did while they were well, long
before the hard limit. As root, the run has a network namespace of its own: what others send would pass for a sign of life. Ends with `N passed, M failed`.
"""

import functools
import json
import subprocess
import sys

import ppo_recovery as ppo
from own_network import own_network

STEPS = 34
STALL = "  stall: {minimum: 15s, factor: 1.0, hard: 20m}\n"
# Steps of a worker's optimizers, two for each of the trainer's: counted anew by each attempt.
SLEEPS, SPINS = {"kind": "hang", "step": 40, "rank": 1}, {"kind": "spin", "step": 44, "rank": 0}


def found_and_brought_back(fault, programs, work, model):
    folder = work / "stalls"
    root = folder / "checkpoints"
    folder.mkdir(parents=True)
    text = ppo.YAML.format(model=model, root=root, here=ppo.HERE, steps=STEPS).replace("save_freq: 1\n", "save_freq: 10\n") + STALL
    (folder / "ppo.yaml").write_text(text)
    env = dict(ppo.ENV, FAULTS=json.dumps([fault]), FAULT_LEDGER=str(folder / "ledger"), FAULT_PACE="1")
    said = ppo.call([programs / "supervise", "run", folder / "ppo.yaml", "--", sys.executable, "-m", "verl.trainer.main_ppo",
                     f"hydra.run.dir={folder}/hydra"], env)
    print(*(line[:300] for line in said.splitlines() if "stuck" in line), sep="\n")
    assert len(list((folder / "ledger").iterdir())) == 1, f"the fault was not seen:\n{said}"
    told = [line for line in said.splitlines() if "killing the workers" in line and "stuck: " in line]
    assert len(told) == 1 and not any("hard limit" in line for line in told), said
    stories = json.loads(subprocess.run([programs / "supervise", "explain", root, "--json"], capture_output=True, text=True, check=True).stdout)
    kinds = [s["diagnosis"]["class"] for s in stories["attempts"] if s.get("diagnosis")]
    assert kinds == ["hang.step"], kinds
    assert (root / f"global_step_{STEPS}").is_dir(), said


if __name__ == "__main__":
    own_network()
    sleeps = "--sleeps" in sys.argv
    if sleeps:
        sys.argv.remove("--sleeps")
    sys.exit(ppo.main(functools.partial(found_and_brought_back, SLEEPS if sleeps else SPINS)))
