"""Runs of `supervise` in Python: read them, and report from a training loop of your own.

    import supervise

    supervise.run("my-run").status()                        # state, step, time since the last progress
    path = supervise.resume_from()                          # in a training loop: what to load, or None
    supervise.report(step=step, total=total, metrics={"loss": loss})
    supervise.saved("ckpt/step_100.pt", step=100)
    supervise.track(wandb.run)                              # restarts and their causes in your own tracker

Reading calls the program `supervise` and raises `SuperviseError`. Reporting does nothing without a supervisor and never raises.
"""

from __future__ import annotations

import importlib
import types

from ._program import SuperviseError
from ._report import report, resume_from, saved, should_save
from ._runs import Attempt, Checkpoint, Event, Outcome, Run, Status, run, runs
from ._tracking import track

__all__ = [
    "Attempt",
    "Checkpoint",
    "Event",
    "Outcome",
    "Run",
    "Status",
    "SuperviseError",
    "report",
    "resume_from",
    "run",
    "runs",
    "saved",
    "should_save",
    "track",
]


def __getattr__(name: str) -> types.ModuleType:
    # They import their framework.
    if name in ("huggingface", "lightning"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
