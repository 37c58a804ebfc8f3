"""The miniature training of a game: its configuration, and what its files say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from schedule import PLAYED_BY_TRAINER, RANKS, SAVE_EVERY, STEPS, Game, Kind

TRACKER = "latest_checkpointed_iteration.txt"

CONFIG = """algorithm: {{adv_estimator: grpo}}
actor_rollout_ref: {{actor: {{strategy: fsdp, checkpoint: {{save_contents: [model, optimizer, extra]}}}}}}
trainer:
  project_name: league
  experiment_name: league
  default_local_dir: out/checkpoints
  total_training_steps: {steps}
  save_freq: {save_every}
  max_actor_ckpt_to_keep: 3
  resume_mode: auto
  nnodes: 1
  n_gpus_per_node: {ranks}
demo:
  seed: {seed}
  hidden: [32, 32]
  samples: 96
  batch: 4
  step_ms: {step_ms}
  save_ms: {save_ms}
  repeat_fault: {repeat}
  faults: {faults}
"""


@dataclass(frozen=True)
class StepLine:
    """A line of the trainer's own record."""

    step: int
    attempt: str


def config(game: Game, undisturbed: bool = False) -> str:
    inner = [] if undisturbed else [f for f in game.faults if f.kind in PLAYED_BY_TRAINER]
    faults = [{"kind": PLAYED_BY_TRAINER[f.kind], "step": f.step, "rank": f.rank} for f in inner]
    return CONFIG.format(
        steps=STEPS,
        save_every=SAVE_EVERY,
        ranks=RANKS,
        seed=game.training,
        step_ms=game.step_ms,
        save_ms=game.save_ms,
        repeat=json.dumps(any(f.kind is Kind.DETERMINISTIC for f in inner)),
        faults=json.dumps(faults),
    )


class TrainingFiles:
    """What the trainer wrote below the directory of a game."""

    def __init__(self, game_dir: Path) -> None:
        self.out = game_dir / "out"
        self.root = self.out / "checkpoints"
        self._lines: list[StepLine] = []
        self._size = -1

    def lines(self) -> list[StepLine]:
        path = self.out / "losses.jsonl"
        try:
            size = path.stat().st_size
            if size != self._size:
                text = path.read_text(encoding="utf-8", errors="replace")
                self._lines = parse_lines(text)
                self._size = size
        except OSError:
            pass
        return self._lines

    def last_step(self) -> int:
        lines = self.lines()
        return lines[-1].step if lines else 0

    def tracked(self) -> int:
        """The step that the tracker names, -1 if none."""
        try:
            return int((self.root / TRACKER).read_text())
        except (OSError, ValueError):
            return -1

    def step_dir(self, step: int) -> Path:
        return self.root / f"global_step_{step}"

    def model_shards(self, step: int) -> list[Path]:
        return sorted(self.step_dir(step).glob("actor/model_world_size_*_rank_*.pt"))

    def saving(self, at_least: int, since: float) -> int | None:
        """The step that is being saved now: the tracker does not name it yet, and its model was written after `since`."""
        tracked = self.tracked()
        for path in self.root.glob("global_step_*"):
            number = path.name.rsplit("_", 1)[1]
            step = int(number) if number.isdigit() else -1
            if step >= at_least and step > tracked and any(mtime(f) > since for f in self.model_shards(step)):
                return step
        return None

    def rank_pids(self) -> dict[int, int]:
        """The ranks that live, by the claim that each of them wrote."""
        found = {}
        for rank in range(RANKS):
            try:
                pid, start = (self.out / f"writers/live.rank_{rank}").read_text().split()
                if start_time(int(pid)) == start:
                    found[rank] = int(pid)
            except (OSError, ValueError):
                pass
        return found

    def played(self) -> int:
        """How many faults the trainer has played itself."""
        folder = self.out / "faults"
        return len(list(folder.iterdir())) if folder.exists() else 0

    def digest(self) -> str | None:
        try:
            return (self.out / "digest.txt").read_text().strip()
        except OSError:
            return None

    def violations(self) -> int:
        try:
            return len((self.out / "writers/violations").read_text().splitlines())
        except OSError:
            return 0


def parse_lines(text: str) -> list[StepLine]:
    """The whole lines. One that a kill cut in half has the next one behind it, on the same line; two writers at once mix theirs."""
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            row = json.loads(line[max(line.rfind("{"), 0) :])
            found.append(StepLine(row["step"], row["attempt"]))
        except (ValueError, KeyError, TypeError):
            pass
    return found


def mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def start_time(pid: int) -> str | None:
    """When a process started, in ticks since boot; None if it is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
