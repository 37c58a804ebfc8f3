"""Writes dtensor.pt: distributed tensors as torch 2.6 pickles them (one mesh of 4 ranks, one of 2 x 2), saved by rank 3.

Start it four times, PYTHON make.py RANK with RANK 0 to 3 (torch 2.6.0).
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
rank = int(sys.argv[1])
dist.init_process_group("gloo", rank=rank, world_size=4)
line = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
whole = torch.arange(32.0).reshape(8, 4)
values = {
    "square": distribute_tensor(whole, square, [Replicate(), Shard(0)]),
    "line": distribute_tensor(whole, line, [Shard(0)]),
}
if rank == 3:
    torch.save(values, pathlib.Path(__file__).parent / "dtensor.pt")
dist.barrier()
os._exit(0)
