"""Runs as frozen data classes, read from the public `--json`.

Keys that this version does not know are in `raw`; a key that is missing is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Iterator, List, Mapping, Optional, Tuple, TypeVar

from . import _html
from ._program import SuperviseError, ask

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Beyond it a datetime cannot say it.
LATEST_MS = 253402300799000


def _int(value: object) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> Optional[str]:
    return value if isinstance(value, str) else None


def _time(value: object) -> Optional[datetime]:
    ms = _int(value)
    return EPOCH + timedelta(milliseconds=ms) if ms is not None and 0 <= ms <= LATEST_MS else None


def _span(value: object) -> Optional[timedelta]:
    ms = _int(value)
    return timedelta(milliseconds=ms) if ms is not None and 0 <= ms <= LATEST_MS else None


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> List[Any]:
    return value if isinstance(value, list) else []


def _raw() -> Any:
    return field(repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `word` and `exit_code` are stable, `why` is for people."""

    word: str
    exit_code: Optional[int]
    why: str


@dataclass(frozen=True)
class Status:
    """Where a run stands: `supervise status --json`."""

    run: str
    name: Optional[str]
    trainer: Optional[str]
    root: Optional[str]
    run_dir: Optional[str]
    mode: str
    outcome: Optional[Outcome]
    step: Optional[int]
    planned: Optional[int]
    mark: Optional[int]
    attempts: int
    charged: int
    since_progress: Optional[timedelta]
    pace: Optional[str]
    eta: Optional[datetime]
    problem: Optional[str]
    raw: Mapping[str, Any] = _raw()

    @property
    def state(self) -> str:
        """One word: how it ended, or what it does; `late` and `overdue` if it makes no progress."""
        if self.outcome is not None:
            return self.outcome.word
        if self.mode == "running" and self.pace in ("late", "overdue"):
            return str(self.pace)
        return self.mode


@dataclass(frozen=True)
class Attempt:
    """One launch of the workers: `supervise history --json`."""

    no: int
    from_step: Optional[int]
    to_step: Optional[int]
    launched: Optional[datetime]
    ran: Optional[timedelta]
    failure: Optional[str]
    cause: Optional[str]
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True)
class Event:
    """Something that happened or was decided: `supervise explain --json`. `codes` are stable, `text` is for people."""

    at: Optional[datetime]
    attempt: int
    text: str
    codes: Tuple[str, ...]
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True)
class Checkpoint:
    """One step on disk: `supervise checkpoints --json`."""

    id: str
    step: int
    verdict: str
    proven: Optional[str]
    bytes: Optional[int]
    files: Optional[int]
    newest: Optional[datetime]
    saved_by: Optional[int]
    findings: Tuple[str, ...]
    raw: Mapping[str, Any] = _raw()

    @property
    def is_proven(self) -> bool:
        """True if it is whole and was read as deeply as `proven` says."""
        return self.verdict == "whole" and self.proven is not None


@dataclass(frozen=True)
class Run:
    """A run, by anything that the program takes: the start of its name or identity, its directory, its YAML."""

    name: str

    def status(self) -> Status:
        """Where it stands now."""
        found = [_status(one) for one in _list(ask("status", self.name))]
        if len(found) != 1:
            raise SuperviseError(f"{self.name}: {len(found)} runs, one is needed", kind="usage")
        return found[0]

    def events(self) -> List[Event]:
        """What happened, oldest first."""
        answer = _map(ask("explain", self.name))
        return [event for one in _list(answer.get("attempts")) for event in _events(_map(one))]

    def checkpoints(self) -> List[Checkpoint]:
        """The steps on disk, newest first."""
        answer = _map(ask("checkpoints", self.name))
        return [_checkpoint(_map(one)) for one in _list(answer.get("steps"))]

    def history(self) -> List[Attempt]:
        """Its attempts, oldest first."""
        answer = _map(ask("history", self.name))
        return [_attempt(_map(one)) for one in _list(answer.get("attempts"))]

    def _repr_html_(self) -> str:
        try:
            status, attempts = self.status(), self.history()
        except SuperviseError as e:
            return _html.problem(self.name, str(e))
        return _html.run(status, attempts, datetime.now(timezone.utc))


def run(name: str) -> Run:
    """The run of this name. Nothing is read before a method is called."""
    return Run(str(name))


def runs() -> List[Run]:
    """Every run of this user that the machine knows, the one that was launched last first."""
    named = sorted(map(_status, _list(ask("status"))), key=_launched, reverse=True)
    return [Run(status.run_dir or status.run) for status in named if status.run_dir or status.run]


def _launched(status: Status) -> int:
    return _int(_map(status.raw.get("ledger")).get("began")) or 0


def _status(value: object) -> Status:
    one = _map(value)
    progress, outcome = _map(one.get("progress")), _map(one.get("outcome"))
    return Status(
        run=_text(one.get("run")) or "",
        name=_text(progress.get("name")),
        trainer=_text(one.get("trainer")),
        root=_text(one.get("root")),
        run_dir=_text(one.get("run_dir")),
        mode=_text(one.get("mode")) or "unknown",
        outcome=_outcome(outcome) if outcome else None,
        step=_int(progress.get("step")),
        planned=_int(progress.get("planned")),
        mark=_int(one.get("mark")),
        attempts=_int(one.get("attempts")) or 0,
        charged=_int(one.get("charged")) or 0,
        since_progress=_span(progress.get("since_ms")),
        pace=_text(progress.get("pace")),
        eta=_time(progress.get("eta")),
        problem=_text(one.get("problem")),
        raw=one,
    )


def _outcome(one: Mapping[str, Any]) -> Outcome:
    return Outcome(_text(one.get("word")) or "unknown", _int(one.get("exit_code")), _text(one.get("why")) or "")


def _attempt(one: Mapping[str, Any]) -> Attempt:
    return Attempt(
        no=_int(one.get("attempt")) or 0,
        from_step=_int(one.get("from_step")),
        to_step=_int(one.get("to_step")),
        launched=_time(one.get("launched")),
        ran=_span(one.get("ran_ms")),
        failure=_text(one.get("class")),
        cause=_text(one.get("cause")),
        raw=one,
    )


def _events(attempt: Mapping[str, Any]) -> Iterator[Event]:
    for told in map(_map, _list(attempt.get("told"))):
        codes = (_text(_map(reason).get("code")) for reason in _list(told.get("reasons")))
        yield Event(
            at=_time(told.get("at")),
            attempt=_int(attempt.get("attempt")) or 0,
            text=_text(told.get("text")) or "",
            codes=tuple(code for code in codes if code),
            raw=told,
        )


def _checkpoint(one: Mapping[str, Any]) -> Checkpoint:
    codes = (_text(_map(finding).get("code")) for finding in _list(one.get("findings")))
    return Checkpoint(
        id=_text(one.get("id")) or "",
        step=_int(one.get("step")) or 0,
        verdict=_text(one.get("verdict")) or "unknown",
        proven=_text(one.get("proven")),
        bytes=_int(one.get("bytes")),
        files=_int(one.get("files")),
        newest=_time(one.get("newest")),
        saved_by=_int(one.get("saved_by")),
        findings=tuple(code for code in codes if code),
        raw=one,
    )
