"""What verl's own checkpoint managers do with each choice of contents, beside what `supervise plan` says to it.

usage: python verl_contents.py PROGRAMS        (with the environment of cpu_env.sh; one rank, no GPU)

Megatron: every combination of use_mbridge, use_dist_checkpointing, save_contents and load_contents is given to the manager's
constructor; where it raises, `plan` must refuse with 78 as well. FSDP: a step is loaded with each load_contents, and what
changed is compared; where weights stay fresh without an error, `plan` must refuse. Ends with 1 where one of them differs.
"""

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
REFUSED = 78
ALL = ["model", "optimizer", "extra"]
# verl starts with these and then loads no weights: only `plan` refuses.
STRICTER = "no weights come back"


def plan(program, work, overrides):
    """Exit code of `supervise plan` and what it said."""
    command = [program, "plan", "--", "/bin/true", "-m", "verl.trainer.main_ppo", "trainer.save_freq=1",
               f"trainer.default_local_dir={work}/checkpoints", "algorithm.adv_estimator=grpo", *overrides]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def written(contents):
    return f"[{','.join(contents)}]"


def megatron_starts(bridge, dist_ckpt, save, load):
    """Whether the manager can be made."""
    from verl.trainer.config import CheckpointConfig
    from verl.utils.checkpoint.megatron_checkpoint_manager import MegatronCheckpointManager

    try:
        MegatronCheckpointManager(
            config=SimpleNamespace(model=SimpleNamespace(path="tiny"), megatron=None), model_config=None,
            checkpoint_config=CheckpointConfig(save_contents=save, load_contents=load), transformer_config=None,
            role="actor", model=[], arch="GPTModel", hf_config=None, param_dtype=torch.float32,
            share_embeddings_and_output_weights=False, processing_class=None, optimizer=None, optimizer_scheduler=None,
            use_distributed_optimizer=False, use_dist_checkpointing=dist_ckpt, bridge=object() if bridge else None,
        )  # fmt: skip
    except ValueError:
        return False
    return True


def comes_back(save, load):
    """Whether weights are saved and asked for; a relaunch says itself where they are."""
    return bool({"model", "hf_model"} & set(save)) and bool({"model", "hf_model"} & set(load))


def megatron(program, work):
    """Problems found, and rows compared."""
    weights = [[], ["model"], ["hf_model"], ["model", "hf_model"]]
    engine, contents = "actor_rollout_ref.actor.megatron", "actor_rollout_ref.actor.checkpoint"
    problems, rows = [], 0
    for bridge, dist_ckpt, saved in itertools.product((True, False), (True, False), weights):
        # By default what is saved is loaded; another wish is tried for each weight there is.
        for loaded in [None, ["model"], ["hf_model"]]:
            save = [*saved, "optimizer", "extra"]
            load = save if loaded is None else [*loaded, "optimizer", "extra"]
            overrides = ["model_engine=megatron", f"{engine}.use_mbridge={bridge}",
                         f"{engine}.use_dist_checkpointing={dist_ckpt}", f"{contents}.save_contents={written(save)}"]  # fmt: skip
            if loaded is not None:
                overrides.append(f"{contents}.load_contents={written(load)}")
            starts, back = megatron_starts(bridge, dist_ckpt, save, load), comes_back(save, load)
            code, said = plan(program, work, overrides)
            rows += 1
            row = f"bridge={bridge} dist={dist_ckpt} save={saved} load={loaded}"
            if not starts and code != REFUSED:
                problems.append(f"{row}: verl refuses to start, and plan ends with {code}\n{said}")
            if starts and back and code == REFUSED:
                problems.append(f"{row}: verl starts and resumes, and plan refuses\n{said}")
            if starts and not back and code != REFUSED:
                problems.append(f"{row}: {STRICTER}, and plan ends with {code}\n{said}")
    return problems, rows


def fsdp_loads(manager, step, pristine, load):
    """Which parts a load changed; None where it raised."""
    pristine()
    model, optimizer, schedule = manager.model, manager.optimizer, manager.lr_scheduler
    weights = [p.detach().clone() for p in model.parameters()]
    manager.checkpoint_load_contents = load
    try:
        manager.load_checkpoint(str(step))
    except (AssertionError, ValueError, KeyError, FileNotFoundError):
        return None
    changed = set()
    if any(not torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True)):
        changed.add("model")
    if any(float(s["step"]) for s in optimizer.state.values() if "step" in s):
        changed.add("optimizer")
    if schedule.last_epoch > 0:
        changed.add("extra")
    return changed


def fsdp(program, work):
    """Problems found, and rows compared."""
    from verl.trainer.config import CheckpointConfig
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    saver, _ = fsdp_side(FSDPCheckpointManager, CheckpointConfig, seed=1, train=True)
    step = work / "global_step_1" / "actor"
    saver.save_checkpoint(str(step), global_step=1)
    loader, pristine = fsdp_side(FSDPCheckpointManager, CheckpointConfig, seed=2, train=False)
    problems, rows = [], 0
    for size in range(4):
        for chosen in itertools.combinations(ALL, size):
            for load in ([*chosen], [*chosen, "hf_model"]):
                changed = fsdp_loads(loader, step, pristine, load)
                overrides = [f"actor_rollout_ref.actor.checkpoint.load_contents={written(load)}"]
                code, said = plan(program, work, overrides)
                rows += 1
                if changed != set(chosen):
                    problems.append(f"FSDP load={load}: verl changed {changed}")
                fresh = changed is not None and "model" not in changed
                if fresh != (code == REFUSED):
                    problems.append(f"FSDP load={load}: weights stay fresh: {fresh}, and plan ends with {code}\n{said}")
    return problems, rows


class Tokens:
    """Stands in for a tokenizer."""

    def save_pretrained(self, folder):
        Path(folder, "tokenizer.json").write_text("{}")


class Tiny(torch.nn.Module):
    """The least that the manager asks of a model."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config

        self.layer = torch.nn.Linear(4, 4)
        self.config = GPT2Config(n_layer=1, n_head=1, n_embd=4)
        self.name_or_path = ""

    def forward(self, inputs):
        return self.layer(inputs)

    def can_generate(self):
        return False


def fsdp_side(manager, config, seed, train):
    """A manager over a tiny FSDP2 model, and a function that makes everything fresh again."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = fully_shard(Tiny(), mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    one = manager(model=model, optimizer=optimizer, lr_scheduler=schedule, processing_class=Tokens(),
                  checkpoint_config=config(save_contents=ALL, load_contents=ALL))  # fmt: skip
    first = [p.detach().clone() for p in model.parameters()]
    if train:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        schedule.step()

    def pristine():
        with torch.no_grad():
            for p, value in zip(model.parameters(), first, strict=True):
                p.copy_(value)
        optimizer.state.clear()
        schedule.last_epoch = 0

    return one, pristine


def main():
    program = str(Path(sys.argv[1]).resolve() / "supervise")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for name, check in (("Megatron", megatron), ("FSDP", fsdp)):
            found, rows = check(program, work)
            problems += found
            print(f"{name}: {rows} choices of contents, {len(found)} differ from verl", flush=True)
        dist.destroy_process_group()
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
