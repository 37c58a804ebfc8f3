"""What it costs to ask for a save at each step boundary: steps with and without the question, in one run.

usage: save_door.py [--ranks 2] [--steps 400]

Run it with an interpreter that has torch (.venv-real). Two or more processes on gloo do a little work and one all_reduce a step, as data parallel
training does; blocks of steps with and without the question take turns, so that both see the same machine.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from supervise._door import SaveDoor  # noqa: E402

BLOCK = 20


def rank(n, world, port, steps, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=n, world_size=world)
    door = SaveDoor(os.path.join(folder, "save-request"))
    gradient, weight = torch.ones(1 << 16), torch.ones(192, 192)
    times = {False: [], True: []}
    for step in range(steps):
        asks = step // BLOCK % 2 == 1
        began = time.perf_counter()
        for _ in range(20):
            weight @ weight
        dist.all_reduce(gradient)
        if asks:
            door.asked(step)
        times[asks].append(time.perf_counter() - began)
    if n == 0:
        alone, asked = (statistics.median(times[kind][BLOCK:]) * 1e6 for kind in (False, True))
        print(f"ranks {world}: a step {alone:.0f} us, with the question {asked:.0f} us: {asked / alone:.2f} times, {asked - alone:.0f} us more")
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        Path(folder, "save-request").touch()
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.spawn(rank, (options.ranks, port, options.steps, folder), options.ranks)


if __name__ == "__main__":
    main()
