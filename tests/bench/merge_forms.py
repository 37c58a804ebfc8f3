"""Times `supervise merge` of other forms: torch's and Megatron's checkpoints, and a large model; and the memory that it takes.

usage: merge_forms.py WORK SUPERVISE PYTHON [--rounds 3] [--layers 32]

Inputs are made in WORK and removed, each after its row (14 GB at most, with what is written); PYTHON has torch, verl and megatron-core. The page cache
is warm, times are medians of whole commands. dcp_to_torch_save writes as many bytes of the same numbers; its time is told with the import of torch.
No merger of Megatron's checkpoints runs without a GPU. The large model is of 7B's shape in bfloat16, in files of holes: what is read takes no disk, what is
written does; it is merged once, and half of it: times of both tell whether they grow with the bytes.
"""

import argparse
import os
import shutil
import socket
import subprocess
from pathlib import Path

from merge import median

HERE = Path(__file__).resolve().parent
PEER = """
import sys
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
"""


def make(python, *words, ranks=0):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gang = [HERE.parent / "real" / "gang.sh", str(ranks)] if ranks else []
    command = [*gang, python, HERE / "merge_forms_inputs.py", *words]
    environment = {**os.environ, "PORT": str(port), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    subprocess.run([str(c) for c in command], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def size(directory):
    return sum(p.stat().st_size for p in directory.rglob("*") if p.is_file()) / 1e9


def merge(args, source, rounds):
    """Seconds, MiB, and GB that were written."""
    target = args.work / "model"

    def clear():
        shutil.rmtree(target, ignore_errors=True)
        os.sync()

    took, memory, _ = median(rounds, [args.supervise, "merge", str(source), "--target", str(target), "--dtype", "keep"], clear)
    written = size(target)
    shutil.rmtree(target)
    return took, memory, written


def dcp(args):
    made = args.work / "dcp"
    make(args.python, "dcp", made)
    ours, memory, written = merge(args, made / "step", args.rounds)
    out = args.work / "peer.pt"
    peer, peers, _ = median(args.rounds, [args.python, "-c", PEER, str(made / "step"), str(out)], lambda: (out.unlink(missing_ok=True), os.sync()))
    print(f"| `dcp_to_torch_save`, {written:.2f} GB | {peer:.2f} s | {peers:.0f} MiB |")
    print(f"| `supervise merge` | {ours:.2f} s (1/{peer / ours:.1f}) | ≤ {memory:.0f} MiB (1/{peers / memory:.0f}) |")
    out.unlink()
    shutil.rmtree(made)


def megatron(args):
    made = args.work / "megatron"
    make(args.python, "megatron", made, ranks=2)
    ours, memory, written = merge(args, made / "step", args.rounds)
    print(f"| `supervise merge` of Megatron's, 2 tensor-parallel ranks, {written:.2f} GB | {ours:.2f} s | ≤ {memory:.0f} MiB |")
    shutil.rmtree(made)


def large(args):
    rates = []
    for layers in (args.layers // 2, args.layers):
        made = args.work / f"sparse-{layers}"
        make(args.python, "sparse", made, str(layers))
        ours, memory, written = merge(args, made, 1)
        rates.append(written / ours)
        print(f"| `supervise merge` of 8 ranks of FSDP2, {layers} layers of 7B's shape, {written:.1f} GB | {ours:.1f} s, {rates[-1]:.2f} GB/s | ≤ {memory:.0f} MiB |")
        shutil.rmtree(made)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    print("| | time | peak memory |\n|---|---|---|", flush=True)
    try:
        for row in dcp, megatron, large:
            row(args)
    finally:
        shutil.rmtree(args.work, ignore_errors=True)


if __name__ == "__main__":
    main()
