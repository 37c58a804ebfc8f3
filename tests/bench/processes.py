"""What /proc says about the processes that a launcher started: which they are, their private memory, their CPU time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROC = Path("/proc")
TAG = "BENCH_TAG"


def start(command, tag, log, **environment):
    """Starts a launcher in a session of its own; its descendants inherit the tag, so that none is lost from sight."""
    env = {**os.environ, **environment, TAG: tag}
    # Ended from outside, this program must still reach the caller's `finally` and end the launcher.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with open(log, "ab") as out:
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


def pids():
    return [int(p.name) for p in PROC.iterdir() if p.name.isdigit()]


def stat(pid):
    """Fields of /proc/PID/stat after the name, or None where the process is gone or a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def tagged(tag):
    """Living processes whose inherited environment carries the tag."""
    want = f"{TAG}={tag}".encode()
    found = []
    for pid in pids():
        try:
            environ = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if want in environ.split(b"\0") and stat(pid):
            found.append(pid)
    return found


def descendants(root):
    children = {}
    for pid in pids():
        if fields := stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return [pid for pid in found if stat(pid)]


def of_launcher(root, tag):
    """Everything that the launcher is or has started."""
    return sorted(set(descendants(root)) | set(tagged(tag)))


def command_line(pid):
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def environment(pid, name):
    try:
        pairs = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((p.split(b"=", 1)[1].decode() for p in pairs if p.startswith(f"{name}=".encode())), None)


def private_kib(pid):
    """Memory that would be free without this process: pages it shares with others do not count."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def cpu_seconds(of):
    ticks = sum(int(fields[11]) + int(fields[12]) for pid in of if (fields := stat(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def end(launcher, tag):
    """Asks the launcher to stop, then kills whatever of it is left."""
    if launcher.poll() is None:
        launcher.send_signal(signal.SIGTERM)
        try:
            launcher.wait(timeout=20)
        except subprocess.TimeoutExpired:
            pass
    for _ in range(50):
        left = of_launcher(launcher.pid, tag)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.1)
    launcher.wait()
