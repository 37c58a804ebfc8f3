"""Trainers that are asked to save under `supervise run`: at the start, in a step, in the last step; one rank is killed after it.

usage: save_requests.py PROGRAMS [--work DIR] [--only NAME]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the environment that install.sh makes. Each run ends with the weights and
the optimizer of one that was never asked, bit for bit, although it went on from a save that was asked for. Ends with `N passed, M failed`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import hf_recovery
import ppo_recovery
import recovery
from asking import request, wait_for
from recovery import FULL

LIMIT = 900
AT_START, MIDDLE, KILLED = 1, 3, 5


class Asking(threading.Thread):
    """Asks in these steps of an attempt, each of which rank 0 holds until it was asked."""

    def __init__(self, run_dir, ledger, steps):
        super().__init__(daemon=True)
        self.run_dir, self.ledger, self.steps, self.failed = run_dir, ledger, steps, None

    def run(self):
        try:
            for number, (attempt, step) in enumerate(self.steps, 1):
                fault = [n for n, f in enumerate(self.faults()) if f["kind"] == "hold" and f["step"] == step][0]
                wait_for(lambda: any(entry.name == f"fault-{fault}" for entry in listed(self.ledger)), f"step {step} to begin")
                request(self.run_dir / f"attempts/{attempt:04}/save-request", number)
                (self.ledger / f"go-{step}").touch()
        except Exception as e:
            self.failed = e

    def faults(self):
        held = [{"kind": "hold", "step": step, "rank": 0} for _, step in self.steps]
        return [*held, {"kind": "kill", "step": KILLED, "rank": 1}]

    def check(self, saved):
        self.join(LIMIT)
        assert not self.is_alive() and self.failed is None, self.failed
        said = {}
        for attempt in {attempt for attempt, _ in self.steps}:
            lines = (self.run_dir / f"attempts/{attempt:04}/save-answers").read_text().splitlines()
            said |= {answer["id"]: answer["step"] for answer in map(json.loads, lines)}
        assert said == {number: step for number, (_, step) in enumerate(self.steps, 1)}, said
        assert saved == [AT_START, MIDDLE, self.steps[-1][1]], saved


def listed(folder):
    return list(folder.iterdir()) if folder.is_dir() else []


def hugging_face(programs, work):
    """Trainer on two ranks under torchrun, with dropout."""
    b = hf_recovery.Bench(programs, work)
    straight, out, last = work / "straight", work / "asked", 6
    command = [*hf_recovery.TORCHRUN, *hf_recovery.flags(out, last, 100)]
    alone = b.start([*hf_recovery.TORCHRUN, *hf_recovery.flags(straight, last, 100)])
    plan = json.loads(b.call([programs / "supervise", "plan", "--json", "--", *command]))
    assert plan["save_requests"] == {"possible": True, "how": "a callback of transformers"}, plan["save_requests"]
    ledger = work / "asked.ledger"
    asking = Asking(out / ".supervise", ledger, [(1, AT_START), (1, MIDDLE), (2, last)])
    process = b.start([programs / "supervise", "run", *hf_recovery.OURS, "--", *command], faults=asking.faults(), ledger=ledger)
    asking.start()
    said = b.end(process, 0)
    b.end(alone, 0)
    assert f"resume from checkpoint-{MIDDLE}" in said, said
    asking.check(steps_of(out, "checkpoint-"))
    hf_recovery.same(out / f"checkpoint-{last}", straight / f"checkpoint-{last}")


def hugging_face_follows_its_flag(programs, work):
    """Trainer alone goes on with the interval in trainer_state.json."""
    b = hf_recovery.Bench(programs, work)
    out = work / "flag"
    supervise = [programs / "supervise", "run", *hf_recovery.OURS]
    b.call([*supervise, "--", sys.executable, *hf_recovery.flags(out, 2, 2)])
    b.call([*supervise, "--", sys.executable, *hf_recovery.flags(out, 5, 1)])
    assert steps_of(out, "checkpoint-") == [2, 3, 4, 5], steps_of(out, "checkpoint-")


def verl_sft(programs, work):
    """verl's SFT trainer on two ranks, FSDP2."""
    b = recovery.Bench(programs, work)
    last = 6
    seldom = ["--set", "trainer.save_freq=100", "--set", f"trainer.total_training_steps={last}"]
    folder, root = b.case("asked")
    straight = work / "straight"
    over = ["trainer.save_freq=100", f"trainer.total_training_steps={last}"]
    alone = subprocess.Popen([recovery.HERE / "sft.sh", Path(sys.executable).parent.parent, b.model, straight, *over],
                             env=dict(recovery.ENV, LOG_DIR=str(work / "log")), cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asking = Asking(root / ".supervise", folder / "ledger", [(1, AT_START), (1, MIDDLE), (2, last)])
    asking.start()
    # The files of the ledger are also those of what was let go.
    env = dict(recovery.ENV, FAULTS=json.dumps(asking.faults()), FAULT_LEDGER=str(folder / "ledger"))
    argv = ["run", folder / "sft.yaml", *seldom, "--", sys.executable, "-m", "verl.trainer.sft_trainer", f"hydra.run.dir={folder}/hydra"]
    done = b.supervise(*argv, env=env)
    assert alone.wait(LIMIT) == 0
    assert f"resume from global_step_{MIDDLE}" in done.stdout, done.stdout
    asking.check(steps_of(root, "global_step_"))
    b.call([sys.executable, recovery.HERE / "compare_pt.py", straight / f"global_step_{last}", root / f"global_step_{last}"])


def verl_ppo(programs, work, v1):
    """verl's PPO trainer in a worker of its own Ray: asked as it starts."""
    root, model = work / "checkpoints", work / "model"
    ppo_recovery.call([sys.executable, recovery.HERE / "make_tiny_model.py", model], ppo_recovery.ENV)
    text = ppo_recovery.YAML.format(model=model, root=root, here=recovery.HERE, steps=3)
    (work / "ppo.yaml").write_text(text.replace("save_freq: 1", "save_freq: 100"))
    threading.Thread(target=request, args=(root / ".supervise/attempts/0001/save-request", 1), daemon=True).start()
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"trainer.use_v1={v1}", f"hydra.run.dir={work}/hydra"]
    ppo_recovery.call([programs / "supervise", "run", work / "ppo.yaml", "--", *command], ppo_recovery.ENV)
    answers = (root / ".supervise/attempts/0001/save-answers").read_text().splitlines()
    assert [(a["id"], a["step"]) for a in map(json.loads, answers)] == [(1, 1)], answers
    assert steps_of(root, "global_step_") == [1, 3], steps_of(root, "global_step_")
    for role in ("actor", "critic"):
        counts = [ppo_recovery.optimizer_step(root, step, role) for step in (1, 3)]
        assert counts[1] == 3 * counts[0], counts


def verl_ppo_v1(programs, work):
    verl_ppo(programs, work, True)


def verl_ppo_legacy(programs, work):
    verl_ppo(programs, work, False)


def steps_of(root, prefix):
    return sorted(int(name[len(prefix):]) for name in os.listdir(root) if name.startswith(prefix))


CASES = [hugging_face, hugging_face_follows_its_flag, verl_sft, *([verl_ppo_v1, verl_ppo_legacy] if FULL else [])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = 0
    wanted = [case for case in CASES if options.only in case.__name__]
    for case in wanted:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="save-requests-", dir=options.work) as work:
            try:
                case(options.programs.resolve(), Path(work).resolve())
                print(f"ok    {case.__name__} ({time.monotonic() - began:.0f} s)", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAILED {case.__name__}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
