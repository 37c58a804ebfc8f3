"""What `supervise verify` says, and a file that stands for a while in the place of another: for the scripts beside this one."""

import json
import os
import subprocess
from contextlib import contextmanager


def verify(program, *words):
    """The exit code and the view of --json; None where there is none, and what was said instead."""
    done = subprocess.run([program, "verify", "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    try:
        return done.returncode, json.loads(done.stdout), ""
    except ValueError:
        return done.returncode, None, done.stderr.decode(errors="replace")[-300:]


def looked_at(program, paths):
    """The view of each path, asked for in groups: a command line has an end."""
    return [view for at in range(0, len(paths), 500) for view in verify(program, *paths[at : at + 500])[1]["paths"]]


def holders(view):
    """Files, sets and steps: whatever has findings."""
    return [holder for path in view["paths"] for holder in [*path["files"], *path.get("sets", []), *path["steps"]]]


def codes(view, notes=True):
    """The codes of all findings."""
    return {f["code"] for holder in holders(view) for f in holder["findings"] if notes or f["level"] != "note"}


@contextmanager
def stands_in(path, content, stamp=None):
    """Another content (None: no file) with the file's own time, or that of `stamp`; in the end everything is as before."""
    was, times = path.read_bytes(), path.stat()

    def write(data, stat):
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    try:
        if content is None:
            path.unlink()
        else:
            write(content, stamp or times)
        yield
    finally:
        write(was, times)
