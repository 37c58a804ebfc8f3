"""Trainers that a TOML file declares under `supervise run`: a nanoGPT-like loop and one on torch.distributed.checkpoint.

usage: declared.py PROGRAMS [--work DIR]

Each loop is killed in a step and in a save, and its newest step is damaged before a restart. It has to end with the weights of a
run in one go.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

LOOP = Path(__file__).with_name("declared_loop.py")
FAST = ["--set", "supervisor.backoff.initial=100ms", "--set", "supervisor.scan_interval=200ms", "--set", "supervisor.retries=3"]


class Case:
    """One loop in a directory of its own."""

    def __init__(self, programs, work, name, form):
        self.folder = work / name
        self.folder.mkdir(parents=True)
        self.faults = self.folder / "faults"
        self.faults.mkdir()
        self.out = self.folder / "out"
        self.form, self.programs = form, programs
        # nanoGPT's preset knows its command by this name.
        script = self.folder / ("train.py" if form == "ckpt" else "loop.py")
        script.write_bytes(LOOP.read_bytes())
        self.command = [sys.executable, script.name, f"--out_dir={self.out}", f"--form={form}", "--max_iters=12", "--eval_interval=3"]
        self.env = dict(os.environ, FAULTS=str(self.faults), XDG_STATE_HOME=str(self.folder / "state"),
                        XDG_CONFIG_HOME=str(self.folder / "config"), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")

    def fault(self, name):
        (self.faults / name).touch()
        return self

    def alone(self):
        return subprocess.run(self.command, cwd=self.folder, env=self.env, check=True, capture_output=True, text=True)

    def supervise(self, *more, command=None, expect=0):
        sets = [] if self.form == "ckpt" else ["--set", "supervisor.trainer=dcp", "--set", f"supervisor.root={self.out}"]
        env = dict(self.env, AWAIT_COPIES="1") if self.form == "ckpt" else self.env
        words = [self.programs / "supervise", "run", *FAST, *sets, *more, "--", *(command or self.command)]
        done = subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == expect, (self.folder.name, done.returncode, done.stdout, done.stderr)
        assert not list(self.faults.iterdir()), f"{self.folder.name}: no fault came"
        return done.stdout + done.stderr

    def weights(self):
        return torch.load(self.out / "final.pt")


def killed_in_a_step(case):
    said = case.fault("step-7").supervise()
    assert "2 attempts" in said, said


def killed_in_a_save(case):
    said = case.fault("save-9").supervise()
    assert "2 attempts" in said, said


def newest_step_damaged(case):
    half = [word.replace("max_iters=12", "max_iters=9") for word in case.command]
    case.supervise(command=half)
    newest = case.out / ("ckpt.pt" if case.form == "ckpt" else "step-9/__0_0.distcp")
    data = bytearray(newest.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    newest.write_bytes(data[: len(data) - 100])
    (case.out / "final.pt").unlink()
    said = case.supervise("--again")
    # Of the only checkpoint there is a copy; of steps, the one before.
    assert "moved aside" in said and ("put back" in said if case.form == "ckpt" else "step-6" in said), said


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=lambda p: Path(p).resolve())
    parser.add_argument("--work", type=lambda p: Path(p).resolve(), default=None)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="declared-"))
    ways = [killed_in_a_step, killed_in_a_save, newest_step_damaged]

    def one(pair):
        form, way = pair
        case = Case(args.programs, work, f"{form}-{way.__name__}", form)
        way(case)
        return form, way.__name__, case.weights()

    straight = {}
    for form in ("ckpt", "dcp"):
        case = Case(args.programs, work, f"{form}-straight", form)
        case.alone()
        straight[form] = case.weights()
    with ThreadPoolExecutor(3) as pool:
        for form, way, weights in pool.map(one, [(form, way) for form in straight for way in ways]):
            for name, value in straight[form].items():
                assert torch.equal(value, weights[name]), f"{form}: {way}: {name} differs"
            print(f"{form}: {way}: the weights are those of a run in one go")
    print("6 passed, 0 failed")


if __name__ == "__main__":
    main()
