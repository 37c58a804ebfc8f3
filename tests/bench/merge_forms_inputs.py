"""Makes the inputs of merge_forms.py. Runs in the environment of ../real/install.sh.

usage: merge_forms_inputs.py dcp OUT                       a model and its optimizer, saved by torch.distributed.checkpoint
       gang.sh 2 python merge_forms_inputs.py megatron OUT  a model of two tensor-parallel ranks, saved by megatron-core
       merge_forms_inputs.py sparse OUT LAYERS              eight ranks of FSDP2 with a model of 7B's shape, all zeros, in files of holes
"""

import os
import struct
import sys
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig

REAL = Path(__file__).resolve().parents[1] / "real"


def config(hidden, feed, layers, heads, groups, words):
    return LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=feed,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
    )


MIDDLE = config(1024, 4096, 24, 16, 8, 32000)


def dcp(out):
    import torch.distributed.checkpoint as checkpoint

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MIDDLE, dtype=torch.float32)
    state = model.state_dict()
    checkpoint.save({"model": state, "step": 7}, storage_writer=checkpoint.FileSystemWriter(out / "step", thread_count=2))
    MIDDLE.save_pretrained(out / "step" / "huggingface")


def megatron(out):
    sys.path.insert(0, str(REAL))
    import merge_formats_models as models
    import merge_formats_writers as writers
    from megatron.core import dist_checkpointing, mpu
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy
    from verl_megatron_manager import CudaMeansCpu, stand_in_for_cuda

    dist.init_process_group("gloo")
    stand_in_for_cuda()
    writers.stand_in_for_kernels()
    models.PADDED = 32768
    with CudaMeansCpu():
        mpu.initialize_model_parallel(2, 1)
        model = writers.build(MIDDLE, 2, 1, 1)
        state = model.sharded_state_dict()
        target = out / "step"
        if dist.get_rank() == 0:
            target.mkdir(parents=True)
        dist.barrier()
        dist_checkpointing.save(state, str(target), TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1))
        if dist.get_rank() == 0:
            MIDDLE.save_pretrained(target / "huggingface")
    dist.destroy_process_group()


def sparse(out, layers):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world, shape = 8, config(4096, 11008, layers, 32, 32, 32000)
    with torch.device("meta"):
        sizes = {k: t.shape for k, t in AutoModelForCausalLM.from_config(shape).state_dict().items()}
    out.mkdir(parents=True)
    for rank in range(world):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
        state = {}
        for key, size in sizes.items():
            # Memory that nobody touches takes none.
            rows = len(torch.empty(size[0]).chunk(world)[rank])
            state[key] = DTensor.from_local(torch.empty(rows, *size[1:], dtype=torch.bfloat16), mesh, [Shard(0)], run_check=False)
        path = out / f"model_world_size_{world}_rank_{rank}.pt"
        with torch.serialization.skip_data():
            torch.save(state, path)
        summed(path)
        dist.destroy_process_group()
    shape.save_pretrained(out / "huggingface")


def summed(path):
    """Gives each entry that was left out the checksum of as many zeros, which is what a reader finds there."""
    zeros = {}

    def crc(n):
        if n not in zeros:
            value, left, piece = 0, n, bytes(1 << 20)
            while left:
                value = zlib.crc32(piece[: min(left, len(piece))], value)
                left -= min(left, len(piece))
            zeros[n] = value
        return zeros[n]

    with open(path, "r+b") as f:
        end = f.seek(0, os.SEEK_END)
        f.seek(max(0, end - (1 << 20)))
        first, tail = max(0, end - (1 << 20)), f.read()
        at = tail.index(b"PK\x01\x02")
        while tail[at : at + 4] == b"PK\x01\x02":
            old, size = struct.unpack_from("<II", tail, at + 16)
            name, extra, comment = struct.unpack_from("<HHH", tail, at + 28)
            (header,) = struct.unpack_from("<I", tail, at + 42)
            if old == 0 and size:
                value = struct.pack("<I", crc(size))
                f.seek(first + at + 16)
                f.write(value)
                f.seek(header + 26)
                own = sum(struct.unpack("<HH", f.read(4)))
                f.seek(header + 30 + own + size + 4)
                f.write(value)
            at += 46 + name + extra + comment


def main():
    what, out = sys.argv[1], Path(sys.argv[2])
    {"dcp": dcp, "megatron": megatron, "sparse": lambda out: sparse(out, int(sys.argv[3]))}[what](out)


# Megatron's writer spawns processes that import this file again.
if __name__ == "__main__":
    main()
