"""Records of PyTorch's flight recorder, made by four ranks of Gloo that stand still.

    torchrun --nproc-per-node 4 flight.py behind DIR     rank 2 does not enter the fourth all_reduce
    torchrun --nproc-per-node 4 flight.py other DIR      rank 1 enters it with another size
    torchrun --nproc-per-node 4 flight.py healthy DIR    all of them get through

Needs TORCH_FR_BUFFER_SIZE. No stacks are kept: they name this machine's files.
"""

import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

kind, to = sys.argv[1], pathlib.Path(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1], group_desc="tensor_parallel") if rank < 2 else dist.new_group([0, 1])


def leave():
    """Writes the record, wherever the main thread stands by then."""
    time.sleep(5)
    (to / f"{kind}_{rank}").write_bytes(_dump_fr_trace(includeStackTraces=False))
    if rank == 0 and kind == "behind":
        (to / f"{kind}_{rank}.json").write_bytes(_dump_fr_trace_json())
    time.sleep(3)
    os._exit(0)


threading.Thread(target=leave, daemon=True).start()
for step in range(3):
    dist.all_reduce(torch.ones(8))
    if rank < 2:
        dist.all_reduce(torch.ones(2), group=pair)
if kind == "behind" and rank == 2:
    time.sleep(60)
size = 4 if kind == "other" and rank == 1 else 8
if kind == "other":
    # Sizes that differ are an error at once: only the beginning is needed.
    work = dist.all_reduce(torch.ones(size), async_op=True)
    time.sleep(60)
dist.all_reduce(torch.ones(size))
time.sleep(60)
