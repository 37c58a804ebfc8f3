"""The schedule of faults. A seed, a number and a throw name one game; nothing else decides what happens in it."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

STEPS, SAVE_EVERY, RANKS = 40, 4, 4
# A fault that missed its moment is thrown again, at another step of the same seed.
THROWS = 4


class Kind(str, Enum):
    KILL_RANK = "kill_rank"
    KILL_ALL = "kill_all"
    KILL_IN_SAVE = "kill_in_save"
    KILL_LAUNCHER = "kill_launcher"
    TWO_AT_ONCE = "two_at_once"
    HANG_STOP = "hang_stop"
    HANG_SPIN = "hang_spin"
    HANG_IN_SAVE = "hang_in_save"
    TORN_NEWEST = "torn_newest"
    FLIP_BYTE = "flip_byte"
    NO_TRACKER = "no_tracker"
    EMPTY_TRACKER = "empty_tracker"
    DISK_FULL = "disk_full"
    SIGTERM = "sigterm"
    DETERMINISTIC = "deterministic"
    NAN = "nan"
    CHAIN = "chain"


HANGS = frozenset({Kind.HANG_STOP, Kind.HANG_SPIN, Kind.HANG_IN_SAVE})
# The trainer plays these itself: a process cannot be made to spin, to fail or to compute NaN from outside.
PLAYED_BY_TRAINER = {Kind.HANG_SPIN: "spin", Kind.DETERMINISTIC: "exception", Kind.NAN: "nan"}
IN_SAVE = frozenset({Kind.KILL_IN_SAVE, Kind.HANG_IN_SAVE})
ON_DISK = frozenset({Kind.TORN_NEWEST, Kind.FLIP_BYTE, Kind.NO_TRACKER, Kind.EMPTY_TRACKER})
ENDS_LAUNCHER = frozenset({Kind.KILL_LAUNCHER, Kind.TWO_AT_ONCE, Kind.SIGTERM})
LINKS = (Kind.KILL_RANK, Kind.KILL_ALL, Kind.KILL_IN_SAVE, *sorted(ENDS_LAUNCHER), *sorted(ON_DISK))

# How many of a hundred numbers: hangs wait half a minute each, spins use a core as well.
SHARES: dict[Kind, int] = {
    Kind.HANG_STOP: 2,
    Kind.HANG_SPIN: 2,
    Kind.HANG_IN_SAVE: 1,
    Kind.CHAIN: 17,
    **{kind: 6 for kind in Kind if kind not in HANGS and kind is not Kind.CHAIN},
}
BLOCK: list[Kind] = [kind for kind, share in SHARES.items() for _ in range(share)]


@dataclass(frozen=True)
class Fault:
    """One fault: at the first moment at or after `step` that fits its kind."""

    kind: Kind
    step: int
    rank: int
    # Seconds, where the kind has a delay: into the save, or how long the disk stays full.
    delay: float
    # Which byte and bit of the victim's file.
    bit: int


@dataclass(frozen=True)
class Game:
    seed: int
    number: int
    throw: int
    kind: Kind
    # The seed of the training: three different ones a schedule.
    training: int
    step_ms: int
    save_ms: int
    faults: tuple[Fault, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def kind_of(seed: int, number: int) -> Kind:
    block: list[Kind] = list(BLOCK)
    random.Random(f"{seed}/{number // len(block)}").shuffle(block)
    return block[number % len(block)]


def game(seed: int, number: int, throw: int = 0, only: Kind | None = None) -> Game:
    kind = only or kind_of(seed, number)
    # Bytes, not the object's hash, which differs from process to process.
    dice = random.Random(f"{seed}/{number}/{throw}/{kind.value}")
    training = 1 + seed * 1000 + dice.randrange(3)
    faults = chain(dice) if kind is Kind.CHAIN else (fault(dice, kind),)
    # A watcher that looks every few seconds needs steps that it can see; so does the moment inside a save.
    step_ms = 300 if kind in (Kind.NAN, *HANGS) else 25
    save_ms = 200 if any(f.kind in IN_SAVE for f in faults) else 40
    return Game(seed, number, throw, kind, training, step_ms, save_ms, faults)


def fault(dice: random.Random, kind: Kind, step: int | None = None) -> Fault:
    if step is None:
        # Half of the NaNs come in the last save intervals, where little time is left to see them.
        late = kind is Kind.NAN and dice.random() < 0.5
        step = dice.randint(36, STEPS) if late else dice.randint(6, 34)
    in_save = kind in IN_SAVE
    delay = dice.uniform(0.0, 0.1) if in_save else dice.uniform(1.0, 2.0)
    return Fault(kind, step, dice.randrange(RANKS), round(delay, 3), dice.randrange(512))


def chain(dice: random.Random) -> tuple[Fault, ...]:
    """Two to six faults, the next one armed once the one before it hit. The unit restarts a launcher three times."""
    count = dice.randint(2, 6)
    steps = sorted(dice.sample(range(6, 36), count))
    faults: list[Fault] = []
    for step in steps:
        ended = sum(f.kind in ENDS_LAUNCHER for f in faults)
        kinds = [kind for kind in LINKS if ended < 3 or kind not in ENDS_LAUNCHER]
        faults.append(fault(dice, dice.choice(kinds), step))
    return tuple(faults)
