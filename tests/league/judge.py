"""How a game ended, judged from the trainer's own record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from injector import Hit
from schedule import STEPS, Game, Kind
from training import StepLine, TrainingFiles


class End(str, Enum):
    # The weights of the undisturbed training; for an error that every attempt repeats, a stop.
    RIGHT = "right"
    # Exit code 0 with other weights.
    WRONG = "wrong"
    # Ended with a code other than 0, and the unit does not restart it (any more).
    OPERATOR = "operator"
    # Still running at the time limit, or one gang after the other without a new step.
    NEVER_OVER = "never_over"
    # The fault did not hit, or the machine was too busy: the game does not count.
    MISSED = "missed"


@dataclass(frozen=True)
class Undisturbed:
    """The same training without a fault."""

    digest: str
    wall: float


@dataclass(frozen=True)
class Course:
    """What the unit and the processes of a game say."""

    over: bool
    codes: tuple[int, ...]
    restarts: int
    wall: float
    leftovers: tuple[str, ...]
    # A fault came too late, or none of them came.
    missed: bool
    starved: bool = False


@dataclass(frozen=True)
class Result:
    who: str
    seed: int
    number: int
    throw: int
    kind: Kind
    end: End
    faults: int
    hits: tuple[Hit, ...]
    codes: tuple[int, ...]
    unit_restarts: int
    wall: float
    ettr: float
    attempts: int
    steps_again: int
    steps_lost: int
    from_zero: int
    from_damaged: int
    two_writers: int
    orphans: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(who: str, game: Game, files: TrainingFiles, hits: list[Hit], course: Course, ideal: Undisturbed) -> Result:
    lines = files.lines()
    trained = [line.step for line in lines]
    first_steps = starts(lines)
    return Result(
        who=who,
        seed=game.seed,
        number=game.number,
        throw=game.throw,
        kind=game.kind,
        end=end_of(game, files, course, ideal),
        faults=len(game.faults),
        hits=tuple(hits),
        codes=course.codes,
        unit_restarts=course.restarts,
        wall=round(course.wall, 2),
        ettr=round(min(1.0, ideal.wall / course.wall), 3),
        attempts=len(first_steps),
        steps_again=len(trained) - len(set(trained)),
        steps_lost=len(set(range(1, STEPS + 1)) - set(trained)) if course.over and course.codes[-1] == 0 else 0,
        # No fault comes before the first save.
        from_zero=sum(step == 1 for step in first_steps[1:]),
        from_damaged=from_damaged(lines, hits),
        two_writers=files.violations(),
        orphans=course.leftovers,
    )


def end_of(game: Game, files: TrainingFiles, course: Course, ideal: Undisturbed) -> End:
    if course.missed or course.starved:
        return End.MISSED
    if not course.over:
        return End.NEVER_OVER
    is_repeated = game.kind is Kind.DETERMINISTIC
    if course.codes[-1] == 0:
        same = files.digest() == ideal.digest and STEPS in {line.step for line in files.lines()}
        return End.RIGHT if same and not is_repeated else End.WRONG
    return End.RIGHT if is_repeated else End.OPERATOR


def starts(lines: list[StepLine]) -> list[int]:
    """The first step of each attempt, in order."""
    found: list[int] = []
    seen: set[str] = set()
    for line in lines:
        if line.attempt not in seen:
            seen.add(line.attempt)
            found.append(line.step)
    return found


def from_damaged(lines: list[StepLine], hits: list[Hit]) -> int:
    """How often the attempt after the damage went on from the damaged step."""
    count = 0
    for hit in hits:
        if hit.damaged is None:
            continue
        before = {line.attempt for line in lines[: hit.lines]}
        after = next((line.step for line in lines[hit.lines :] if line.attempt not in before), None)
        count += after == hit.damaged + 1
    return count
