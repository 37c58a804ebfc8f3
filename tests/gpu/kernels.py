"""Kernels that do what a GPU's failures do: wait for a word that never comes, write where nothing is."""

import triton
import triton.language as tl


@triton.jit
def polls(flag, seen):
    # As a kernel of NCCL does whose peer is gone: each block reads one word until it changes.
    found = tl.load(flag, volatile=True)
    while found == 0:
        found = tl.load(flag, volatile=True)
    tl.store(seen + tl.program_id(0), found)


@triton.jit
def far_away(data, distance):
    tl.store(data + distance + tl.arange(0, 64).to(tl.int64), 1.0)


def wait_for_ever(flag, seen):
    """Starts 24 blocks that wait for `flag`, as large as NCCL's, and waits for them. Only the end of the process ends them."""
    polls[(24,)](flag, seen, num_warps=16)
    seen.sum().item()
