"""Provokes failures of a GPU in a real training step, for the corpus of logs: out of memory, an illegal access, an assertion of the device.

usage: provoke.py CASE            one of oom, illegal_access, device_assert
"""

import sys

import kernels
import torch


def oom():
    held = []
    while True:
        held.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))


def illegal_access():
    kernels.far_away[(1,)](torch.zeros(64, device="cuda"), 1 << 40)


def device_assert():
    table = torch.nn.Embedding(16, 8, device="cuda")
    table(torch.tensor([3, 4_000_000], device="cuda"))


CASES = {"oom": oom, "illegal_access": illegal_access, "device_assert": device_assert}


def main():
    model = torch.nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, 6):
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3:
            CASES[sys.argv[1]]()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
