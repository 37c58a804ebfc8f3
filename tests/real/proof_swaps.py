"""Each file of a step is exchanged for that of another step, and `supervise verify` is asked: what is told, and by what.

usage: proof_swaps.py PROGRAMS OUT       (OUT as make_checkpoints.py left it)

No run recorded these steps. Every file that differs between the two steps of a checkpoint is put in the place of the other,
once with the time that it had (a copy that keeps times) and once with the time of its place (nothing but content tells). The
step is looked at alone with its siblings beside it. Counts what is called whole, with a warning and without one.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from make_checkpoints import catalogue
from verify_view import codes, stands_in, verify


def doubts(program, path):
    code, view, _ = verify(program, "--depth", "full", path)
    return code, codes(view, notes=False)


def kind(path):
    name = path.name
    for word, what in (("model_world", "model shards"), ("optim_world", "optimizer shards"), ("extra_state", "extra shards")):
        if name.startswith(word):
            return what
    return name if name.startswith(".") or name.endswith(".json") else f"*{path.suffix}" if path.suffix != ".pt" else name


def beside(steps):
    """The two steps, and those that stand with them."""
    stem = steps[0].name.rstrip("0123456789")
    more = sorted(p for p in steps[0].parent.glob(f"{stem}*") if stem.endswith("_") and p.is_dir())
    return [*steps, *(p for p in more if p not in steps)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    program, table, wrong = args.programs.resolve() / "supervise", {}, []
    for name, steps in catalogue(args.out).items():
        if name == "areal_hf" or not steps[0].is_dir():
            continue
        with tempfile.TemporaryDirectory(prefix="swaps-") as work:
            apart = steps[0].name == steps[1].name
            copies = [Path(shutil.copytree(step, Path(work) / (str(n) if apart else "") / step.name)) for n, step in enumerate(beside(steps))]
            here, other = copies[1], copies[0]
            code, before = doubts(program, here)
            if code not in (0, 23):
                wrong.append(f"{name} as it was saved: {code} {before}")
            if code:
                continue
            for path in sorted(p for p in here.rglob("*") if p.is_file()):
                theirs = other / path.relative_to(here)
                if not theirs.is_file() or theirs.read_bytes() == path.read_bytes():
                    continue
                for how, stamp in (("its own time", theirs.stat()), ("the time of its place", path.stat())):
                    with stands_in(path, theirs.read_bytes(), stamp):
                        code, after = doubts(program, here)
                    warned = bool(after - before)
                    row = table.setdefault((how, kind(path)), Counter())
                    row["all"] += 1
                    row["not whole" if code else "warned" if warned else "passed"] += 1
                    if args.verbose and not code and not warned:
                        print(f"    {name} {path.relative_to(here)}: {how}")
    for how in sorted({how for how, _ in table}):
        rows = {what: row for (h, what), row in table.items() if h == how}
        total = sum(rows.values(), Counter())
        print(f"{how}: {total['all']} files of another step: {total['not whole']} not whole, {total['warned']} warned of, {total['passed']} passed")
        for what, row in sorted(rows.items()):
            print(f"    {what:<24} {row['all']:3}: {row['not whole']:3} not whole, {row['warned']:3} warned of, {row['passed']:3} passed")
    for words in wrong:
        print(f"VIOLATION {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
