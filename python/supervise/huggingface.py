"""A callback for Hugging Face's `Trainer`: `Trainer(..., callbacks=[supervise.huggingface.TrainerCallback()])`.

`supervise` knows this trainer without it. It helps if the trainer logs rarely, and with `supervisor.trainer=loop`.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Sequence, Union

import transformers

from ._report import numbers, report, saved, should_save
from ._tracking import active, track


class TrainerCallback(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Reports each step, the newest metrics and each checkpoint.

    `trackers`: what `supervise.track()` writes restarts into. True: the runs of W&B and MLflow that are open when the training begins.
    For TensorBoard, give the `SummaryWriter` that `TensorBoardCallback` has.
    """

    def __init__(self, trackers: Union[bool, Sequence[Any]] = False) -> None:
        self.metrics: Dict[str, float] = {}
        self.trackers = trackers

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        first = 0 if state.is_world_process_zero else 1
        for tracker in active() if self.trackers is True else self.trackers or ():
            track(tracker, rank=first)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self.metrics = numbers(logs or {})

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        first = 0 if state.is_world_process_zero else 1
        report(state.global_step, state.max_steps if state.max_steps > 0 else None, self.metrics, rank=first)
        self.metrics = {}
        if should_save():
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        first = 0 if state.is_world_process_zero else 1
        saved(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"), state.global_step, rank=first)
