"""The injector: waits for the moment of a fault and causes it from outside, by signals, bytes of files and room on the disk.

It knows nothing of a contender but its first process. A fault counts only if it hit.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import processes
from contenders import Unit
from schedule import IN_SAVE, ON_DISK, PLAYED_BY_TRAINER, SAVE_EVERY, Fault, Kind
from training import TRACKER, TrainingFiles


class Progress(Enum):
    WAITING = "waiting"
    # It happens now, and goes on for a while.
    LASTING = "lasting"
    HIT = "hit"
    MISSED = "missed"


@dataclass(frozen=True)
class Hit:
    """What a fault did, for the record of the game."""

    kind: Kind
    # The step that had been trained last.
    step: int
    # Seconds since the start of the game.
    at: float
    # How many lines the trainer's record had.
    lines: int
    pids: tuple[int, ...] = ()
    # The step that it damaged, if it damaged one.
    damaged: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Injector:
    """Causes the faults of a game, one after the other."""

    def __init__(self, faults: tuple[Fault, ...], files: TrainingFiles, unit: Unit) -> None:
        self.faults, self.files, self.unit = list(faults), files, unit
        self.hits: list[Hit] = []
        self.missed = False
        self.began = time.monotonic()
        self.since = 0.0
        self.full_until = 0.0
        self.tracked_when_full = -1

    @property
    def is_done(self) -> bool:
        return self.missed or not self.faults

    def tick(self) -> None:
        """Causes the next fault if its moment has come."""
        if self.is_done:
            return
        progress = self._try(self.faults[0])
        if progress is Progress.MISSED:
            self.missed = True
        elif progress is Progress.HIT:
            self.faults.pop(0)
            self.since = time.time()

    def _try(self, fault: Fault) -> Progress:
        if fault.kind in PLAYED_BY_TRAINER:
            return self._note(fault) if self.files.played() > 0 else Progress.WAITING
        if fault.kind is Kind.DISK_FULL:
            return self._fill_disk(fault)
        if fault.kind in IN_SAVE:
            return self._in_save(fault)
        if fault.kind in ON_DISK:
            save = -(-fault.step // SAVE_EVERY) * SAVE_EVERY
            return self._on_disk(fault) if self.files.tracked() >= save else Progress.WAITING
        return self._signal(fault) if self.files.last_step() >= fault.step else Progress.WAITING

    def _note(self, fault: Fault, pids: tuple[int, ...] = (), damaged: int | None = None) -> Progress:
        at = round(time.monotonic() - self.began, 3)
        self.hits.append(Hit(fault.kind, self.files.last_step(), at, len(self.files.lines()), pids, damaged))
        return Progress.HIT

    def _signal(self, fault: Fault) -> Progress:
        launcher = self.unit.launcher()
        wanted: list[tuple[int | None, signal.Signals]] = []
        ranks = self.files.rank_pids()
        if fault.kind in (Kind.KILL_RANK, Kind.TWO_AT_ONCE):
            wanted.append((ranks.get(fault.rank), signal.SIGKILL))
        if fault.kind is Kind.HANG_STOP:
            wanted.append((ranks.get(fault.rank), signal.SIGSTOP))
        if fault.kind is Kind.KILL_ALL:
            wanted += [(pid, signal.SIGKILL) for pid in ranks.values()] or [(None, signal.SIGKILL)]
        if fault.kind in (Kind.KILL_LAUNCHER, Kind.TWO_AT_ONCE):
            wanted.append((launcher, signal.SIGKILL))
        if fault.kind is Kind.SIGTERM:
            wanted.append((launcher, signal.SIGTERM))
        pids = tuple(pid for pid, _ in wanted if pid is not None)
        # Between two attempts nobody is there to be hit: the next gang is.
        if len(pids) < len(wanted):
            return Progress.WAITING
        sent = [processes.send(pid, sig) for pid, sig in wanted if pid is not None]
        return self._note(fault, pids) if all(sent) else Progress.MISSED

    def _in_save(self, fault: Fault) -> Progress:
        step = self.files.saving(fault.step, self.since)
        ranks = self.files.rank_pids()
        victims = list(ranks.values()) if fault.kind is Kind.KILL_IN_SAVE else [ranks.get(fault.rank)]
        pids = tuple(pid for pid in victims if pid is not None)
        if step is None or not pids:
            return Progress.WAITING
        if fault.kind is Kind.KILL_IN_SAVE:
            time.sleep(fault.delay)
        sig = signal.SIGKILL if fault.kind is Kind.KILL_IN_SAVE else signal.SIGSTOP
        for pid in pids:
            processes.send(pid, sig)
        # The save may have ended before the signal came.
        return self._note(fault, pids) if self.files.tracked() < step else Progress.MISSED

    def _on_disk(self, fault: Fault) -> Progress:
        pids = tuple(self.files.rank_pids().values())
        if not pids:
            return Progress.WAITING
        # Nobody saves while the disk is changed.
        for pid in pids:
            processes.send(pid, signal.SIGSTOP)
        step = self.files.tracked()
        damaged = step if step > 0 and damage(self.files, fault, step) else None
        for pid in pids:
            processes.send(pid, signal.SIGKILL)
        if damaged is None:
            return Progress.MISSED
        is_model = fault.kind in (Kind.TORN_NEWEST, Kind.FLIP_BYTE)
        return self._note(fault, pids, step if is_model else None)

    def _fill_disk(self, fault: Fault) -> Progress:
        filler = self.files.root / ".filler"
        if self.full_until == 0.0:
            if self.files.last_step() < fault.step:
                return Progress.WAITING
            fill(filler)
            self.tracked_when_full = self.files.tracked()
            self.full_until = time.monotonic() + fault.delay
        if time.monotonic() < self.full_until:
            # The trainer deletes old steps before it saves.
            fill(filler)
            return Progress.LASTING
        was_in_the_way = self.files.tracked() <= self.tracked_when_full
        filler.unlink()
        return self._note(fault) if was_in_the_way else Progress.MISSED


def fill(filler: Path) -> None:
    with open(filler, "ab", buffering=0) as out:
        for block in (b"\0" * (1 << 20), b"\0" * 4096):
            try:
                while out.write(block) == len(block):
                    pass
            except OSError:
                pass


def damage(files: TrainingFiles, fault: Fault, step: int) -> bool:
    """Damages what the tracker names, or the tracker."""
    tracker = files.root / TRACKER
    shards = files.model_shards(step)
    if not tracker.exists() or not shards:
        return False
    shard = shards[fault.rank % len(shards)]
    if fault.kind is Kind.NO_TRACKER:
        tracker.unlink()
    elif fault.kind is Kind.EMPTY_TRACKER:
        tracker.write_text("")
    elif fault.kind is Kind.TORN_NEWEST:
        os.truncate(shard, shard.stat().st_size // 2)
    else:
        flip_bit(shard, fault.bit)
    return True


def flip_bit(path: Path, bit: int) -> None:
    """Flips a bit in the middle of a file and keeps its times, as a failing disk does."""
    stat = path.stat()
    with open(path, "r+b") as file:
        file.seek(stat.st_size // 2 + bit // 8)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1 << bit % 8]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
