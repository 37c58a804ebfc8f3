"""Texts and headers, real ones and damaged, given to `supervise verify` and to the libraries that trainers read them with.

usage: json_differential.py PROGRAMS [--each 2000] [--seed 1]      (run with the python of install.sh's environment)

`json.loads` has to make a dict of what `verify` calls whole, and of nothing else; the same for `safetensors` and headers of weights.
What nests deeper than is followed may be of unknown worth. What real_configs.py makes has to be whole. Ends with 1 where they disagree.
"""

import argparse
import json
import random
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path

from real_configs import configurations
from verify_view import looked_at

PIECES = [
    "NaN", "Infinity", "-Infinity", "nan", "-NaN", "Inf", "1e999", "-1E+9", "01", "-0", "1.", ".5", "1e", "+1", "0x1", "true",
    "false", "null", "nul", '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u12"', '"\\x41"', '"\n"', '"\x7f"', '"é"',
    "9" * 30, "9" * 4400, "{}", "[]", "[1,]", "{1: 2}", '{"a": 1, "a": 2}', '""', "'a'", " ", "\t", "\r", "\u00a0", "\ufeff",
    ",", ":", "{", "}", "[", "]", "//", "/**/", "\0",
]  # fmt: skip


def text(rng, depth=0):
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 4:
        return rng.choice(PIECES[:33])
    if kind == 4:
        return json.dumps(rng.choice([1, 2.5, 1e-320, "a\u2028\\", [True, None], {"b": {}}, "\ud83d\ude00", -7]))
    if kind == 5:
        return "[" + ", ".join(text(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    pairs = (f'"{rng.choice("abc")}"{rng.choice([":", " : "])}{text(rng, depth + 1)}' for _ in range(rng.randrange(4)))
    return "{" + ",".join(pairs) + "}"


def damaged(data, rng):
    """Now and then a byte is another, a piece is put in or the end is missing."""
    how, at = rng.randrange(6), rng.randrange(len(data) + 1)
    if how == 0 and at < len(data):
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if how == 1:
        return data[:at] + rng.choice(PIECES).encode() + data[at:]
    return data[:at] if how == 2 else data


def document(rng):
    whole = '{"a": ' + text(rng) + ', "b": ' + text(rng) + "}" if rng.random() < 0.9 else text(rng)
    return damaged(whole.encode(), rng)


def is_dict(data):
    try:
        return isinstance(json.loads(data.decode()), dict)
    except (ValueError, RecursionError):
        return False


def weights(rng):
    entry = {"dtype": rng.choice(["U8", "F32", "BF16", "F99"]), "shape": [rng.choice([0, 1, 4])], "data_offsets": [0, 4]}
    notes = rng.choice(["null", "{}", '{"format": "pt"}', '{"format": 1}', "[]", '{"a": "\\ud800"}', '{"a": NaN}'])
    header = damaged(f'{{"__metadata__": {notes}, "a": {json.dumps(entry)}}}'.encode(), rng)
    return struct.pack("<Q", len(header)) + header + b"\1\2\3\4"


def is_loaded(data):
    from safetensors import SafetensorError, deserialize

    try:
        deserialize(data)
    # Its Python side may not know a type that its Rust side does.
    except (SafetensorError, ValueError):
        return False
    return True


def differ(program, ending, make, read, args):
    rng, odd, whole = random.Random(f"{args.seed}:{ending}"), [], 0
    with tempfile.TemporaryDirectory(prefix="differential-") as work:
        made = {f"{n}{ending}": make(rng) for n in range(args.each)}
        paths = [Path(work) / name for name in made]
        for path in paths:
            path.write_bytes(made[path.name])
        seen = {Path(view["path"]).name: (view["verdict"], view["files"][0]["findings"]) for view in looked_at(program, paths)}
    for name, data in made.items():
        verdict, found = seen[name]
        whole += verdict == "whole"
        if (verdict == "whole") != read(data) and "limit_reached" not in json.dumps(found):
            odd.append(f"{ending}: {verdict}, the library says {read(data)}: {data[:300]!r} {json.dumps(found)[:300]}")
    print(f"{ending}: {len(made)} files, {whole} whole, {len(odd)} judged otherwise than by the library")
    return odd


def real_ones(program):
    """What the trainers' libraries write."""
    with tempfile.TemporaryDirectory(prefix="configurations-") as work:
        paths = configurations(Path(work))
        views = looked_at(program, paths)
        odd = [f"{view['path']}: {view['files'][0]['findings']}" for view in views if view["verdict"] != "whole"]
    names = Counter(path.name for path in paths)
    print(f"as libraries write them: {dict(sorted(names.items()))}, {len(odd)} not whole")
    return odd


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--each", type=int, default=2000)
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    program = args.programs.resolve() / "supervise"
    odd = differ(program, ".json", document, is_dict, args)
    odd += differ(program, ".safetensors", weights, is_loaded, args)
    odd += real_ones(program)
    for words in odd:
        print(f"VIOLATION {words}")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
