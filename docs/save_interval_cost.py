#!/usr/bin/env python3
"""Draws docs/save-interval-cost.svg: what a save interval costs on 64, 512 and 16,384 GPUs.

    make simulate-picture, or: docs/save_interval_cost.py [PROGRAM [SVG]]

PROGRAM is `supervise` (target/debug/supervise), SVG another file to write. The curves are the `sweep` of `supervise simulate`.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SIZES = [64, 512, 16384]
WORLD = ["--rate", "6.5", "--step", "10s", "--save-stall", "30s", "--launch", "3m", "--detect", "30s", "--days", "30", "--seeds", "1"]
# Where the name of a curve stands: x (else at the best interval), and how far below it.
PLACES = {64: ("end", -12), 512: ("best", -12), 16384: ("best", 22)}
# Minutes between saves, and percent of the time lost.
SPAN, MOST = (1, 1000), 30
TICKS = [(1, "1 min"), (3, "3 min"), (10, "10 min"), (30, "30 min"), (100, "1 h 40"), (300, "5 h"), (1000, "17 h")]
WIDTH, HEIGHT, LEFT, RIGHT, ABOVE, BELOW = 760, 330, 46, 16, 20, 46
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .axis { stroke: #8c959f } .grid { stroke: #d0d7de; stroke-dasharray: 2 4 }
  .curve { fill: none; stroke-width: 2 } .name { font-weight: 600 }
  .s64 { stroke: #1a7f37 } .s512 { stroke: #0969da } .s16384 { stroke: #cf222e }
  .n64 { fill: #1a7f37 } .n512 { fill: #0969da } .n16384 { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
    .s64 { stroke: #3fb950 } .s512 { stroke: #4493f8 } .s16384 { stroke: #f85149 }
    .n64 { fill: #3fb950 } .n512 { fill: #4493f8 } .n16384 { fill: #f85149 }
  }"""


def simulated(program, gpus):
    """Points of the curve, minutes and percent, and the best one."""
    command = [program, "simulate", "--gpus", str(gpus), *WORLD, "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    point = lambda p, goodput: (p["interval_ms"] / 60000, 100 * (1 - goodput))
    best = answer["best"]
    return [point(p, p["goodput"]) for p in answer["sweep"]], point(best, best["expected"])


def draw(curves):
    low, high = map(math.log, SPAN)
    x = lambda minutes: LEFT + (math.log(minutes) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    y = lambda percent: HEIGHT - BELOW - percent / MOST * (HEIGHT - ABOVE - BELOW)
    out = []
    put = lambda text: out.append("  " + text)
    for percent in range(0, MOST + 1, 5):
        put(f'<line class="{"grid" if percent else "axis"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent):.1f}" y2="{y(percent):.1f}"/>')
        put(f'<text x="{LEFT - 8}" y="{y(percent) + 4:.0f}" text-anchor="end">{percent} %</text>')
    for minutes, name in TICKS:
        anchor = {SPAN[0]: "start", SPAN[1]: "end"}.get(minutes, "middle")
        put(f'<text x="{x(minutes):.0f}" y="{HEIGHT - BELOW + 18}" text-anchor="{anchor}">{name}</text>')
    put(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">training between two saves</text>')
    for gpus, (points, best) in curves.items():
        shown = [(m, p) for m, p in points if SPAN[0] <= m <= SPAN[1] and p <= MOST]
        line = " ".join(f"{x(m):.1f},{y(p):.1f}" for m, p in shown)
        put(f'<polyline class="curve s{gpus}" points="{line}"/>')
        put(f'<circle class="n{gpus}" cx="{x(best[0]):.1f}" cy="{y(best[1]):.1f}" r="4"/>')
        place, below = PLACES[gpus]
        at, anchor = (shown[-1], "end") if place == "end" else (best, "middle")
        put(f'<text class="name n{gpus}" x="{x(at[0]):.0f}" y="{y(at[1]) + below:.0f}" text-anchor="{anchor}">{gpus:,} GPUs: {best[1]:.1f} %</text>')
    title = "Share of the time that saves and failures cost, by save interval, on 64, 512 and 16,384 GPUs"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    return "\n".join([head, f"  <title>{title}</title>", f"  <style>{STYLE}\n  </style>", *out, "</svg>", ""])


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else TOP / "target/debug/supervise"
    svg = Path(sys.argv[2]) if len(sys.argv) > 2 else TOP / "docs/save-interval-cost.svg"
    svg.write_text(draw({gpus: simulated(program, gpus) for gpus in SIZES}))


main()
