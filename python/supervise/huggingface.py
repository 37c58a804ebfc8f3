"""A callback for Hugging Face's `Trainer`: `Trainer(..., callbacks=[supervise.huggingface.TrainerCallback()])`.

`supervise` knows this trainer without it. It helps if the trainer logs rarely, and with `supervisor.trainer=loop`.
"""

from __future__ import annotations

import os
from typing import Any, Dict

import transformers

from ._report import numbers, report, saved, should_save


class TrainerCallback(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Reports each step, the newest metrics and each checkpoint."""

    def __init__(self) -> None:
        self.metrics: Dict[str, float] = {}

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
