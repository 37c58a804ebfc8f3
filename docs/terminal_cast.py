#!/usr/bin/env python3
"""Records commands in a terminal and draws them as an animated SVG.

usage: terminal_cast.py PROGRAMS [OUT]    (a directory with `supervise`; docs/terminal-cast.svg)

The lines are those of the commands, cut at the width of the terminal, at half of their speed. The progress line, which is
written over and over, is left out.
"""

import fcntl
import os
import pty
import re
import shutil
import socket
import struct
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
COMMANDS = ["supervise run demo.yaml", "supervise status", "supervise explain demo.yaml --attempt 2"]
COLUMNS, ROWS = 120, 26
SLOWER = 2.0
TYPED, READ = 0.8, 2.5  # seconds after a command was typed, and before the next one
HEIGHT, WIDTH, LEFT = 17, 7.25, 12
COLORS = {"2": "dim", "31": "red", "32": "green", "33": "yellow", "1;31": "red"}


def record(command, folder, env):
    """Lines of a command with their seconds since its start."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe("sh", ["sh", "-c", command], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, rest, lines = time.monotonic(), b"", []
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the terminal of a process that exited
            break
        *whole, rest = (rest + data).split(b"\r\n")
        lines += [(time.monotonic() - began, line.decode().split("\x1b[2K")[-1]) for line in whole]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, command
    return lines


def drawn(line):
    """A line with its colors as SVG, cut at the width."""
    out, color, room = [], None, COLUMNS
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            color = COLORS.get(part[2:-1])
        elif part and room:
            text = escape(part[:room])
            room -= len(part[:room])
            out.append(f'<tspan class="{color}">{text}</tspan>' if color else text)
    return "".join(out)


def main():
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else TOP / "docs/terminal-cast.svg"
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": f"{Path(sys.argv[1]).resolve()}:/usr/bin:/bin", "HOME": folder, "TERM": "xterm-256color"}
        shutil.copy(TOP / "examples/configs/demo.yaml", folder)
        lines, now = [], 0.0
        for command in COMMANDS:
            lines.append((now, f"\x1b[32m$ {command}\x1b[0m"))
            recorded = record(command, folder, env)
            lines += [(now + TYPED + SLOWER * at, line) for at, line in recorded]
            now = lines[-1][0] + READ
    whole = now + READ
    plain = [(at, line.replace(folder, "~").replace(f" on {socket.gethostname()}", " on this machine")) for at, line in lines]
    # The newest line stands at the bottom: each new one moves all lines up.
    moves = "".join(f"{100 * at / whole:.2f}%{{transform:translateY({(ROWS - n) * HEIGHT}px)}}" for n, (at, _) in enumerate(plain, 1))
    width, height = int(COLUMNS * WIDTH) + 2 * LEFT, ROWS * HEIGHT + 16
    texts = "\n".join(f'<text y="{n * HEIGHT}">{drawn(line)}</text>' for n, (_, line) in enumerate(plain))
    last = (ROWS - len(plain)) * HEIGHT
    out.write_text(f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>supervise run, status and explain in a terminal: a run that is broken four times and ends</title>
<style>
text{{font:12px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d6dbe3;white-space:pre}}
.dim{{fill:#8b95a3}}.red{{fill:#ff7b72}}.green{{fill:#7ee787}}.yellow{{fill:#e3b341}}
#lines{{transform:translateY({last}px);animation:lines {whole:.1f}s step-end infinite}}
@media (prefers-reduced-motion:reduce){{#lines{{animation:none}}}}
@keyframes lines{{{moves}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#161b22"/>
<svg x="{LEFT}" y="8" width="{width - 2 * LEFT}" height="{height - 16}"><g transform="translate(0 12)"><g id="lines">
{texts}
</g></g></svg>
</svg>
""")


main()
