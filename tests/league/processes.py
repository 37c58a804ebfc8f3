"""The processes of a game: those whose environment has its mark, or that work below its directory."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from pathlib import Path


def marked(mark: str, directory: Path) -> dict[int, str]:
    """Process id and command of each."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        folder = Path("/proc") / name
        try:
            inside = os.readlink(folder / "cwd").startswith(str(directory))
            if (inside or mark.encode() in (folder / "environ").read_bytes().split(b"\0")) and state(folder) not in "ZX":
                found[int(name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            pass
    found.pop(os.getpid(), None)
    return found


def state(folder: Path) -> str:
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]


def send(pid: int, sig: signal.Signals) -> bool:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return False
    return True


def leftovers(mark: str, directory: Path, within: float) -> dict[int, str]:
    """What is left of a game after `within` seconds."""
    end = time.monotonic() + within
    while True:
        left = marked(mark, directory)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def end_all(mark: str, directory: Path) -> None:
    """Ends what is left. Again and again: a process may fork while it is looked for."""
    for _ in range(50):
        left = marked(mark, directory)
        if not left:
            return
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.05)


def free_port() -> int:
    """A port below those of outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
