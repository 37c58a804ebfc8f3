"""Writes shards that no merge can put together by laying them one behind the other: as torch's own parallel modules leave them.

usage: gang.sh 4 python placement_writers.py OUT

OUT/strided: FSDP2 over tensor parallelism, whose parts interleave (`_StridedShard`). OUT/strided-alone: the same of one dimension. OUT/partial: sums that
were never added up (`Partial`). Each is a role directory without configuration: one small layer.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

NAME = "model.embed_tokens.weight"


def save(out, state):
    out.mkdir(parents=True, exist_ok=True)
    torch.save({NAME: state}, out / f"model_world_size_{dist.get_world_size()}_rank_{dist.get_rank()}.pt")
    dist.barrier()


def main():
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(3)
    both = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("fsdp", "tp"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 16, bias=False))
    parallelize_module(model, both["tp"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=both["fsdp"])
    weight = model.state_dict()["0.weight"]
    assert any(isinstance(p, _StridedShard) for p in weight.placements), weight.placements
    save(out / "strided", weight)
    flat = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    local = weight.to_local()
    meta = weight._spec.tensor_meta
    save(out / "strided-alone", DTensor(local, DTensorSpec(flat, (_StridedShard(0, split_factor=2),), tensor_meta=meta), requires_grad=False))
    save(out / "partial", DTensor.from_local(torch.ones(16, 4), flat, [Partial()]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
