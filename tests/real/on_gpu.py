"""A trainer on a GPU whose numbers are the same each time, and that holds as much memory as a larger model would.

GPU_HELD_GIB  GiB that are held from the start
"""

import os

import torch


def prepare():
    """Before the model is made. What it returns is to be kept."""
    # An operation without a deterministic form is told of, and found by the comparison with a run in one go.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.empty(int(os.environ.get("GPU_HELD_GIB", "0")) << 30, dtype=torch.uint8, device="cuda")
