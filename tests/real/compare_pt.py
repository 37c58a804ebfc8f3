"""Compares what two step directories hold, rank by rank, bit for bit.

usage: compare_pt.py STEP_A STEP_B [--rng] [--json]

Compared are the model and optimizer tensors of every rank and, from extra_state,
the learning-rate schedule. The random states are left out unless --rng is given:
verl's SFT trainer seeds none of them, so they differ between equal runs. Nor are
files compared: torch writes a random serialization id into each.
Ends with 0 if all is equal, 1 if something differs, 2 if the two cannot be compared.
"""

import argparse
import json
import logging
import re
import sys
from pathlib import Path

import torch

# Shards unpickle a device mesh without a process group, which torch finds worth eight warnings a file.
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)
SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt")


def leaves(value, path=""):
    """Flattens nested state to (path, leaf); a sharded tensor gives its local part and its placement."""
    if hasattr(value, "_local_tensor"):
        yield f"{path}.local", value._local_tensor
        yield f"{path}.placement", repr(value._spec)
    elif hasattr(value, "local_shards"):
        for i, shard in enumerate(value.local_shards()):
            yield f"{path}.shard{i}", shard.tensor
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    return repr(a) == repr(b)


def load(path, rng):
    state = dict(leaves(torch.load(path, weights_only=False, map_location="cpu")))
    return {key: value for key, value in state.items() if rng or not key.startswith("rng")}


def shards(step):
    """File name to path, for a step in the SFT layout (files in it) or the PPO layout (files in actor/)."""
    folder = step / "actor" if (step / "actor").is_dir() else step
    return {p.name: p for p in sorted(folder.iterdir()) if SHARD.fullmatch(p.name)}


def differences(a, b, rng):
    """Pairs (file, leaf) that differ, and how many leaves were compared."""
    found, compared = [], 0
    for name in a:
        x, y = load(a[name], rng), load(b[name], rng)
        compared += len(x.keys() | y.keys())
        for key in sorted(x.keys() | y.keys()):
            if key not in x or key not in y or not same(x[key], y[key]):
                found.append((name, key))
    return found, compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--rng", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    a, b = shards(args.a), shards(args.b)
    if not a or a.keys() != b.keys():
        print(f"cannot compare: {sorted(a)} against {sorted(b)}", file=sys.stderr)
        return 2
    found, compared = differences(a, b, args.rng)
    if args.json:
        print(json.dumps({"files": len(a), "leaves": compared, "different": found}))
    else:
        print(f"{len(a)} files, {compared} leaves, {len(found)} different")
        for name, key in found[:20]:
            print(f"  {name}: {key}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
