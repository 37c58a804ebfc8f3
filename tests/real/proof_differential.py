"""Compares what `supervise verify` says of damaged checkpoints with what becomes of them when they are loaded.

usage: proof_differential.py PROGRAMS OUT [--areal VENV] [--each 10] [--seed 1] [--only NAME,NAME]
                             [--strict] [--verbose]

OUT gets the checkpoints of make_checkpoints.py. Each is verified and loaded as it is, then damaged in --each ways, one
after another. What must hold each time:

  1. what cannot be loaded is not called whole;
  2. damage to a byte that a CRC in the file covers is never called whole;
  3. what is called whole has the same content, unless the damage is one that nothing in the files could tell: that is
     what a record is for;
  4. what is not called whole has a reason with a code, and the program never ends in another way than its exit codes say.

The table shows how often. One line for each violation says how to do it again. Ends with 1 if there is any.
"""

import argparse
import collections
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import make_checkpoints
import verify_view
from proof_mutations import Mutation, choose, copy_of
from proof_oracle import Oracle

WHOLE, UNKNOWN = 0, 23
VERDICTS = {0: "whole", 20: "incomplete", 21: "damaged", 22: "unsafe", 23: "unknown", 24: "unreadable"}
# What no trainer that is known writes is not judged: the code says that it is unknown.
OUT_OF_SCOPE = {"torch_legacy", "torch_legacy_protocol_4", "torch_script", "dcp_zstd", "dcp_rank_metadata", "dcp_hf_sharded", "dcp_hf_rank0"}
# What `verify` does not look at yet: a name, whose damage it is (checkpoint/file), and what loading says to it. Such damage
# is counted by itself, and a violation with --strict. An entry goes when its gap is closed.
GAPS = [
    (name, re.compile(where), re.compile(error))
    for name, where, error in (
        ("names in a pickle without CRC", r"torch_zip_no_crc/.*\.pt$", r"ModuleNotFound|Attribute|Unicode"),
    )
]
KINDS = (
    ("verl_", "verl_step"), ("megatron_", "megatron_step"), ("areal_dcp", "dcp_folder"), ("areal_trial", "areal_trial"),
    ("areal_hf", "hf_folder"), ("dcp_rank_metadata", "dcp_rank_folder"), ("dcp_hf_sharded", "dcp_hf_folder"),
    ("dcp_hf_", "weights_folder"), ("dcp_", "dcp_folder"), ("hf_", "hf_folder"), ("safetensors", "safetensors_file"),
    ("torch_script", "torch_script"), ("torch_", "torch_file"),
)  # fmt: skip


@dataclass
class Case:
    """A checkpoint: how it is loaded and where its two steps are."""

    name: str
    kind: str
    step: Path
    other: Path


def cases(out, only):
    found = []
    for name, (step, other, *_) in make_checkpoints.catalogue(out).items():
        if only and name not in only:
            continue
        kind = next(kind for prefix, kind in KINDS if name.startswith(prefix))
        if kind.endswith(("_file", "_script")):
            step, other = next(step.iterdir()), next(other.iterdir())
        found.append(Case(name, kind, step, other))
    return found


def verify(program, path):
    """Exit code and codes of the findings."""
    code, view, said = verify_view.verify(program, "--depth", "full", path)
    return code, sorted(verify_view.codes(view)) if view else [f"no JSON: {said}"]


class Table:
    """Counts, and the violations with how to see them again."""

    def __init__(self, strict):
        self.rows = collections.defaultdict(collections.Counter)
        self.violations = []
        self.gaps = collections.Counter()
        self.strict = strict
        self.lock = threading.Lock()

    def add(self, row, *what):
        with self.lock:
            self.rows[row].update(("n", *what))

    def blame(self, case, path, error, words):
        """Notes a violation, by itself where it is a known gap."""
        where = f"{case.name}/{path.name}"
        gaps = [name for name, file, says in GAPS if file.search(where) and says.search(error)]
        with self.lock:
            if gaps and not self.strict:
                self.gaps[gaps[0]] += 1
            else:
                self.violations.append(f"{case.name}, {words}")

    def print(self):
        columns = ["n", "loading fails", "refused", "loads otherwise", "for a record", "refused, loads same", "missed"]
        print(f"{'checkpoint':<28}" + "".join(f"{column:>21}" for column in columns))
        total = collections.Counter()
        for row in sorted(self.rows):
            total.update(self.rows[row])
            print(f"{row:<28}" + "".join(f"{self.rows[row][column]:>21}" for column in columns))
        print(f"{'all':<28}" + "".join(f"{total[column]:>21}" for column in columns))


def check_whole(case, program, oracle, table):
    """The checkpoint as it is; gives the digest of its content, or None if there is no sense in going on."""
    wanted = UNKNOWN if case.name in OUT_OF_SCOPE else WHOLE
    code, found = verify(program, case.step)
    digest, error = oracle.load(case.kind, case.step)
    if digest is None:
        table.blame(case, case.step, "does not load", f"{case.step}, as it was written, does not load: {error}")
    if code != wanted or (code != WHOLE and not found):
        words = f"{case.step}, as it was written, is called {VERDICTS.get(code, code)} {found}"
        table.blame(case, case.step, "as it was written", words)
    return digest if code == wanted else None


def judge(case, mutation, code, found, digest, original, error):
    """The columns to count in, and what is violated."""
    where = mutation.path.name
    if code not in VERDICTS or (code != WHOLE and not found):
        return ["missed"], f"{where}: ended with {code}, {found}"
    columns = []
    if digest is None:
        columns.append("loading fails")
    elif digest != original:
        columns.append("loads otherwise")
    if code != WHOLE:
        columns.append("refused")
        if digest == original:
            columns.append("refused, loads same")
        return columns, None
    if digest is None:
        return [*columns, "missed"], f"{where}: called whole, and does not load: {error}"
    if mutation.breaks_a_checksum():
        return [*columns, "missed"], f"{where}: called whole with a wrong checksum"
    if digest != original:
        columns.append("for a record")
    return columns, None


def damage(case, program, oracle, table, original, args, folder):
    """All mutations of one checkpoint."""
    root = copy_of(case.step, folder)
    for index in range(args.each):
        seed = f"{args.seed}:{case.name}:{index}"
        rng = random.Random(seed)
        mutation = Mutation(root, case.other, choose(root, rng), rng)
        if not mutation.changes_anything():
            continue
        with mutation.apply():
            code, found = verify(program, root)
            digest, error = oracle.load(case.kind, root)
        columns, violated = judge(case, mutation, code, found, digest, original, error)
        for row in (case.name, f"  by {mutation.kind}"):
            table.add(row, *columns)
        if args.verbose:
            why = (error or "")[:90]
            print(f"{seed:<40} {mutation.kind:<16} {mutation.path.name:<30} {code} {found} {columns} {why}")
        if violated:
            table.blame(case, mutation.path, error or "", f"seed {seed}, {mutation.kind} of {violated}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--areal", type=Path)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true", help="one line for each mutation")
    parser.add_argument("--strict", action="store_true", help="known gaps are violations too")
    args = parser.parse_args()
    program = args.programs / "supervise"
    make_checkpoints.make(args.out, args.areal)
    start, table, local = time.monotonic(), Table(args.strict), threading.local()
    oracles = []

    def one(case):
        if not hasattr(local, "oracle"):
            local.oracle = Oracle()
            oracles.append(local.oracle)
        original = check_whole(case, program, local.oracle, table)
        if original is None:
            return
        folder = Path(tempfile.mkdtemp(prefix="proof-"))
        try:
            damage(case, program, local.oracle, table, original, args, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(one, case) for case in cases(args.out, set(filter(None, args.only.split(","))))]:
            done.result()
    for oracle in oracles:
        oracle.stop()
    table.print()
    for name, count in sorted(table.gaps.items()):
        print(f"known gap, {count} times: {name}")
    for words in table.violations:
        print(f"VIOLATION {words}")
    print(f"{len(table.violations)} violations in {time.monotonic() - start:.0f} s")
    return 1 if table.violations else 0


if __name__ == "__main__":
    sys.exit(main())
