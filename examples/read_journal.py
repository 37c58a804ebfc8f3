#!/usr/bin/env python3
"""Reads the journal of a run: `read_journal.py RUN_DIRECTORY [PLOT.png]`. Standard library; matplotlib for the plot alone."""
import json
import pathlib
import sys
import zlib

OUTER = ("fact", "decided", "intended", "ignored")
FIELD = {"fact": "kind", "decided": "what", "intended": "act"}


def whole(line):
    """The object in a line, None where it is torn or damaged."""
    head, sep, tail = line.rpartition(b',"crc":"')
    if not sep or tail != b"%08x\"}" % zlib.crc32(head + b"}"):
        return None
    return json.loads(head + b"}")


def records(run_dir):
    """Every record of every term, oldest first: (wall in ms, kind, body)."""
    files = list(pathlib.Path(run_dir, "journal").glob("*.jsonl"))
    if not files:
        sys.exit(f"{run_dir}: no journal; name the run directory, for example CHECKPOINT_ROOT/.supervise")
    for file in sorted(files, key=lambda f: int(f.stem)):
        last = 0
        for line in filter(None, map(whole, file.read_bytes().split(b"\n"))):
            if line["seq"] <= last:
                continue
            moment = [line, *line.get("then", [])]
            last = line["seq"] + len(moment) - 1
            for record in moment:
                outer = next((k for k in OUTER if k in record), None)
                if outer is None:
                    continue  # a newer version's
                body = record[outer]
                kind = body
                if isinstance(body, dict):
                    kind = body.get(FIELD.get(outer), body)
                    kind = kind["kind"] if outer == "intended" else kind
                name, content = (kind, None) if isinstance(kind, str) else next(iter(kind.items()))
                yield line["wall"], outer if outer == "ignored" else f"{outer}.{name}", content


def main(run_dir, plot=None):
    steps, proven, ends = [], [], []
    for wall, kind, body in records(run_dir):
        if kind == "fact.progress" and body.get("step") is not None:
            steps.append((wall / 1000, body["step"]))
        elif kind == "decided.mark":
            proven.append((wall / 1000, body["step"]))
        elif kind == "decided.diagnosed":
            ends.append((wall / 1000, body["class"]))
    print(f"{len(steps)} steps printed, proven: {[s for _, s in proven]}, failures: {[c for _, c in ends]}")
    if plot:
        import matplotlib.pyplot as plt
        plt.step(*zip(*steps), where="post", label="step")
        plt.plot(*zip(*proven), "o", label="proven")
        for at, why in ends:
            plt.axvline(at, color="red", label=why)
        plt.legend()
        plt.savefig(plot)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:3])
