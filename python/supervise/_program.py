"""The program `supervise`, and its `--json`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, List, Optional, Tuple

# daemontools has a `supervise` too, so on PATH our other name comes first.
NAMES = ("supervise-rl", "supervise")


class SuperviseError(Exception):
    """The program failed, or cannot be called. `exit_code` is the program's, or None if it did not run to its end."""

    def __init__(self, message: str, exit_code: Optional[int] = None, kind: Optional[str] = None, hints: Tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.kind = kind
        self.hints = hints

    def __str__(self) -> str:
        return "\n".join([self.message, *("hint: " + hint for hint in self.hints)])


def program() -> str:
    """The program beside this interpreter, or else on PATH, or else in $SUPERVISE."""
    for place in (os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts")):
        beside = os.path.join(place, "supervise")
        if place and os.access(beside, os.X_OK) and os.path.isfile(beside):
            return beside
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    named = os.environ.get("SUPERVISE")
    if named and os.access(named, os.X_OK) and os.path.isfile(named):
        return named
    text = "the program `supervise` is neither beside this Python nor on PATH"
    raise SuperviseError(text, hints=("install the wheel into this environment, or set SUPERVISE to the program",))


def ask(command: str, *words: str, timeout: float = 120) -> Any:
    """The answer of `supervise COMMAND --json`."""
    if any("\0" in word for word in words):
        raise SuperviseError("the name of a run has no zero byte", kind="usage")
    argv: List[str] = [program(), command, "--json"]
    if words:
        argv += ["--", *words]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise SuperviseError(f"`supervise {command}` gave no answer in {timeout:g} s") from None
    except OSError as e:
        raise SuperviseError(f"{argv[0]} cannot be started: {e.strerror or e}") from e
    if done.returncode != 0:
        raise failed(command, done.returncode, done.stderr)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SuperviseError(f"{argv[0]} gave no JSON: is it this `supervise`?", done.returncode) from None


def failed(command: str, code: int, stderr: bytes) -> SuperviseError:
    """The error that the program printed."""
    text = stderr.decode("utf-8", "replace").strip()
    try:
        error = json.loads(text.splitlines()[-1] if text else "")["error"]
        message = "\n".join([str(error["message"]), *map(str, error.get("lines") or [])])
        return SuperviseError(message, code, str(error.get("kind")), tuple(map(str, error.get("hints") or [])))
    except (ValueError, LookupError, TypeError, AttributeError):
        return SuperviseError(text[-2000:] or f"`supervise {command}` ended with {code}", code)
