"""What keeps the training alive: each contender's command, and the unit around it, the same for all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from schedule import RANKS

HERE = Path(__file__).resolve().parent
LOOP = HERE.parent / "bench" / "bash_loop.sh"

SUPERVISOR = """supervisor:
  trainer: verl
  command: ["{trainer}", --config, "{{config}}", "{{overrides}}"]
  gang: {{launcher: gang, workers: {ranks}, gpus: none}}
  proof: {{depth: full}}
  backoff: {{initial: 200ms, max: 2s}}
  stall: {{minimum: 2s, hard: 8s, startup: 30s, save: 8s}}
"""


class Who(str, Enum):
    SUPERVISE = "supervise"
    BASH_LOOP = "bash_loop"
    TORCHRUN = "torchrun"


# Exit codes after which a unit does not restart: an operator is needed. Those of `systemd/supervise@.service`; the others have none.
NEEDS_OPERATOR = {Who.SUPERVISE: frozenset({3, 4, 5, 6, 8, 64, 78})}


@dataclass(frozen=True)
class Programs:
    """`supervise` and `demo_trainer` of one build, and the Python of torchrun."""

    folder: Path
    python: Path | None = None

    @property
    def supervise(self) -> Path:
        return self.folder / "supervise"

    @property
    def trainer(self) -> Path:
        return self.folder / "demo_trainer"

    def version(self, who: Who) -> str:
        if who is Who.BASH_LOOP:
            return first_line(["bash", "--version"])
        if who is Who.TORCHRUN:
            return "torch " + first_line([str(self.python), "-c", "import torch; print(torch.__version__)"])
        return first_line([str(self.supervise), "--version"])

    def hash(self, who: Who) -> str:
        path = {Who.SUPERVISE: self.supervise, Who.BASH_LOOP: LOOP}.get(who)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""

    def trainer_hash(self) -> str:
        return hashlib.sha256(self.trainer.read_bytes()).hexdigest()

    def command(self, who: Who) -> list[str]:
        trainer = [str(self.trainer), "--config", "run.yaml"]
        if who is Who.SUPERVISE:
            return [str(self.supervise), "run", "run.yaml"]
        if who is Who.BASH_LOOP:
            return [str(LOOP), str(RANKS), *trainer]
        module = [str(self.python), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}"]
        return [*module, "--max_restarts=3", "--no_python", *trainer]


class Unit:
    """Restarts a contender after 0.3 s on a code other than 0, three times at most, as a unit or a scheduler's requeue does."""

    RESTARTS, PAUSE = 3, 0.3

    def __init__(self, who: Who, programs: Programs, directory: Path, mark: str, port: int) -> None:
        self.who, self.directory = who, directory
        self.command = programs.command(who)
        name, value = mark.split("=")
        # torchrun's ranks would share the agent's store, with the addresses of ranks that are gone.
        torch = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.env = {"PATH": os.environ["PATH"], "HOME": str(directory), "PORT": str(port), name: value, **torch}
        self.restarts = 0
        self.codes: list[int] = []
        self.again_at: float | None = None
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(
                self.command, cwd=self.directory, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def is_over(self, now: float) -> bool:
        """Looks at the contender, restarts it if due. True if it ended for good; the last of `codes` is its code then."""
        if self.again_at is not None:
            if now >= self.again_at:
                self.again_at = None
                self.process = self._start()
            return False
        code = self.process.poll()
        if code is None:
            return False
        self.codes.append(code)
        if code == 0 or code in NEEDS_OPERATOR.get(self.who, ()) or self.restarts == self.RESTARTS:
            return True
        self.restarts += 1
        self.again_at = now + self.PAUSE
        return False

    def launcher(self) -> int | None:
        """The contender's first process, None between two starts."""
        return self.process.pid if self.again_at is None and self.process.poll() is None else None


def first_line(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return done.stdout.strip().splitlines()[0]


def supervisor_settings(programs: Programs) -> str:
    return SUPERVISOR.format(trainer=programs.trainer, ranks=RANKS)


def die(message: str) -> None:
    print(f"league: {message}", file=sys.stderr)
    raise SystemExit(64)
