"""Faults for a real trainer, driven by the environment and injected from outside its code.

FAULTS        a JSON list; each fault fires once, over all attempts and ranks
FAULT_LEDGER  a directory that remembers which have fired (attempts share it)
FAULT_PACE    seconds that every step sleeps, so that a tiny model trains for as long as a test needs

Each fault names where it fires (`step`; `rank`, default 0) and what happens (`kind`):

    kill      sends itself `signal` (default SIGKILL) in mid-step, between backward pass and optimizer
    raise     raises RuntimeError(`message`) there; with "oom": true a torch.OutOfMemoryError
    hang      sleeps there for ever, so that the other ranks wait in a collective
    spin      computes there for ever, `share` of a core (default 1)
    chat      prints a line there each second for ever, and comes to no end of its step
    hold      waits there until `go-STEP` stands in the ledger's directory
    nan       sets all gradients to NaN there, so that the weights of this step are ruined
    torn      half-writes `file` (default "model") of the step's save, then kills itself
    no_space  half-writes it, then raises the OSError of a full disk
    slow      sleeps `seconds` before it writes the file

    FAULTS='[{"kind": "kill", "step": 3, "rank": 1}, {"kind": "torn", "step": 5}]'

How: a torch hook before every optimizer step finds the trainer's own `global_step`
among the callers' local variables; `torch.save` is wrapped and reads the step from
the path. In verl this module is loaded by verl_cpu_platform.py; a script of our
own calls `arm_from_env()`.
"""

import errno
import io
import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

IN_STEP = ("kill", "raise", "hang", "hold", "spin", "chat", "nan")
IN_SAVE = ("torn", "no_space", "slow")
STEP_IN_PATH = re.compile(r"global_step_(\d+)/(?:.*/)?([a-z_]+?)(?:_world_size_\d+_rank_\d+|_\d+)?\.pt$")


class Faults:
    """The faults of this rank, and the ledger of those that have fired."""

    def __init__(self, faults, ledger, rank):
        self.ledger = Path(ledger)
        self.ledger.mkdir(parents=True, exist_ok=True)
        self.mine = [(i, f) for i, f in enumerate(faults) if f.get("rank", 0) == rank]
        self.save = torch.save
        self.pace = float(os.environ.get("FAULT_PACE", "0"))
        self.steps = 0

    def take(self, kinds, step, file=None):
        """The first fault due here, written to the ledger before it happens; None otherwise."""
        for number, fault in self.mine:
            if fault["kind"] not in kinds or fault["step"] != step:
                continue
            if file is not None and fault.get("file", "model") != file:
                continue
            try:
                with open(self.ledger / f"fault-{number}", "x") as entry:
                    json.dump({**fault, "pid": os.getpid(), "at": time.time()}, entry)
                    entry.flush()
                    os.fsync(entry.fileno())
            except FileExistsError:
                continue
            return fault
        return None

    def before_optimizer(self, optimizer, args, kwargs):
        # A worker of Ray is called for each step and keeps no count: its own tells the first attempt's step.
        time.sleep(self.pace)
        self.steps += 1
        step = current_step() or self.steps
        fault = self.take(IN_STEP, step)
        if fault is not None and fault["kind"] == "hold":
            self.hold(step)
        elif fault is not None:
            strike(fault, optimizer)

    def hold(self, step):
        while not (self.ledger / f"go-{step}").exists():
            time.sleep(0.02)

    def on_save(self, state, target, *args, **kwargs):
        match = STEP_IN_PATH.search(os.fspath(target)) if isinstance(target, (str, os.PathLike)) else None
        fault = self.take(IN_SAVE, int(match[1]), match[2]) if match else None
        if fault is None:
            return self.save(state, target, *args, **kwargs)
        if fault["kind"] == "slow":
            time.sleep(fault.get("seconds", 5))
            return self.save(state, target, *args, **kwargs)
        whole = io.BytesIO()
        self.save(state, whole, *args, **kwargs)
        write_half(whole.getvalue(), target)
        if fault["kind"] == "torn":
            die(signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(target))


def current_step():
    """The nearest caller's `global_step`, as every trainer here calls it."""
    frame = sys._getframe(1)
    while frame is not None:
        step = frame.f_locals.get("global_step")
        if type(step) is int:
            return step
        frame = frame.f_back
    return None


def strike(fault, optimizer):
    kind = fault["kind"]
    if kind == "kill":
        die(signal.Signals[fault.get("signal", "SIGKILL")])
    elif kind == "hang":
        while True:
            time.sleep(3600)
    elif kind == "spin":
        spin(fault.get("share", 1.0))
    elif kind == "chat":
        chat()
    elif kind == "nan":
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.fill_(float("nan"))
    else:
        error = torch.OutOfMemoryError if fault.get("oom") else RuntimeError
        raise error(fault.get("message", f"injected fault at step {fault['step']}"))


def spin(share):
    """Computes to no end; below a whole core in slices of a tenth of a second."""
    while share >= 1.0:
        pass
    while True:
        until = time.monotonic() + 0.1 * share
        while time.monotonic() < until:
            pass
        time.sleep(0.1 * (1.0 - share))


def chat():
    for beat in itertools.count(1):
        print(f"heartbeat {beat}: alive", flush=True)
        time.sleep(1)


def write_half(data, target):
    with open(target, "wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        os.fsync(file.fileno())


def die(number):
    sys.stdout.flush()
    os.kill(os.getpid(), number)
    # A signal that the trainer handles lets it run on from here, as it would for a stranger's kill.


def from_env():
    """The faults that FAULTS names, for this rank; None without FAULTS."""
    text = os.environ.get("FAULTS")
    if not text:
        return None
    faults = json.loads(text)
    unknown = [f for f in faults if f.get("kind") not in IN_STEP + IN_SAVE or not isinstance(f.get("step"), int)]
    if unknown:
        raise SystemExit(f"FAULTS: cannot read {unknown}")
    return Faults(faults, os.environ["FAULT_LEDGER"], int(os.environ.get("RANK", "0")))


def arm_from_env():
    """Arms them; without FAULTS nothing is touched."""
    armed = from_env()
    if armed and (armed.mine or armed.pace):
        register_optimizer_step_pre_hook(armed.before_optimizer)
        torch.save = armed.on_save
