"""areal's SFT trainer on two ranks under `supervise`, asked to save in its first step and killed in a later one: the same tensors as in one go.

usage: areal_requests.py PROGRAMS [--work DIR] [--only NAME]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of areal's environment. Ends with `N passed, M failed`.
"""

import json
import sys
import threading

import areal_bench
import areal_stage as stage
from asking import request

STEPS = 6


def killed_after_a_save_that_was_asked_for(b):
    case = b.case("asked", STEPS)
    attempt = case.root / f"supervise/{stage.USER}/real/t0/attempts/0001"
    # The trainer starts for longer than this takes.
    threading.Thread(target=request, args=(attempt / "save-request", 1), daemon=True).start()
    faults = [{"kind": "kill", "step": 3, "rank": 1}]
    # No step waits for a copy of the one before it: only one is saved.
    env = case.env(faults) | {"KEPT": "", "FAULT_PACE": "2"}
    said = case.run("--set", "recover.freq_steps=3", faults=faults, env=env)
    answers = [json.loads(line) for line in (attempt / "save-answers").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == [1], answers
    assert f"resume from step {answers[0]['step']}" in said or f"resumed from {answers[0]['step']}" in said, said
    case.right()


if __name__ == "__main__":
    sys.exit(areal_bench.main([killed_after_a_save_that_was_asked_for], STEPS))
