"""A callback for Lightning: `Trainer(callbacks=[supervise.lightning.Callback()])`.

    trainer.fit(model, ckpt_path=supervise.resume_from())

Start it with `supervisor.trainer=loop`, and `supervisor.root` set to the `dirpath` of the `ModelCheckpoint`.
"""

from __future__ import annotations

import math
from typing import Any

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

from ._report import numbers, report, saved
from ._tracking import track


class Callback(pl.Callback):  # type: ignore[misc, unused-ignore]
    """Reports each optimizer step, the metrics that are plain numbers, and each checkpoint that has more than the weights.

    `trackers`: write restarts into the trainer's own loggers, as `supervise.track()` does.
    """

    def __init__(self, trackers: bool = False) -> None:
        super().__init__()
        self.trackers = trackers

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        save = trainer.save_checkpoint
        if getattr(save, "reports", False):
            return

        def save_and_report(filepath: Any, weights_only: Any = False, *more: Any, **others: Any) -> Any:
            done = save(filepath, weights_only, *more, **others)
            if not weights_only:
                saved(filepath, trainer.global_step, rank=trainer.global_rank)
            return done

        save_and_report.reports = True  # type: ignore[attr-defined]
        trainer.save_checkpoint = save_and_report

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        for logger in trainer.loggers if self.trackers else ():
            track(logger, rank=trainer.global_rank)

    def on_train_batch_end(self, trainer: Any, *more: Any, **others: Any) -> None:
        planned = trainer.max_steps if trainer.max_steps and trainer.max_steps > 0 else trainer.estimated_stepping_batches
        is_known = isinstance(planned, (int, float)) and math.isfinite(planned) and planned > 0
        report(trainer.global_step, int(planned) if is_known else None, numbers(trainer.logged_metrics), rank=trainer.global_rank)
