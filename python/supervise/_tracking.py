"""Restarts in the user's own tracker: Weights & Biases, MLflow, TensorBoard, or a logger of Lightning."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from ._report import is_first, is_supervised
from ._runs import Attempt, Run

TEXT = 400
# A tracker keeps a text for each of the newest restarts.
TEXTS = 50
PREFIX = "supervise/"


@dataclass(frozen=True)
class Restart:
    """One start after the first. `trained_twice`: steps of the attempt before it that this one repeats."""

    number: int
    resumed_from: int
    trained_twice: int
    cause: str

    @property
    def text(self) -> str:
        twice = f"; {self.trained_twice} {'step' if self.trained_twice == 1 else 'steps'} trained twice" if self.trained_twice else ""
        start = f"resumed from step {self.resumed_from}" if self.resumed_from else "started from step 0"
        return f"restart {self.number}: {self.cause[:TEXT]}; {start}{twice}"


def track(tracker: Any, *, rank: Optional[int] = None) -> None:
    """Writes the restarts of this run into `tracker`: their number, causes, resume points and the steps trained twice.

    Call it once in each start, after the tracker was set up: a run of W&B, the module `mlflow` or an `MlflowClient`'s run through a Lightning
    logger, a `SummaryWriter`, a Lightning logger, or any callable that takes a dict of numbers and a step. Only rank 0 writes. It does nothing
    without a supervisor, in the first start, and if the program `supervise` is not found; it never raises.
    """
    try:
        if not is_supervised() or not is_first(rank):
            return
        found = restarts(os.environ["SUPERVISE_ATTEMPT"])
        if found:
            _write(tracker, found)
    except Exception as e:  # a tracker never ends a training
        _warn(" ".join(str(e).split())[:300] or type(e).__name__)


def restarts(attempt: str) -> List[Restart]:
    """The restarts that led to this attempt, oldest first. `attempt`: `RUN/TERM/ATTEMPT`."""
    run, _, number = attempt.split("/")
    attempts = [one for one in Run(run).history() if one.no <= int(number)]
    return [_restart(n, *pair) for n, pair in enumerate(zip(attempts, attempts[1:]), 1)]


def _restart(number: int, before: Attempt, now: Attempt) -> Restart:
    start = now.from_step or 0
    cause = before.cause or before.failure or "the cause is not known"
    return Restart(number, start, max(0, (before.to_step or 0) - start), " ".join(cause.split()))


def _numbers(found: Sequence[Restart]) -> Dict[str, float]:
    return {
        PREFIX + "restarts": len(found),
        PREFIX + "resumed_from": found[-1].resumed_from,
        PREFIX + "steps_trained_twice": sum(one.trained_twice for one in found),
    }


def _write(tracker: Any, found: Sequence[Restart]) -> None:
    numbers, step, newest = _numbers(found), found[-1].resumed_from, found[-TEXTS:]
    if hasattr(tracker, "add_scalar") and hasattr(tracker, "add_text"):
        for key, value in numbers.items():
            tracker.add_scalar(key, value, step)
        tracker.add_text(PREFIX + "restart", found[-1].text, step)
        tracker.flush()
    elif hasattr(tracker, "log") and hasattr(tracker, "summary"):
        # Without a step: W&B drops rows of a step that it already has. They go into the next row that the training logs.
        tracker.log(numbers, commit=False)
        tracker.summary.update({f"{PREFIX}restart_{one.number}": one.text for one in newest})
    elif hasattr(tracker, "log_metrics") and hasattr(tracker, "set_tag"):
        tracker.log_metrics(numbers, step=step)
        for one in newest:
            tracker.set_tag(f"supervise.restart_{one.number}", one.text)
    elif hasattr(tracker, "log_metrics") and hasattr(tracker, "experiment"):
        _write_lightning(tracker, found)
    elif callable(tracker):
        tracker(numbers, step)
    else:
        raise TypeError(f"{type(tracker).__name__} is no tracker that is known: pass a function of a dict and a step")


def _write_lightning(logger: Any, found: Sequence[Restart]) -> None:
    experiment, run = logger.experiment, getattr(logger, "run_id", None)
    if run is not None and hasattr(experiment, "set_tag"):
        # A client of MLflow.
        logger.log_metrics(_numbers(found), found[-1].resumed_from)
        for one in found[-TEXTS:]:
            experiment.set_tag(run, f"supervise.restart_{one.number}", one.text)
    elif hasattr(experiment, "add_text") or hasattr(experiment, "summary"):
        _write(experiment, found)
    else:
        logger.log_metrics(_numbers(found), found[-1].resumed_from)


def active() -> List[Any]:
    """The runs of W&B and MLflow that are open in this process. Neither is imported."""
    out: List[Any] = []
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    if getattr(wandb, "run", None) is not None:
        out.append(wandb.run)  # type: ignore[union-attr]
    if mlflow is not None and mlflow.active_run() is not None:
        out.append(mlflow)
    return out


def _warn(problem: str) -> None:
    try:
        warnings.warn(f"supervise.track(): {problem}", RuntimeWarning, stacklevel=3)
    except Warning as e:
        # Warnings may be errors here.
        print(f"supervise: {e}", file=sys.stderr)



