"""`supervise merge` of DeepSpeed's checkpoints, bit for bit what its own zero_to_fp32 makes of them.

usage: zero.py PROGRAMS DEEPSPEED        (the folder with the built binaries; what install_deepspeed.sh made)

zero_writers.py makes them with DeepSpeed itself on two CPU ranks: its stages 0 to 3, and Trainer of transformers in stages 2 and 3.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
SUPERVISE = Path(sys.argv[1]) / "supervise"
# Their converter casts buffers to float32, too; here they stay what they are.
BUFFER = "model.e_score_correction_bias"


def written(out):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(
        [HERE / "gang.sh", "2", sys.executable, HERE / "zero_writers.py", out],
        env={**os.environ, "PORT": str(port), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "PYTHONPATH": sys.argv[2]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def merge(source, target, *options):
    command = [SUPERVISE, "merge", source, "--target", target, *options]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def same(source, want, target):
    done = merge(source, target, "--dtype", "keep")
    assert done.returncode == 0, f"{source}: {done.returncode} {done.stderr}"
    made, want = load_file(target / "model.safetensors"), load_file(want)
    if "lm_head.weight" not in made:
        # config.json ties it.
        assert torch.equal(want.pop("lm_head.weight"), want["model.embed_tokens.weight"]), source
    assert made.keys() == want.keys(), f"{source}: {made.keys() ^ want.keys()}"
    for key, tensor in want.items():
        own = made[key].float() if key == BUFFER or own_type(source) else made[key]
        assert own.dtype == tensor.float().dtype and torch.equal(own, tensor.float()), f"{source}: {key} differs"
    return len(made)


def own_type(source):
    """Parameters that DeepSpeed keeps in no other type are written as they are: those that were frozen, and all of stage 0."""
    return source.name in ("none", "two-frozen", "three-frozen")


def refused(code, words, source, work):
    done = merge(source, work / "never")
    assert done.returncode == code and words in done.stderr, (words, done.returncode, done.stderr)
    assert not (work / "never").exists()


def refusals(out, work):
    """What is missing, rotten or of another form is named."""

    def changed(case, change):
        copy = work / "changed"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(out / case, copy)
        change(copy / "global_step2")
        return copy

    def lacks(name):
        return lambda step: (step / name).unlink()

    rank = "zero_pp_rank_1_mp_rank_00_{}_states.pt"
    refused(20, "2 ranks saved, and 1 files", changed("one", lacks("bf16_" + rank.format("optim"))), work)
    refused(20, "1 files of model states", changed("three", lacks(rank.format("model"))), work)
    refused(20, "states of rank 0 are missing", changed("three", lacks("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")), work)

    def parallel(step):
        shutil.copy(step / "mp_rank_00_model_states.pt", step / "mp_rank_01_model_states.pt")

    refused(23, "mp_rank_01_model_states.pt", changed("two", parallel), work)

    def rotten(step):
        path = step / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
        state = torch.load(path, weights_only=False)
        place = state["optimizer_state_dict"]["single_partition_of_fp32_groups"][0].detach().numpy().tobytes()[:64]
        whole = path.read_bytes()
        at = whole.index(place)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    refused(21, "do not fit their checksum", changed("one", rotten), work)

    def edited(name, edit):
        def change(step):
            path = step / name
            state = torch.load(path, weights_only=False)
            edit(state)
            torch.save(state, path)

        return change

    def renamed(state):
        shapes = state["param_shapes"][0]
        shapes["model.other.weight"] = shapes.pop("model.embed_tokens.weight")

    def taller(state):
        state["param_shapes"][1]["model.norm.weight"] = torch.Size([2000])

    def experts(state):
        state["optimizer_state_dict"]["partition_count"] = [2, 1]

    def stage_nine(state):
        state["optimizer_state_dict"]["zero_stage"] = 9

    refused(23, "model.embed_tokens.weight is in no group", changed("two-float", edited("mp_rank_00_model_states.pt", renamed)), work)
    refused(21, "reaches beyond what the ranks hold", changed("one", edited("mp_rank_00_model_states.pt", taller)), work)
    first = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    refused(23, "cut for different numbers of ranks", changed("one", edited(first, experts)), work)
    refused(23, "zero_stage", changed("one", edited(first, stage_nine)), work)
    print("DeepSpeed: what is missing, rotten, or of another form is refused by name")


def main():
    # The classes that its files name are loaded with them.
    sys.path.insert(0, sys.argv[2])
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        out = work / "out"
        out.mkdir()
        written(out)
        cases = sorted(p for p in out.iterdir() if p.is_dir())
        assert len(cases) == 11, cases
        for case in cases:
            source = case
            if case.name.startswith("trainer"):
                # Stage 2 has the model in files that are whole beside it, and of a root they are what is taken.
                whole = (case / "checkpoint-2" / "model.safetensors").exists()
                source = case / "checkpoint-2" / "global_step2" if whole else case
                if whole:
                    same(case, case / "checkpoint-2" / "model.safetensors", work / "whole")
            count = same(source, out / f"{case.name}.safetensors", work / f"of-{case.name}")
            print(f"DeepSpeed, {case.name}: {count} tensors, bit for bit those of zero_to_fp32")
        refusals(out, work)


if __name__ == "__main__":
    main()
