"""Reports from a hand-written training loop to its supervisor.

A report is one line on standard output, which the supervisor reads anyway, from every machine of the run. A saved checkpoint is an empty
file beside it, whose name says step, number of files and bytes: it appears at once, so that a save that was killed has none.

Nothing here raises, and nothing waits: a line that the pipe has no room for is dropped.
"""

from __future__ import annotations

import atexit
import math
import operator
import os
import re
import select
import sys
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple, Union

from ._door import SaveDoor, process_group

PathLike = Union[str, "os.PathLike[str]"]

# More than ten reports a second would only fill the log.
PAUSE = 0.1
LARGEST_STEP = 10**16 - 1
METRICS = 32
KEY = re.compile(r"[A-Za-z0-9_.@/-]{1,64}\Z")
# A write of up to 4096 bytes to a pipe is atomic: lines of other processes never end up inside.
LINE = 4000
NAME_BYTES = 180
FILES = 1_000_000
MARK = re.compile(r"saved\.(.+)\.(\d+)-(\d+)-(\d+)(?:-(\d+))?\Z", re.DOTALL)
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Reporter:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = -math.inf
        self.pending: Optional[Tuple[int, Optional[int], Mapping[str, Any]]] = None
        self.ends_for = 0
        self.step: Optional[int] = None
        self.warned: Set[str] = set()
        self.said_unsaved = False

    def begin(self) -> None:
        """Makes this process say its end."""
        if self.ends_for != os.getpid():
            self.ends_for = os.getpid()
            atexit.register(self.end, self.ends_for)

    def report(self, step: int, total: Optional[int], metrics: Mapping[str, Any]) -> None:
        with self.lock:
            self.begin()
            self.pending = (step, total, metrics)
            self.step = step
            now = time.monotonic()
            if now - self.last >= PAUSE:
                self.last = now
                self.flush()

    def flush(self) -> None:
        if self.pending is not None:
            step, total, metrics = self.pending
            self.pending = None
            _write(_line(step, total, metrics))

    def end(self, process: int) -> None:
        """Says that the interpreter ends without an exception. A fork ends on its own."""
        if os.getpid() != process:
            return
        try:
            sys.stdout.flush()
            self.flush()
            if getattr(sys, "last_value", None) is None and getattr(sys, "last_exc", None) is None:
                _write("supervise: end")
        except Exception:  # the interpreter ends: nobody could be told
            pass

    def warn(self, what: str, problem: str) -> None:
        """Once for each problem."""
        if problem in self.warned or len(self.warned) >= 20:
            return
        self.warned.add(problem)
        try:
            warnings.warn(f"supervise.{what}(): {problem}", RuntimeWarning, stacklevel=_level_of_caller())
        except Warning as e:
            # Warnings may be errors here; a report never raises.
            print(f"supervise: {e}", file=sys.stderr)


    def unsaved(self, problem: str) -> None:
        """Warns, and once tells the supervisor too, which cannot see a save that does not count."""
        self.warn("saved", problem)
        if not self.said_unsaved:
            self.said_unsaved = True
            _write("supervise: not saved: " + problem)


def _level_of_caller() -> int:
    """Where a warning belongs: the first line that is not of this package."""
    level, frame = 1, sys._getframe(1)
    inner: Optional[types.FrameType] = frame
    while inner is not None and os.path.abspath(inner.f_code.co_filename).startswith(PACKAGE):
        level, inner = level + 1, inner.f_back
    return level if inner is not None else 1


_reporter = _Reporter()


def report(step: int, total: Optional[int] = None, metrics: Optional[Mapping[str, Any]] = None, *, rank: Optional[int] = None) -> None:
    """Says that `step` is done, of `total`, with its metrics.

    Call it after each step. Only rank 0 reports (`RANK`, or `rank`), at most ten times a second. Pass floats: a tensor on a GPU would have
    to be waited for.
    """
    try:
        if not is_supervised() or not is_first(rank):
            return
        _reporter.report(_step(step), None if total is None else _step(total), dict(metrics or {}))
    except Exception as e:  # a report never ends a training
        _reporter.warn("report", _words(e))


def saved(path: PathLike, step: int, *, rank: Optional[int] = None) -> None:
    """Says that the checkpoint of `step` is complete: a file or a directory, directly in the run's checkpoint root.

    Call it on rank 0 when all ranks have written theirs. Give each step a name of its own: a file that is overwritten is no checkpoint
    while it is written.
    """
    try:
        root = os.environ.get("SUPERVISE_SAVES")
        if not root or not is_supervised() or not is_first(rank):
            return
        with _reporter.lock:
            _reporter.flush()
        _mark(root, path, _step(step))
    except Exception as e:  # a report never ends a training
        _reporter.unsaved(_words(e))


def resume_from() -> Optional[Path]:
    """The checkpoint that the supervisor chose for this start, as it was given to `saved()`; None: start from nothing."""
    # Resumed at its last step, a loop ends without a report.
    if is_supervised() and is_first(None):
        _reporter.begin()
    path = os.environ.get("SUPERVISE_RESUME_FROM")
    return Path(path) if path else None


_doors: Dict[str, SaveDoor] = {}


def should_save() -> bool:
    """Whether the supervisor asks for a checkpoint now. Call it once after each step, on every rank: all get the same answer.

    With several ranks, torch.distributed must be initialized. If rank 0 does not come, this raises as a collective would.
    """
    path = os.environ.get("SUPERVISE_SAVE_REQUEST")
    if not path or not is_supervised():
        return False
    if process_group() is None and (os.environ.get("WORLD_SIZE", "1").strip() or "1") != "1":
        return False
    return _doors.setdefault(path, SaveDoor(path)).asked(None, _reporter.step)


def is_supervised() -> bool:
    return "SUPERVISE_ATTEMPT" in os.environ


def is_first(rank: Optional[int]) -> bool:
    return (os.environ.get("RANK", "0").strip() or "0") == "0" if rank is None else operator.index(rank) == 0


def _words(e: Exception) -> str:
    return " ".join(str(e).split())[:300] or type(e).__name__


def _step(value: object) -> int:
    try:
        step = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"a step is an integer, not {type(value).__name__}") from None
    if not 0 <= step <= LARGEST_STEP:
        raise ValueError("a step is a number from 0 to 10**16 - 1")
    return step


def _line(step: int, total: Optional[int], metrics: Mapping[str, Any]) -> str:
    words: List[str] = [f"supervise: step={step}" + ("" if total is None else f"/{total}")]
    length = len(words[0])
    for key, value in list(metrics.items())[:METRICS]:
        if not isinstance(key, str) or not KEY.match(key) or key == "step":
            _reporter.warn("report", f"{str(key)[:64]!r} is no name of a metric: use letters, digits and _ . @ / -")
            continue
        try:
            word = f"{key}={float(value)!r}"
        except Exception:  # a value may raise anything
            _reporter.warn("report", f"{key} is no number")
            continue
        length += len(word) + 1
        if length < LINE:
            words.append(word)
    if len(metrics) > METRICS:
        _reporter.warn("report", f"only the first {METRICS} metrics are reported")
    return " ".join(words)


def _write(line: str) -> None:
    """One line on standard output, if there is room: below any buffer of Python's, which could block."""
    try:
        if select.select([], [1], [], 0)[1]:
            os.write(1, line.encode("ascii", "backslashreplace") + b"\n")
    except (OSError, ValueError):
        # Standard output is closed.
        pass


def mark(path: PathLike, step: int) -> None:
    """Reports a checkpoint that was saved without a supervisor. Raises if it is none."""
    real = os.path.realpath(os.fspath(path))
    _mark(os.path.dirname(real), real, _step(step))


def _mark(root: str, path: PathLike, step: int) -> None:
    base, real = os.path.realpath(root), os.path.realpath(os.fspath(path))
    name = os.path.basename(real)
    if real == base:
        raise ValueError(f"{real} is the checkpoint root itself (supervisor.root): save each step into a file or directory of its own in it")
    if os.path.dirname(real) != base:
        raise ValueError(f"{real} is not directly in the checkpoint root {base} (supervisor.root)")
    if name.startswith((".", "saved.")) or len(os.fsencode(name)) > NAME_BYTES:
        raise ValueError(f"{name[:200]!r} is no name of a checkpoint: up to {NAME_BYTES} bytes, not beginning with `.` or `saved.`")
    name.encode("utf-8")
    files, size, newest = _size(real)
    if files == 0:
        raise ValueError(f"there is no file in {real}")
    mark = f"saved.{name}.{step}-{files}-{size}-{newest}"
    for other, marked, of in _marks(base):
        if marked == name and of != step:
            _reporter.warn("saved", "give each step a name of its own: an overwritten checkpoint is lost if its save is killed")
        if other != mark and (marked == name or not os.path.lexists(os.path.join(base, marked))):
            _remove(os.path.join(base, other))
    made = os.open(os.path.join(base, mark), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # Equal times show that neither the mark nor the files were written again, and that both are no copies.
        os.utime(made, ns=(newest, newest))
    except OSError:
        pass
    finally:
        os.close(made)


def _marks(base: str) -> List[Tuple[str, str, int]]:
    out: List[Tuple[str, str, int]] = []
    with os.scandir(base) as entries:
        for entry in entries:
            found = MARK.match(entry.name)
            if found:
                out.append((entry.name, found.group(1), int(found.group(2))))
    return out


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _size(path: str) -> Tuple[int, int, int]:
    """Number of regular files, their bytes, and when the newest was written, in ns; links are not followed."""
    if os.path.isfile(path):
        stat = os.lstat(path)
        return 1, stat.st_size, stat.st_mtime_ns
    files = size = newest = 0
    stack = [path]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    files, size, newest = files + 1, size + stat.st_size, max(newest, stat.st_mtime_ns)
                if files > FILES:
                    raise ValueError(f"more than {FILES} files in {path}")
    return files, size, newest


def numbers(values: Mapping[str, Any]) -> Dict[str, float]:
    """The metrics that can be read without waiting for a device, by names that a report takes."""
    out: Dict[str, float] = {}
    for key, value in values.items():
        is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_plain and getattr(getattr(value, "device", None), "type", None) != "cpu":
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
        if KEY.match(str(key)) and key != "step":
            out[str(key)] = number
    return out
