"""One game: a contender trains the miniature while the injector breaks it. Runs as a process of its own.

usage: game.py DIRECTORY      (`game.json` in it says which game; `result.json` is what came of it)
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import processes
import schedule
from contenders import Programs, Unit, Who, supervisor_settings
from injector import Injector
from judge import Course, Undisturbed, judge
from schedule import Game, Kind
from training import TrainingFiles, config

POLL = 0.003
# Gangs that start one after the other without a new step never stop: the most that ends is torchrun's four gangs in each of the unit's four starts.
BARREN_GANGS = 20
# A machine on which the injector itself waits this long for a processor says nothing about a contender.
STARVED = 3.0
# An orphan is what still lives this long after the end.
LET_GO = 5.0
# Room for the checkpoints and for what a contender writes beside them.
DISK = "24m"


@dataclass(frozen=True)
class Assignment:
    """What `game.json` holds."""

    who: Who
    programs: Programs
    seed: int
    number: int
    throw: int
    only: Kind | None
    limit: float
    mark: str
    ideal: Undisturbed

    def write(self, directory: Path) -> None:
        data = {
            "who": self.who.value,
            "programs": str(self.programs.folder),
            "python": str(self.programs.python) if self.programs.python else None,
            "seed": self.seed,
            "number": self.number,
            "throw": self.throw,
            "only": self.only.value if self.only else None,
            "limit": self.limit,
            "mark": self.mark,
            "digest": self.ideal.digest,
            "wall": self.ideal.wall,
        }
        (directory / "game.json").write_text(json.dumps(data, indent=1))

    @staticmethod
    def read(directory: Path) -> Assignment:
        data = json.loads((directory / "game.json").read_text())
        python = Path(data["python"]) if data["python"] else None
        return Assignment(
            who=Who(data["who"]),
            programs=Programs(Path(data["programs"]), python),
            seed=data["seed"],
            number=data["number"],
            throw=data["throw"],
            only=Kind(data["only"]) if data["only"] else None,
            limit=data["limit"],
            mark=data["mark"],
            ideal=Undisturbed(data["digest"], data["wall"]),
        )

    def game(self) -> Game:
        return schedule.game(self.seed, self.number, self.throw, self.only)


class GangCounter:
    """Counts gangs that started since the last new step, by the process of rank 0."""

    def __init__(self, files: TrainingFiles) -> None:
        self.files = files
        self.rank_zero: int | None = None
        self.furthest = 0
        self.barren = 0

    def tick(self) -> int:
        last = self.files.last_step()
        if last > self.furthest:
            self.furthest, self.barren = last, 0
        pid = self.files.rank_pids().get(0)
        if pid is not None and pid != self.rank_zero:
            self.rank_zero = pid
            self.barren += 1
        return self.barren


def play(directory: Path) -> None:
    assignment = Assignment.read(directory)
    game = assignment.game()
    write_config(directory, assignment, game)
    files = TrainingFiles(directory)
    if game.kind is Kind.DISK_FULL:
        files.root.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(files.root)], check=True)
    began = time.monotonic()
    unit = Unit(assignment.who, assignment.programs, directory, assignment.mark, processes.free_port())
    injector = Injector(game.faults, files, unit)
    gangs = GangCounter(files)
    over = False
    longest_wait, last = 0.0, began
    while not over and time.monotonic() < began + assignment.limit and not injector.missed:
        injector.tick()
        over = unit.is_over(time.monotonic())
        if gangs.tick() > BARREN_GANGS:
            break
        time.sleep(POLL)
        now = time.monotonic()
        longest_wait, last = max(longest_wait, now - last), now
    wall = time.monotonic() - began
    # Where the game is broken off, what runs is no orphan.
    left = processes.leftovers(assignment.mark, directory, LET_GO) if over else {}
    processes.end_all(assignment.mark, directory)
    course = Course(
        over=over,
        codes=tuple(unit.codes),
        restarts=unit.restarts,
        wall=wall,
        leftovers=tuple(left.values()),
        starved=longest_wait > STARVED,
        # Of a chain two links are enough: the second may have been the end.
        missed=injector.missed or len(injector.hits) < min(2, len(game.faults)) and over,
    )
    result = judge(assignment.who.value, game, files, injector.hits, course, assignment.ideal)
    (directory / "result.json").write_text(json.dumps(result.to_json()))


def write_config(directory: Path, assignment: Assignment, game: Game) -> None:
    text = config(game)
    if assignment.who is Who.SUPERVISE:
        text += supervisor_settings(assignment.programs)
    (directory / "run.yaml").write_text(text)


if __name__ == "__main__":
    play(Path(sys.argv[1]).resolve())
