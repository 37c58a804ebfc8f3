"""Hangs in areal's own trainers, under `supervise`: found, named, ended, resumed.

usage: areal_stalls.py PROGRAMS [--ppo] [--work DIR] [--only CASE]

    sft        its SFT trainer, two ranks: one falls asleep inside a step, and with FULL=1 in the next attempt another one computes for ever inside
               a step. Every tensor and every loss is that of a run in one go
    ppo        with --ppo alone: its asynchronous PPO trainer (areal_ppo.py), a controller, two actors and a rollout server. The rollout server falls
               asleep, in the next attempt an actor does, then the other actor computes for ever, then the rollout server; ten minutes
    dies       with --ppo alone: its rollout server is killed before an answer; the trainer gives up, and the cause is named

The interpreter is that of install_areal.sh's environment. Each must be found long before the hard limit, though the controller's and the
workers' processes look around all the time. As root, in a network namespace of its own: what others send would pass for a sign of life.
Ends with `N passed, M failed`.
"""

import json
import re
import subprocess
import sys

import areal_bench
import areal_ppo
import areal_stage as stage
from areal_bench import HERE
from own_network import own_network
from recovery import FULL, places_named

STEPS = 16
PPO_STEPS = 90  # a multiple of what is saved
STALL = "  stall: {minimum: 10s, factor: 1.0, hard: 20m}\n"
SFT_FAULTS = [{"kind": "hang", "step": 4, "rank": 1}, {"kind": "spin", "step": 14, "rank": 0}][:2 if FULL else 1]
# An actor counts its steps anew in each attempt, the rollout server has the version of the weights.
PPO_FAULTS = [
    {"kind": "hang", "step": 18, "rank": "rollout"},
    {"kind": "hang", "step": 22, "rank": 1},
    {"kind": "spin", "step": 26, "rank": 0},
    {"kind": "spin", "step": 84, "rank": "rollout"},
]
DIES_STEPS = 20
DIES_FAULTS = [{"kind": "kill", "step": 8, "rank": "rollout"}]


def sft(b):
    case = b.case("sft", STEPS, gang=areal_bench.GANG + STALL, env={"FAULT_PACE": "5"})
    text = case.run(faults=SFT_FAULTS)
    told = stuck(text, len(SFT_FAULTS))
    for line, rank in zip(told, (1, 0)[:len(told)], strict=True):
        # On a busy machine too few windows may be free of other load to judge each rank by itself.
        assert f"worker {rank} (pid" in line or not FULL and "neither computed nor printed" in line, told
    case.right()
    # The place of each is in the evidence.
    places = [(1, "strike"), (0, "spin")][:len(told)]
    for texts, (rank, place) in zip(evidence(b, case.root), places, strict=True):
        places_named(texts, rank, place)


class PpoCase(areal_bench.Case):
    def steps(self, steps):
        self.yaml.write_text(areal_ppo.YAML.format(root=self.root, model=self.bench.stage.model, steps=steps, tokens=16, stale=1, freq=5) + areal_ppo.SUPERVISOR + STALL)

    def env(self, faults, user=stage.USER):
        return areal_ppo.environment(self.root.parent, self.ledger, faults) | {"LOGNAME": user, "FAULT_PACE": "1"}


def ppo(b):
    root = b.work / "ppo"
    (root / "names").mkdir(parents=True)
    case = PpoCase(b, root, {})
    case.steps(PPO_STEPS)
    text = case.run(faults=PPO_FAULTS, command=("python3", HERE / "areal_ppo.py", "scheduler.type=local"))
    stuck(text, len(PPO_FAULTS))
    evidence(b, root)
    assert stage.step_of(root) == PPO_STEPS, text[-4000:]


def dies(b):
    root = b.work / "dies"
    (root / "names").mkdir(parents=True)
    case = PpoCase(b, root, {})
    case.steps(DIES_STEPS)
    text = case.run(faults=DIES_FAULTS, command=("python3", HERE / "areal_ppo.py", "scheduler.type=local"))
    # The trainer gives up by itself: that it cannot reach the server is the cause, and no hang.
    ends = [(s.get("diagnosis") or {}).get("class") for s in stories(b, root) if s["attempt"]]
    assert ends[0] == "engine.http" and "stuck: " not in text, (ends, text[-8000:])
    assert stage.step_of(root) == DIES_STEPS, text[-4000:]


def stuck(text, some):
    print(*(line[:400] for line in text.splitlines() if "stuck" in line), sep="\n", flush=True)
    told = [line for line in text.splitlines() if "killing the workers" in line and "stuck: " in line]
    assert len(told) == some and not any("hard limit" in line for line in told), text[-8000:]
    return told


def stories(b, root):
    home = root / f"supervise/{stage.USER}/real/t0"
    said = subprocess.run([b.programs / "supervise", "explain", home, "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(said)["attempts"]


def evidence(b, root):
    hung = [s for s in stories(b, root) if (s.get("diagnosis") or {}).get("class") == "hang.step"]
    texts = [[p["text"] for p in s["account"]["evidence"]] for s in hung]
    print(*texts, sep="\n", flush=True)
    return texts


if __name__ == "__main__":
    own_network("10.77.0.1")
    cases = [ppo, dies] if "--ppo" in sys.argv else [sft]
    sys.argv = [a for a in sys.argv if a != "--ppo"]
    sys.exit(areal_bench.main(cases, STEPS))
