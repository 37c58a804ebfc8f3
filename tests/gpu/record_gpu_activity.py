"""Records what a CUDA training uses, of its GPU too, healthy and hung, for the tests of stalls.

usage: record_gpu_activity.py OUT.json

Needs a GPU, torch with CUDA, and triton. One process trains (FSDP2 with one rank over nccl) and is told what to do next; it is looked at
every two seconds, as ../real/record_activity.py does, and its device by `nvidia-smi`: watts, share of time in which any kernel ran and
in which its memory was read or written (percent), MiB in use. Of each thing that it is told, the first seconds are left out.
The process is killed at the end, and its kernels with it.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))
EVERY = 2.0
SETTLES = 3.0
# Each thing to do, and for how many seconds it is looked at. Whatever hangs follows training, as it would.
SCRIPT = [
    ("train", 30), ("kernel_spins", 12), ("train", 0), ("sleeps", 12), ("train", 0), ("spins", 12), ("train_small", 16), ("decode", 16),
    ("train", 0), ("kernel_polls", 12),
]
FIELDS = ("power.draw", "utilization.gpu", "utilization.memory", "memory.used")
NAMES = ("watts", "busy", "memory", "mib")


class Devices:
    """Follows what `nvidia-smi` says: a line a second and device."""

    def __init__(self):
        self.lines, self.lock = [], threading.Lock()
        words = ["nvidia-smi", f"--query-gpu=index,{','.join(FIELDS)}", "--format=csv,noheader,nounits", "-l", "1"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            index, *numbers = line.split(",")
            with self.lock:
                self.lines.append((int(index), [float(n) for n in numbers]))

    def since(self):
        """The mean of each field over the lines that came since the last call, a device at a time."""
        with self.lock:
            lines, self.lines = self.lines, []
        by = {}
        for index, numbers in lines:
            by.setdefault(index, []).append(numbers)
        mean = lambda column: round(sum(column) / len(column), 1)
        return [dict(zip(NAMES, map(mean, zip(*of)))) for _, of in sorted(by.items())]


def record(out):
    import record_activity as cpu

    trainer = subprocess.Popen([sys.executable, "-u", __file__, "--train"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    devices, traces = Devices(), {}

    def said(word):
        for line in trainer.stdout:
            if line.split()[:1] == [word]:
                return line.split()[1:]
        raise SystemExit(f"it ended before it said {word!r}")

    try:
        versions = said("versions")
        for what, seconds in SCRIPT:
            trainer.stdin.write(what + "\n")
            trainer.stdin.flush()
            said("begins")
            time.sleep(SETTLES)
            if not seconds:
                continue
            devices.since()
            windows, before = [], None
            for _ in range(int(seconds / EVERY) + 1):
                before, window = cpu.sample([trainer.pid], before)
                gpus = devices.since()
                if window:
                    windows.append(window | {"gpus": gpus})
                time.sleep(EVERY)
            print(what, len(windows), windows[-1]["gpus"], windows[-1]["ranks"], flush=True)
            traces[what] = windows
            write(out, versions, traces)
    finally:
        trainer.kill()
        devices.process.kill()


def write(out, versions, traces):
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(w) for w in windows) + "\n]" for name, windows in traces.items()]
    source = f"tests/gpu/record_gpu_activity.py: {' '.join(versions)}"
    out.write_text('{\n"source": ' + json.dumps(source) + ",\n" + ",\n".join(rows) + "\n}\n")


def train():
    """Does what it is told, a line a time, until it is told something else."""
    import queue

    import kernels
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29671", rank=0, world_size=1)
    torch.manual_seed(1)
    mesh = init_device_mesh("cuda", (1,))

    def made(width, layers):
        layer = lambda: nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, dropout=0.0, device="cuda")
        model = nn.Sequential(*(layer() for _ in range(layers)))
        for part in model:
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)

    large, small = made(2048, 12), made(256, 2)
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    seen = torch.zeros(24, dtype=torch.int32, device="cuda")
    told = queue.Queue()

    def step(of, batch, length):
        model, optimizer = of
        width = model[0].linear1.in_features
        # The batch comes from the host, as a loader's does.
        x = torch.randn(batch, length, width).pin_memory().to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
        print(f"step loss {loss.item():.4f}")

    def decode():
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            x = torch.randn(16, 1, 2048, device="cuda")
            for _ in range(32):
                x = large[0](x)
        print(f"decoded {x.float().mean().item():.4f}")

    # The step after it waits in `.item()`, where a rank that hangs is found: the host spins in the driver.
    def kernel_spins(until):
        for _ in range(1000):
            if until():
                return
            torch.cuda._sleep(10_000_000_000)
            flag.item()

    # It comes last: nothing but the end of the process ends it.
    def kernel_polls(until):
        flag.zero_()
        kernels.wait_for_ever(flag, seen)

    def sleeps(until):
        while not until():
            time.sleep(0.5)

    def spins(until):
        while not until():
            for _ in range(1_000_000):
                pass

    doing = {
        "train": lambda: step(large, 8, 1024), "train_small": lambda: step(small, 8, 128), "decode": decode,
    }
    hangs = {"kernel_spins": kernel_spins, "kernel_polls": kernel_polls, "sleeps": sleeps, "spins": spins}
    # Compiled and warm before anything is looked at.
    flag.fill_(1)
    kernels.wait_for_ever(flag, seen)
    for work in doing.values():
        work()
    print("versions", "torch", torch.__version__, torch.cuda.get_device_name(), "FSDP2", "1", "rank", flush=True)

    def listen():
        for line in sys.stdin:
            told.put(line.strip())

    threading.Thread(target=listen, daemon=True).start()
    what = None
    while True:
        if not told.empty():
            what = told.get()
            print("begins", what, flush=True)
        if what in hangs:
            hangs[what](lambda: not told.empty())
        elif what:
            doing[what]()
        else:
            time.sleep(0.01)


def main():
    if sys.argv[1:] == ["--train"]:
        return train()
    p = argparse.ArgumentParser()
    p.add_argument("out", type=Path)
    record(p.parse_args().out)


if __name__ == "__main__":
    main()
