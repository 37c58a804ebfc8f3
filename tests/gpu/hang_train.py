"""A CUDA training that hangs once: in a kernel that waits for ever, as a collective does whose peer is gone.

usage: hang_train.py FOLDER            the file FOLDER/hung says that it did; from then on it ends after a few steps
"""

import sys
import time
from pathlib import Path

import kernels
import torch

HANGS_AFTER = 52.0
AFTERWARDS = 5


def main():
    hung = Path(sys.argv[1]) / "hung"
    layer = lambda: torch.nn.TransformerEncoderLayer(2048, 32, 8192, batch_first=True, device="cuda")
    model = torch.nn.Sequential(*(layer() for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    flag, seen = torch.ones(1, dtype=torch.int32, device="cuda"), torch.zeros(24, dtype=torch.int32, device="cuda")
    kernels.wait_for_ever(flag, seen)
    began, step = time.monotonic(), 0
    while not hung.exists() or step < AFTERWARDS:
        step += 1
        for _ in range(4):
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(torch.randn(8, 1024, 2048).to("cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not hung.exists() and time.monotonic() - began > HANGS_AFTER:
            hung.touch()
            flag.zero_()
            kernels.wait_for_ever(flag, seen)
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
