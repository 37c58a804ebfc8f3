"""Writes checkpoints in layout v2 with verl's own MegatronCheckpointManager, without its trainer.

usage: gang.sh 2 python verl_megatron_manager.py OUT MODEL [--steps 2] [--only NAME,NAME]

A tiny GPT of megatron-core trains on random tokens; OUT/NAME/global_step_N/actor is the manager's own work, and data.pt
beside it is what the PPO trainer adds. The names stand in VARIANTS: the plain optimizer with two tensor parallel ranks,
Megatron's distributed optimizer with two data parallel ranks in each format it can be saved in, and weights in
model/huggingface as by verl's defaults (there the bridge to Hugging Face names is a stand-in, and MODEL of
make_tiny_model.py gives configuration and tokenizer). Megatron asks for "cuda" by name; a TorchFunctionMode answers with
the CPU.
"""

import argparse
import contextlib
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torchdata.stateful_dataloader import StatefulDataLoader

SEQUENCE, BATCH, HIDDEN, VOCABULARY = 8, 2, 8, 32
WHAT = ["model", "optimizer", "extra"]
# Name to (tensor parallel ranks, how the optimizer is saved, weights in Hugging Face form).
VARIANTS = {
    "tp2": (2, "plain", False),
    "hf": (2, "plain", True),
    "dp_reshardable": (1, "dp_reshardable", False),
    "fully_reshardable": (1, "fully_reshardable", False),
    # Only up to megatron-core 0.13: later ones refuse flattened ranges. Named with --only.
    "flattened": (1, "fully_sharded_model_space", False),
}


class CudaMeansCpu(TorchFunctionMode):
    """Answers each wish for a CUDA device with the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if name == "cuda":
            return args[0]
        if name == "type" and len(args) == 1:
            # The gradients' type is asserted to be CUDA's before they are clipped.
            return func(*args, **kwargs).replace("torch.FloatTensor", "torch.cuda.FloatTensor")
        if name == "to":
            args = tuple("cpu" if isinstance(a, (str, torch.device)) and str(a).startswith("cuda") else a for a in args)
        return func(*args, **kwargs)


def stand_in_for_cuda():
    """What a function mode does not see."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *args: None
    torch.cuda.set_device = lambda *args: None
    from megatron.core import tensor_parallel

    # The tracker of dropout's random states holds CUDA's; there is no dropout here.
    tensor_parallel.random.CudaRNGStatesTracker.fork = lambda self, *args: contextlib.nullcontext()
    tensor_parallel.get_cuda_rng_tracker().reset()


class Bridge:
    """Stands in for mbridge: the shards of all ranks, each under a name of its own, as a Hugging Face model."""

    def save_weights(self, models, folder, **others):
        from huggingface_hub import save_torch_state_dict

        mine = {name: value.detach().clone() for name, value in models[0].module.named_parameters()}
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        if dist.get_rank() == 0:
            whole = {f"tp{rank}.{name}": value for rank, part in enumerate(every) for name, value in part.items()}
            save_torch_state_dict(whole, folder, max_shard_size="6KB")
        dist.barrier()


class Run:
    """Model, optimizer, schedule and verl's manager."""

    def __init__(self, tensor_parallel, sharding, model, hf):
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.models.gpt import GPTModel
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
        from megatron.core.transformer import TransformerConfig

        self.sharding, self.distributed, self.described, self.hf = sharding, sharding != "plain", model, hf
        self.config = TransformerConfig(
            num_layers=1, hidden_size=HIDDEN, num_attention_heads=2, use_cpu_initialization=True,
            tensor_model_parallel_size=tensor_parallel, pipeline_dtype=torch.float32, gradient_accumulation_fusion=False,
            bias_dropout_fusion=False, masked_softmax_fusion=False, attention_dropout=0.0, hidden_dropout=0.0,
        )  # fmt: skip
        torch.manual_seed(7)
        gpt = GPTModel(self.config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=SEQUENCE)
        ddp = DistributedDataParallelConfig(use_distributed_optimizer=self.distributed)
        self.model = DistributedDataParallel(self.config, ddp, gpt)
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam", lr=1e-3, weight_decay=0.01, clip_grad=0.0, use_distributed_optimizer=self.distributed
            ),
            [self.model],
        )
        self.schedule = OptimizerParamScheduler(
            self.optimizer, init_lr=0.0, max_lr=1e-3, min_lr=0.0, lr_warmup_steps=0, lr_decay_steps=100,
            lr_decay_style="constant", start_wd=0.01, end_wd=0.01, wd_incr_steps=0, wd_incr_style="constant",
            use_checkpoint_opt_param_scheduler=True,
        )  # fmt: skip

    def manager(self):
        from verl.trainer.config import CheckpointConfig
        from verl.utils.checkpoint.megatron_checkpoint_manager import MegatronCheckpointManager

        megatron = SimpleNamespace(
            dist_ckpt_optim_fully_reshardable=self.sharding == "fully_reshardable",
            distrib_optim_fully_reshardable_mem_efficient=False,
        )
        hf_config, tokenizer, bridge = None, None, None
        if self.described:
            from transformers import AutoConfig, AutoTokenizer

            hf_config = AutoConfig.from_pretrained(self.described)
            tokenizer = AutoTokenizer.from_pretrained(self.described)
        if self.hf:
            bridge = Bridge()
        manager = MegatronCheckpointManager(
            config=SimpleNamespace(model=SimpleNamespace(path="tiny"), megatron=megatron), model_config=None,
            checkpoint_config=CheckpointConfig(save_contents=WHAT, load_contents=WHAT),
            transformer_config=self.config, role="actor", model=[self.model], arch="GPTModel", hf_config=hf_config,
            param_dtype=torch.float32, share_embeddings_and_output_weights=False, processing_class=tokenizer,
            optimizer=self.optimizer, optimizer_scheduler=self.schedule, use_distributed_optimizer=self.distributed,
            use_dist_checkpointing=not self.hf, bridge=bridge,
        )  # fmt: skip
        if self.sharding == "fully_sharded_model_space":
            # What verl writes where the configuration has no `megatron` section of the newer kind.
            usual = manager._build_sharded_state_dict_metadata
            manager._build_sharded_state_dict_metadata = lambda: {
                **usual(),
                "distrib_optim_sharding_type": "fully_sharded_model_space",
            }
        return manager

    def train(self, step):
        from megatron.core import mpu

        rng = torch.Generator().manual_seed(100 * step + mpu.get_data_parallel_rank())
        tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=rng)
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        mask = torch.tril(torch.ones(1, 1, SEQUENCE, SEQUENCE)) < 0.5
        positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE)
        loss = self.model(tokens, positions, mask, labels=tokens.roll(-1, 1)).mean()
        loss.backward()
        self.model.finish_grad_sync()
        self.optimizer.step()
        self.schedule.step(1)
        return loss.item()


def write(name, args, always_described=False):
    """All steps of one variant. Older managers keep configuration and tokenizer with every checkpoint."""
    from megatron.core import mpu

    tensor_parallel, sharding, hf = VARIANTS[name]
    mpu.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
    run = Run(tensor_parallel, sharding, args.model if hf or always_described else None, hf)
    manager = run.manager()
    loader = StatefulDataLoader(torch.arange(64), batch_size=BATCH, num_workers=0)
    batches = iter(loader)
    for step in range(1, args.steps + 1):
        loss = run.train(step)
        next(batches)
        manager.save_checkpoint(str(args.out / name / f"global_step_{step}" / "actor"), global_step=step)
        if dist.get_rank() == 0:
            # As the PPO trainer does after the roles.
            torch.save(loader.state_dict(), args.out / name / f"global_step_{step}" / "data.pt")
            (args.out / name / "latest_checkpointed_iteration.txt").write_text(str(step))
            print(f"{name}, step {step}: loss {loss:.4f}", flush=True)
    dist.barrier()
    mpu.destroy_model_parallel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--only", default=",".join(name for name in VARIANTS if name != "flattened"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stand_in_for_cuda()
    with CudaMeansCpu():
        for name in args.only.split(","):
            write(name, args)
    dist.destroy_process_group()


# Megatron's writer spawns processes that import this file again.
if __name__ == "__main__":
    main()
