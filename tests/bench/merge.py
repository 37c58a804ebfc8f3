"""Times `supervise merge` and `compare` against verl.model_merger, and against moving the same bytes.

usage: merge.py STEP_DIR SUPERVISE PYTHON [--rounds 7] [--peer-rounds 2]

STEP_DIR is made by shards.sh; PYTHON has verl. The page cache is warm, figures are medians of whole commands with the start of the program. What
verl takes is told with and without its imports. `cp` writes a file as large as what is written (and does not wait for the disk, as `supervise` does), `cat`
reads what is read.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INNER = """
import sys, time
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger
source, target = sys.argv[1:]
began = time.perf_counter()
FSDPModelMerger(ModelMergerConfig(operation="merge", backend="fsdp", local_dir=source, target_dir=target,
    hf_model_config_path=source + "/huggingface")).merge_and_save()
print("inner", time.perf_counter() - began)
"""


def run(command, **options):
    """Seconds, peak memory in MiB (never less than this program's own) and output of one command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return took, usage.ru_maxrss / 1024, out


def median(rounds, command, before=lambda: None):
    took = []
    for _ in range(rounds):
        before()
        took.append(run(command))
    return statistics.median(t for t, *_ in took), max(m for _, m, _ in took), took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("step", type=Path)
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-rounds", type=int, default=2)
    args = parser.parse_args()
    actor = args.step / "actor"
    shards = sorted(str(p) for p in actor.glob("model_world_size_*.pt"))
    with tempfile.TemporaryDirectory(dir=args.step.parent) as work:
        work = Path(work)
        target = work / "model"

        def clear():
            shutil.rmtree(target, ignore_errors=True)
            # Making room for files is not what is measured.
            os.sync()

        ours, our_memory, _ = median(args.rounds, [args.supervise, "merge", actor, "--target", target], clear)
        written = work / "written"
        shutil.copy(target / "model.safetensors", written)
        copy, *_ = median(args.rounds, ["cp", written, work / "copy"], os.sync)
        cat, *_ = median(args.rounds, ["sh", "-c", 'cat "$@" > /dev/null', "cat", *shards])
        same, same_memory, _ = median(args.rounds, [args.supervise, "compare", actor, target, "--as", "bfloat16"])

        def make():
            clear()
            target.mkdir()

        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        peers, memory, outs = [], 0, []
        for _ in range(args.peer_rounds):
            make()
            took, peak, out = run([args.python, "-c", INNER, actor, target], env=env)
            peers.append(took)
            outs.append(float(out.rsplit("inner", 1)[1]))
            memory = max(memory, peak)
    peer, inner = statistics.median(peers), statistics.median(outs)
    gb = sum(os.path.getsize(p) for p in shards) / 1e9
    print(f"| {gb:.2f} GB of FSDP2 shards, fp32 → bf16 | time | supervise is | peak memory |\n|---|---|---|---|")
    print(f"| verl.model_merger | {peer:.2f} s | 1/{peer / ours:.0f} | {memory:.0f} MiB (1/{memory / our_memory:.0f}) |")
    print(f"| the same without its imports | {inner:.2f} s | 1/{inner / ours:.0f} | |")
    print(f"| cp of what is written + cat of what is read | {copy + cat:.2f} s | {ours / (copy + cat):.2f} × | |")
    print(f"| `supervise merge` | {ours:.2f} s | | ≤ {our_memory:.0f} MiB |")
    print(f"| `supervise compare` of the step and that model | {same:.2f} s | | ≤ {same_memory:.0f} MiB |")


if __name__ == "__main__":
    main()
