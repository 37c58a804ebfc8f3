"""Writes the shards that verl's FSDPCheckpointManager makes of models of many kinds.

usage: gang.sh N python merge_writers.py OUT      (OUT/CASE-wN: one role directory each)

Cases: a dense model under FSDP2 and FSDP1 whose sizes no world divides evenly; one with tied embeddings; a critic; mixtures of
experts in both spellings; adapters (LoRA); bfloat16; and with four ranks a hybrid mesh. Weights are random and seeded, so each
world holds the same model.
"""

import argparse
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    LlamaConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.torch_functional import get_constant_schedule_with_warmup

VOCABULARY = 515
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=72,
    intermediate_size=100,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
MOE = dict(moe_intermediate_size=20, num_experts=5, num_experts_per_tok=2, head_dim=18)
CAUSAL, CRITIC = AutoModelForCausalLM, AutoModelForTokenClassification
CASES = {
    "qwen2": (CAUSAL, Qwen2Config(**SIZES, tie_word_embeddings=False)),
    "llama": (CAUSAL, LlamaConfig(**SIZES, tie_word_embeddings=False)),
    "tied": (CAUSAL, Qwen3Config(**SIZES, head_dim=18, tie_word_embeddings=True)),
    "critic": (CRITIC, Qwen2Config(**SIZES, num_labels=1, tie_word_embeddings=False)),
    "begun": (CRITIC, Qwen2Config(**SIZES, num_labels=1, tie_word_embeddings=False)),
    "qwen3_moe": (CAUSAL, Qwen3MoeConfig(**SIZES, **MOE, tie_word_embeddings=False)),
    "mixtral": (CAUSAL, MixtralConfig(**SIZES, num_local_experts=3, num_experts_per_tok=2, tie_word_embeddings=False)),
}


def units(model):
    """The decoder layers, each a unit of its own as in verl."""
    return [m for m in model.modules() if type(m).__name__.endswith("DecoderLayer")]


def shard(model, strategy, mesh):
    if strategy == "fsdp1":
        kinds = {type(m) for m in units(model)}
        return FullyShardedDataParallel(
            model,
            device_id=torch.device("cpu"),
            device_mesh=mesh,
            auto_wrap_policy=lambda module, recurse, **_: recurse or type(module) in kinds,
            use_orig_params=True,
        )
    for layer in units(model):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(out, model, tokenizer, strategy, mesh):
    model = shard(model, strategy, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        lr_scheduler=get_constant_schedule_with_warmup(optimizer, num_warmup_steps=0),
        processing_class=tokenizer,
        checkpoint_config=CheckpointConfig(save_contents=["model", "extra"], load_contents=["model", "extra"]),
    )
    manager.save_checkpoint(str(out), global_step=1)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("model", help="a directory of make_tiny_model.py: its tokenizer is used")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))

    def made(case, dtype=torch.float32):
        torch.manual_seed(7)
        kind, config = CASES[case]
        model = kind.from_config(config, dtype=dtype)
        # A critic that began as a model of words: its configuration goes on naming that one's class.
        model.config.architectures = ["Qwen2ForCausalLM" if case == "begun" else type(model).__name__]
        # From there the manager takes the generation's configuration.
        model.config.name_or_path = args.model
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        return model

    def place(case):
        return args.out / f"{case}-w{world}"

    for case in CASES:
        save(place(case), made(case), tokenizer, "fsdp2", mesh)
    save(place("fsdp1"), made("qwen2"), tokenizer, "fsdp1", mesh)
    save(place("bfloat16"), made("qwen2", torch.bfloat16), tokenizer, "fsdp2", mesh)
    adapter = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    lora = get_peft_model(made("qwen2"), adapter)
    for name, parameter in lora.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    save(place("lora"), lora, tokenizer, "fsdp2", mesh)
    if world == 4:
        hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
        save(place("hybrid"), made("qwen2"), tokenizer, "fsdp2", hybrid)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
