"""A real FSDP2 training run that needs only torch: deterministic, and resumable bit for bit.

usage, per rank: fsdp2_train.py DIR STEPS [--layout verl|dcp] [--keep 3] [--batch 8] [--device cpu|cuda] [--times FILE]
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the launcher (gang.sh, torchrun, supervise).

DIR gets global_step_N after every step, in the layout of verl's FSDP manager or as a
torch.distributed.checkpoint directory, then the tracker (renamed into place), then a
line in losses.jsonl. It starts where the tracker points. The last line printed is a
digest of the weights: equal for a run in one go and for one that was killed and resumed.
FILE gets a line a step: when it ended, in seconds of the monotonic clock.
FAULTS arms fault_hooks.py. On a GPU: see on_gpu.py.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import fault_hooks
import on_gpu

WIDTH, VOCABULARY, CONTEXT = 64, 256, 32


class Block(nn.Module):
    """A transformer block with causal attention."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.norm(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        x = x + self.mix(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


class Run:
    """The sharded model, its optimizer and its random state, with saving and loading of a step."""

    def __init__(self, root, args):
        self.root, self.layout, self.keep, self.device, self.batch = root, args.layout, args.keep, args.device, args.batch
        device = args.device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block(), Block(), nn.Linear(WIDTH, VOCABULARY)).to(device)
        mesh = init_device_mesh(device, (self.world,), mesh_dim_names=("fsdp",))
        for part in self.model:
            fully_shard(part, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.rng = torch.Generator().manual_seed(1000 + self.rank)
        self.text = torch.tensor(list(Path(__file__).read_bytes()))
        self.tracker = root / "latest_checkpointed_iteration.txt"

    def folder(self, step):
        return self.root / f"global_step_{step}" / "actor"

    def shard(self, step, kind):
        return self.folder(step) / f"{kind}_world_size_{self.world}_rank_{self.rank}.pt"

    def train(self):
        """One step; the loss is the mean over all ranks."""
        at = torch.randint(0, len(self.text) - CONTEXT - 1, (self.batch, 1), generator=self.rng)
        batch = self.text[at + torch.arange(CONTEXT + 1)].long().to(self.device)
        logits = self.model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return (total / self.world).item()

    def save(self, step):
        self.folder(step).mkdir(parents=True, exist_ok=True)
        if self.layout == "verl":
            torch.save(self.model.state_dict(), self.shard(step, "model"))
            torch.save(self.optimizer.state_dict(), self.shard(step, "optim"))
            torch.save({"lr_scheduler": None, "rng": {"cpu": self.rng.get_state()}}, self.shard(step, "extra_state"))
            if self.rank == 0:
                config = {"FSDP_version": 2, "world_size": self.world}
                (self.folder(step) / "fsdp_config.json").write_text(json.dumps(config))
        else:
            dcp.save(self.dcp_state(), checkpoint_id=self.folder(step))
        dist.barrier()
        if self.rank == 0:
            fresh = self.tracker.with_suffix(".tmp")
            fresh.write_text(str(step))
            fresh.rename(self.tracker)
            if step > self.keep:
                shutil.rmtree(self.folder(step - self.keep).parent, ignore_errors=True)

    def dcp_state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, f"rng.{self.rank}": self.rng.get_state()}

    def load(self):
        """Continues from the tracker's step; returns it, or 0 where there is none."""
        if not self.tracker.exists():
            return 0
        step = int(self.tracker.read_text())
        if self.layout == "verl":
            self.model.load_state_dict(torch.load(self.shard(step, "model"), weights_only=False))
            self.optimizer.load_state_dict(torch.load(self.shard(step, "optim"), weights_only=False))
            self.rng.set_state(torch.load(self.shard(step, "extra_state"), weights_only=False)["rng"]["cpu"])
        else:
            state = self.dcp_state()
            dcp.load(state, checkpoint_id=self.folder(step))
            set_state_dict(
                self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
            )
            self.rng.set_state(state[f"rng.{self.rank}"])
        return step

    def digest(self):
        found = hashlib.sha256()
        for parameter in self.model.state_dict().values():
            found.update(parameter.full_tensor().cpu().numpy().tobytes())
        return found.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--layout", choices=("verl", "dcp"), default="verl")
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="samples of a rank's step: so much it computes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--times", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        held = on_gpu.prepare()
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    fault_hooks.arm_from_env()

    run = Run(args.root, args)
    start = run.load()
    if run.rank == 0:
        args.root.mkdir(parents=True, exist_ok=True)
        print(f"starting from step {start}", flush=True)
    for global_step in range(start + 1, args.steps + 1):
        loss = run.train()
        run.save(global_step)
        if run.rank == 0:
            print(f"step:{global_step} - loss:{loss}", flush=True)
            with open(args.root / "losses.jsonl", "a") as lines:
                lines.write(json.dumps({"step": global_step, "loss": loss.hex()}) + "\n")
            if args.times:
                with open(args.times, "a") as lines:
                    lines.write(f"{time.monotonic()}\n")
    digest = run.digest()
    if run.rank == 0:
        print(f"final step {args.steps}, weights {digest}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Gloo's threads live on. One that lets go of a tensor while the interpreter is taken down ends the process by SIGABRT ("terminate
    # called without an active exception"): Python ends the thread, which C++ does not allow. So the interpreter is not taken down.
    sys.stdout.flush()
    os._exit(0)
