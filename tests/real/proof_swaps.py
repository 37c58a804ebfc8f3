"""Each file of a step is exchanged for that of another step, and `supervise verify` is asked: what is told, and by what.

usage: proof_swaps.py PROGRAMS OUT       (OUT as make_checkpoints.py left it)

No run recorded these steps. Every file that differs between the two steps of a checkpoint is put in the place of the other,
once with the time that it had (a copy that keeps times) and once with the time of its place (nothing but content tells). The
step is looked at alone with its siblings beside it. Counts what is called whole, with a warning and without one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from make_checkpoints import catalogue

WARNS = ("mixed_save_suspected", "counters_stand_still", "counters_went_back", "data_of_other_step", "data_behind", "order_of_times", "counter_differs")


def verify(program, path):
    done = subprocess.run([program, "verify", "--depth", "full", "--json", path], stdout=subprocess.PIPE, timeout=600)
    view = json.loads(done.stdout)["paths"][0]
    holders = [*view["files"], *view.get("sets", []), *view["steps"]]
    return done.returncode, {f["code"] for h in holders for f in h["findings"] if f["level"] != "note"}


def kind(path):
    name = path.name
    for word, what in (("model_world", "model shards"), ("optim_world", "optimizer shards"), ("extra_state", "extra shards")):
        if name.startswith(word):
            return what
    return name if name.startswith(".") or name.endswith(".json") else f"*{path.suffix}" if path.suffix != ".pt" else name


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
            copies = [Path(shutil.copytree(step, Path(work) / step.name if steps[0].name != steps[1].name else Path(work) / str(n) / step.name)) for n, step in enumerate(steps)]
            here, other = copies[1], copies[0]
            code, before = verify(program, here)
            if code not in (0, 23):
                wrong.append(f"{name} as it was saved: {code} {before}")
            if code:
                continue
            for path in sorted(p for p in here.rglob("*") if p.is_file()):
                theirs = other / path.relative_to(here)
                if not theirs.is_file() or theirs.read_bytes() == path.read_bytes():
                    continue
                was, times, old = path.read_bytes(), path.stat(), theirs.stat()
                for how, stamp in (("its own time", old), ("the time of its place", times)):
                    path.write_bytes(theirs.read_bytes())
                    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
                    code, codes = verify(program, here)
                    warned = bool((codes - before) & set(WARNS)) or bool(codes - before)
                    row = table.setdefault((how, kind(path)), Counter())
                    row["all"] += 1
                    row["not whole" if code else "warned" if warned else "passed"] += 1
                    if args.verbose and not code and not warned:
                        print(f"    {name} {path.relative_to(here)}: {how}")
                path.write_bytes(was)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
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
