#!/usr/bin/env python3
"""Draws docs/recovered-run.svg from a real run: the demo trainer under `supervise run`, broken four ways.

    cargo build -p supervise-tests --bins && docs/recovered_run.py [PROGRAMS [SVG]]

PROGRAMS is the directory of `supervise` and `demo_trainer` (target/debug), SVG another file to write. Attempts, proven steps, ends and what goes aside
are read from the run's journal, steps from the file of losses that the trainer appends to.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# More steps between two saves than in the example: what a crash costs is to be seen.
CHANGES = {
    "total_training_steps: 14": "total_training_steps: 24",
    "save_freq: 2": "save_freq: 4",
    "step_ms: 30": "step_ms: 150",
    "step: 5,": "step: 7,",
    "step: 12,": "step: 20,",
    "step: 8,": "step: 12,",
    "step: 11,": "step: 19,",
}
WIDTH, HEIGHT, LEFT, RIGHT, ABOVE, BELOW = 760, 330, 46, 16, 46, 74
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .axis { stroke: #8c959f } .grid { stroke: #d0d7de; stroke-dasharray: 2 4 }
  .band { fill: #0969da; fill-opacity: .08 } .lost { fill: #cf222e; fill-opacity: .22 }
  .run { fill: none; stroke: #0969da; stroke-width: 2 } .proven { fill: #1a7f37 }
  .bad, .kill { stroke: #cf222e; stroke-width: 2.5; fill: none } .why { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
    .band { fill: #4493f8; fill-opacity: .13 } .lost { fill: #f85149; fill-opacity: .3 }
    .run { stroke: #4493f8 } .proven { fill: #3fb950 } .bad, .kill { stroke: #f85149 } .why { fill: #f85149 }
  }"""


def run(programs, folder, faults):
    """Runs the example; returns when each step of each attempt was trained, the journal's records, the digest of the weights."""
    config = (TOP / "examples/configs/demo.yaml").read_text()
    for old, new in {**CHANGES, "demo-run/checkpoints": f"{folder}/checkpoints"}.items():
        assert old in config, f"the example says nothing of {old!r}"
        config = config.replace(old, new)
    if not faults:
        config = "\n".join(line for line in config.splitlines() if "kind:" not in line).replace("faults:", "faults: []")
    folder.mkdir()
    (folder / "demo.yaml").write_text(config)
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    steps, seen, losses = {}, 0, folder / "losses.jsonl"
    child = subprocess.Popen([programs / "supervise", "run", "-q", folder / "demo.yaml"], cwd=folder, env={**os.environ, **paths})
    try:
        while child.poll() is None:
            text = losses.read_text() if losses.exists() else ""
            # A line that is being written has no end yet.
            lines = text[: text.rfind("\n") + 1].splitlines()
            for line in map(json.loads, lines[seen:]):
                steps.setdefault(int(line["attempt"].split("/")[2]), []).append((time.time() * 1000, line["step"]))
            seen = len(lines)
            time.sleep(0.005)
    finally:
        child.terminate()
        child.wait()
    if child.returncode:
        sys.exit(f"supervise run ended with {child.returncode}")
    journal = (folder / "checkpoints/.supervise/journal/1.jsonl").read_text().splitlines()
    records = [{"wall": r["wall"], **x} for r in map(json.loads, journal) for x in [r, *r.get("then", [])]]
    return steps, records, (folder / "digest.txt").read_text()


def story(records):
    """Attempts in order: where each began, what it proved, how it ended, what went aside behind it."""
    attempts, launched = [], None
    for record in records:
        wall, fact, what = record["wall"], record.get("fact"), record.get("decided", {}).get("what")
        if isinstance(what, dict) and "start_from" in what:
            if attempts:
                edits = what["start_from"]["edits"]
                attempts[-1]["aside"] = [int(e["move_aside"]["from"].split("_")[-1]) for e in edits if "move_aside" in e]
            start = what["start_from"]["order"]["from"]
            launched = 0 if start == "fresh" else start["step"]["step"]
        elif isinstance(what, dict) and "mark" in what:
            attempts[-1]["proven"].append((wall, what["mark"]["step"]))
        elif isinstance(fact, dict) and "launched" in str(fact.get("act_done", {}).get("result", {}).get("Ok", "")):
            attempts.append({"began": wall, "from": launched, "proven": [], "aside": [], "end": None, "why": ""})
        elif isinstance(fact, dict) and fact.get("worker_exited", {}).get("first"):
            exit = fact["worker_exited"]
            attempts[-1]["end"] = wall
            if exit["status"] != {"code": 0}:
                signal = {9: "SIGKILL"}.get(exit["status"].get("signal"))
                attempts[-1]["why"] = signal or f"exit code {exit['status'].get('code')}"
    return attempts


def draw(attempts, steps):
    zero, end = attempts[0]["began"], attempts[-1]["end"]
    top = max(step for path in steps.values() for _, step in path)
    x = lambda wall: LEFT + (wall - zero) / (end - zero) * (WIDTH - LEFT - RIGHT)
    y = lambda step: HEIGHT - BELOW - step / top * (HEIGHT - ABOVE - BELOW)
    out = []
    put = lambda text: out.append("  " + text)
    words = lambda at, height, text, more="": put(f'<text x="{at:.0f}" y="{height:.0f}"{more}>{text}</text>')
    cross = lambda at, height: put(f'<path class="bad" d="M{at - 5:.1f} {height - 5:.1f}l10 10m0-10l-10 10"/>')
    for step in range(0, top + 1, 4):
        put(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(step):.1f}" y2="{y(step):.1f}"/>')
        words(LEFT - 8, y(step) + 4, step, ' text-anchor="end"')
    for no, a in enumerate(attempts, 1):
        path = [p for p in steps[no] if p[0] <= a["end"] + 500]
        reached, width = path[-1][1], x(a["end"]) - x(a["began"])
        put(f'<rect class="band" x="{x(a["began"]):.1f}" y="{ABOVE}" width="{width:.1f}" height="{y(0) - ABOVE:.1f}"/>')
        words(x(a["began"]) + 3, ABOVE - 8, f"attempt {no}" if width > 60 else no)
        if no < len(attempts):
            back = attempts[no]["from"]
            lost = [at for at, step in path if step > back]
            if lost:
                wide = x(a["end"]) - x(lost[0])
                put(f'<rect class="lost" x="{x(lost[0]):.1f}" y="{y(reached):.1f}" width="{wide:.1f}" height="{y(back) - y(reached):.1f}"/>')
            put(f'<line class="kill" x1="{x(a["end"]):.1f}" x2="{x(a["end"]):.1f}" y1="{ABOVE - 4}" y2="{y(0):.1f}"/>')
            words(x(a["end"]) - 4, ABOVE - 24, a["why"], ' text-anchor="end" class="why"')
        line = " ".join(f"{x(at):.1f},{y(step):.1f}" for at, step in [(a["began"], a["from"]), *path])
        put(f'<polyline class="run" points="{line}"/>')
        # What looked whole and was found damaged when all of it was read, before the resume, is no mark of success.
        for at, step in [p for p in a["proven"] if p[1] not in a["aside"]]:
            put(f'<circle class="proven" cx="{x(min(at, a["end"])):.1f}" cy="{y(step):.1f}" r="4.5"/>')
        for step in a["aside"]:
            cross(next((x(at) for at, s in path if s == step), x(a["end"])), y(step))
    put(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>')
    words(LEFT, y(0) + 18, "0 s")
    words(WIDTH - RIGHT, y(0) + 18, f"{(end - zero) / 1000:.0f} s", ' text-anchor="end"')
    words(6, ABOVE - 24, "step")
    foot = HEIGHT - 20
    put(f'<circle class="proven" cx="{LEFT + 6}" cy="{foot - 4}" r="4.5"/>')
    words(LEFT + 16, foot, "step proven")
    cross(LEFT + 116, foot - 4)
    words(LEFT + 128, foot, "torn or damaged: moved aside")
    put(f'<rect class="lost" x="{LEFT + 326}" y="{foot - 11}" width="14" height="14"/>')
    words(LEFT + 346, foot, "work lost and trained again")
    put(f'<line class="kill" x1="{LEFT + 536}" x2="{LEFT + 536}" y1="{foot - 12}" y2="{foot + 4}"/>')
    words(LEFT + 544, foot, "trainer died")
    title = f"A run of {top} steps that was broken {len(attempts) - 1} times and ended at step {top}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    return "\n".join([head, f"  <title>{title}</title>", f"  <style>{STYLE}\n  </style>", *out, "</svg>", ""])


def main():
    given = dict(enumerate(sys.argv))
    programs = Path(given.get(1, TOP / "target/debug")).resolve()
    out = Path(given.get(2, TOP / "docs/recovered-run.svg"))
    with tempfile.TemporaryDirectory(prefix="recovered-run-") as folder:
        steps, records, digest = run(programs, Path(folder) / "broken", True)
        if run(programs, Path(folder) / "straight", False)[2] != digest:
            sys.exit("the weights are not those of an uninterrupted run")
    out.write_text(draw(story(records), steps))


if __name__ == "__main__":
    main()
