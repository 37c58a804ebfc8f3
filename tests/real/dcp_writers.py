"""Writes one torch.distributed.checkpoint directory with every option that its file system writer has.

usage: gang.sh 2 python dcp_writers.py OUT [--steps 2] [--only NAME,NAME]

OUT/NAME/step_N holds what `dcp.save` left there. The model is three linear layers under FSDP2 with AdamW, trained one
step at a time, so that its entries are sharded tensors (of the last one, rank 1 has nothing), 0-dim tensors and bytes;
`odd_values` adds the types and shapes that a model of one type does not have. Everything but torch's own random ids is
the same in every run.
"""

import argparse
import shutil
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

WIDTH = 32


def odd_values(step):
    """Types and shapes at the edges: no elements, no dimensions, views, every width; and plain Python objects."""
    base = torch.arange(24, dtype=torch.float32) + step
    return {
        "bf16": base.bfloat16(),
        "fp16": base.half(),
        "fp64": base.double().reshape(2, 3, 4),
        "int64": torch.arange(7) * step,
        "int8": torch.arange(7, dtype=torch.int8),
        "bool": base > 9,
        "complex": torch.complex(base, -base),
        "fp8": base.to(torch.float8_e4m3fn),
        "scalar": torch.tensor(0.5 * step),
        "none_of_it": torch.empty(0, 5),
        "transposed": base.reshape(4, 6).t(),
        "part_of_storage": base[5:9],
        "words": {"name": "odd", "step": step, "lr": [1e-3, None, True], "nested": {"a": (1, 2.5), "b": b"\x00\xff"}},
    }


def many_values(step):
    """So many entries that the metadata's pickle goes on in further frames, under names as no module has them."""
    names = ["a/b", "it's \"so\"", "wörter", " ", "x" * 300, "dtype_(torch.float32, torch.bfloat16)"]
    names += [f"model.layers.{layer}.experts.{expert}.weight" for layer in range(20) for expert in range(64)]
    return {name: torch.full((i % 3,), float(step + i)) for i, name in enumerate(names)}


class Run:
    """The sharded model and its optimizer."""

    def __init__(self, strategy="fsdp2"):
        torch.manual_seed(3)
        layers = [nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH - 1), nn.Linear(WIDTH - 1, 1)]
        if strategy == "fsdp1":
            self.model = FullyShardedDataParallel(nn.Sequential(*layers), device_id=torch.device("cpu"))
        else:
            mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
            self.model = fully_shard(nn.Sequential(*layers), mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self, step):
        data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        self.optimizer.zero_grad()
        self.model(data).square().mean().backward()
        self.optimizer.step()

    def state(self, step):
        """What a trainer saves: weights, optimizer, and for each rank its own random state."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        rng = torch.Generator().manual_seed(step).get_state()[:64].clone()
        return {"model": model, "optim": optimizer, "step": step, f"rng.{dist.get_rank()}": rng}

    def full_model(self):
        """The whole weights, the same on each rank."""
        return {name: value.full_tensor() for name, value in self.model.state_dict().items()}


def save(state, folder, planner=None, **options):
    dcp.save(state, storage_writer=FileSystemWriter(folder, **options), planner=planner)


def save_without_collectives(state, folder):
    """Each rank writes a metadata file of its own."""
    dcp.save(state, storage_writer=FileSystemWriter(folder), use_collectives=False)


def save_in_background(state, folder):
    dcp.async_save(state, checkpoint_id=folder, process_group=dist.group.WORLD).result()


def save_twice(state, folder):
    """The second save is other than the first and takes the same names."""
    dcp.save({**state, "more": torch.zeros(300)}, checkpoint_id=folder)
    dcp.save(state, checkpoint_id=folder)


def save_alone(state, folder):
    """One process without a group, as an export does it."""
    if dist.get_rank() == 0:
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    dist.barrier()


def save_hugging_face(model, folder, alone=False, **options):
    if not alone or dist.get_rank() == 0:
        dcp.save(model, storage_writer=HuggingFaceStorageWriter(str(folder), **options), no_dist=alone)
    dist.barrier()


def writers(run, run1, step):
    """Name to a function of the folder."""
    state = run.state(step)
    model = state["model"]
    whole = run.full_model()
    spread = {name: 1 + i % 2 for i, name in enumerate(model)}
    return {
        "dcp_fsdp2": lambda f: save(state, f),
        "dcp_fsdp1": lambda f: save(run1.state(step), f),
        "dcp_many": lambda f: save(many_values(step), f),
        "dcp_flat": lambda f: save({**odd_values(step), "model": whole}, f),
        "dcp_file_per_item": lambda f: save(state, f, single_file_per_rank=False),
        "dcp_two_threads": lambda f: save(state, f, thread_count=2),
        "dcp_unsynced": lambda f: save(state, f, sync_files=False, overwrite=False),
        "dcp_lowest_rank": lambda f: save(state, f, planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True)),
        "dcp_not_flattened": lambda f: save(model, f, planner=DefaultSavePlanner(flatten_state_dict=False)),
        "dcp_zstd": lambda f: save(state, f, _extensions=[ZStandard()]),
        "dcp_async": lambda f: save_in_background(state, f),
        "dcp_overwritten": lambda f: save_twice(state, f),
        "dcp_alone": lambda f: save_alone({**odd_values(step), "model": whole}, f),
        "dcp_rank_metadata": lambda f: save_without_collectives(state, f),
        "dcp_hf_sharded": lambda f: save_hugging_face(model, f, save_distributed=True),
        "dcp_hf_whole": lambda f: save_hugging_face(
            model, f, save_distributed=True, enable_consolidation=True, fqn_to_index_mapping=spread
        ),
        "dcp_hf_rank0": lambda f: save_hugging_face(whole, f, alone=True, fqn_to_index_mapping=spread),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    only = set(filter(None, args.only.split(",")))
    run, run1 = Run(), Run("fsdp1")
    for step in range(1, args.steps + 1):
        run.train(step)
        run1.train(step)
        for name, write in writers(run, run1, step).items():
            if only and name not in only:
                continue
            folder = args.out / name / f"step_{step}"
            if dist.get_rank() == 0:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            dist.barrier()
            write(folder)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
