"""Writes checkpoints in the layout of verl's PPO trainer with verl's own FSDPCheckpointManager, without that trainer.

usage: gang.sh N python verl_fsdp_manager.py OUT MODEL [--steps 2] [--strategy fsdp2|fsdp|fsdp_mesh] [--contents model,optimizer,extra]
       [--critic] [--resume STEP] [--gather FILE]

MODEL is a directory made by make_tiny_model.py. Each step is one real optimiser
step, then what the PPO trainer writes, in its order: actor/ by the manager,
data.pt from a StatefulDataLoader by rank 0, last the tracker. With --critic the
same model is saved as critic/ too. With --resume it goes on from a step. --gather: FSDP's own view of the whole model and optimizer, by
name, as it was loaded or, without --resume, as it was at the end.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.torch_functional import get_constant_schedule_with_warmup

SEQUENCE, BATCH, SAMPLES = 16, 2, 32


def shard(model, strategy):
    """Wraps the model as verl's FSDP engine does: one unit per decoder layer and one for the rest."""
    if strategy == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    layer_types = {type(layer) for layer in model.model.layers}
    return FullyShardedDataParallel(
        model,
        device_id=torch.device("cpu"),
        # As verl's engine does; without one, torch writes its older sharded tensors.
        device_mesh=init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",)) if strategy == "fsdp_mesh" else None,
        auto_wrap_policy=lambda module, recurse, **_: recurse or type(module) in layer_types,
    )


def train_step(model, optimizer, schedule, batch):
    """One step of causal language modelling on random tokens."""
    optimizer.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


def gathered(model, optimizer):
    """Whole tensors by their names, as FSDP itself puts them together."""
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return {"model": model.state_dict(), "optim": FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--strategy", choices=("fsdp", "fsdp_mesh", "fsdp2"), default="fsdp2")
    parser.add_argument("--contents", default="model,optimizer,extra")
    parser.add_argument("--critic", action="store_true")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--gather", type=Path)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    vocab = model.config.vocab_size
    model = shard(model, args.strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=0)
    contents = args.contents.split(",")
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        lr_scheduler=schedule,
        processing_class=AutoTokenizer.from_pretrained(args.model),
        checkpoint_config=CheckpointConfig(save_contents=contents, load_contents=contents),
    )
    loader = StatefulDataLoader(torch.randint(0, vocab, (SAMPLES, SEQUENCE)), batch_size=BATCH, num_workers=0)

    def gather():
        if args.gather:
            whole = gathered(model, optimizer)
            if rank == 0:
                torch.save(whole, args.gather)

    batches, done = iter(loader), 0
    if args.resume:
        done = int(args.resume.name.rsplit("_", 1)[1])
        manager.load_checkpoint(str(args.resume / "actor"))
        gather()
        for _ in range(done):
            next(batches)
    for global_step in range(done + 1, args.steps + 1):
        loss = train_step(model, optimizer, schedule, next(batches))
        folder = args.out / f"global_step_{global_step}"
        manager.save_checkpoint(str(folder / "actor"), global_step=global_step)
        if args.critic:
            manager.save_checkpoint(str(folder / "critic"), global_step=global_step)
        dist.barrier()
        if rank == 0:
            torch.save(loader.state_dict(), folder / "data.pt")
            (args.out / "latest_checkpointed_iteration.txt").write_text(str(global_step))
            print(f"step {global_step}: loss {loss:.4f}, saved {folder}", flush=True)
    if not args.resume:
        gather()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
