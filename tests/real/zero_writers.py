"""Writes checkpoints of DeepSpeed on two CPU ranks, and what its own zero_to_fp32 makes of them.

usage: gang.sh 2 python zero_writers.py OUT [--small]      (--small: the fixture, stages 2 and 3)

OUT/CASE is a checkpoint as Trainer has it (config.json and a tokenizer's place beside DeepSpeed's directory), OUT/CASE.safetensors what
DeepSpeed's own converter makes of it. No size divides another one: parts end within rows, and are filled up.
"""

import importlib
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen2Config

# Stage, what else the engine is told, and what is special about the model.
CASES = {
    "none": (0, {}, ""),
    "one": (1, {}, ""),
    "two": (2, {}, "tied"),
    "two-float": (2, {"bf16": {"enabled": False}}, ""),
    "two-frozen": (2, {}, "frozen"),
    "three": (3, {}, ""),
    "three-groups": (3, {"zero_optimization": {"stage": 3, "sub_group_size": 1000}}, "tied"),
    "three-frozen": (3, {}, "frozen"),
    "three-float": (3, {"bf16": {"enabled": False}}, ""),
}

SMALL = "--small" in sys.argv


def model(kind, dtype):
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=17 if SMALL else 67,
        hidden_size=4 if SMALL else 20,
        intermediate_size=7 if SMALL else 29,
        num_hidden_layers=1 if SMALL else 2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=kind == "tied",
        architectures=["Qwen2ForCausalLM"],
    )
    made = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if SMALL:
        return made
    if kind == "frozen":
        for name, parameter in made.named_parameters():
            parameter.requires_grad = "mlp" in name or "norm" in name
    # A buffer that is saved, as models with experts have.
    made.model.register_buffer("e_score_correction_bias", torch.randn(5, dtype=dtype))
    return made


def write(out, case, ds):
    stage, more, kind = CASES[case]
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        **more,
    }
    made = model(kind, torch.bfloat16 if settings["bf16"]["enabled"] else torch.float32)
    trained = [(n, p) for n, p in made.named_parameters() if p.requires_grad]
    plain = [p for n, p in trained if "norm" in n or "bias" in n]
    # Two groups, as Trainer makes them.
    groups = [{"params": [p for n, p in trained if not ("norm" in n or "bias" in n)], "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    config = made.config
    engine, *_ = ds.initialize(model=made, optimizer=torch.optim.AdamW(groups, lr=0.01), config=settings, dist_init_required=False)
    tokens = torch.arange(10).reshape(1, 10) + dist.get_rank()
    for _ in range(2):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    target = out / case
    engine.save_checkpoint(str(target), tag="global_step2")
    dist.barrier()
    if dist.get_rank() == 0:
        config.save_pretrained(target)
        save_file(converted(target, stage), out / f"{case}.safetensors")
    dist.barrier()


def converted(target, stage):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    if stage == 0:
        # Nothing is partitioned, and its converter takes none of these.
        state = torch.load(target / "global_step2" / "mp_rank_00_model_states.pt", weights_only=False)["module"]
    else:
        state = get_fp32_state_dict_from_zero_checkpoint(str(target))
    return {k: t.contiguous().clone() for k, t in state.items()}


def trainer(out, stage):
    """Trainer's own save, in its own directory."""
    from transformers import Trainer, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, n):
            ids = torch.arange(9) + n
            return {"input_ids": ids, "labels": ids.clone()}

    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": False},
        "zero_allow_untested_optimizer": True,
    }
    args = TrainingArguments(
        output_dir=str(out / f"trainer-{stage}"),
        max_steps=2,
        save_steps=2,
        per_device_train_batch_size=1,
        use_cpu=True,
        report_to="none",
        deepspeed=settings,
        disable_tqdm=True,
    )
    Trainer(model=model("", torch.float32), args=args, train_dataset=Data()).train()
    dist.barrier()
    if dist.get_rank() == 0:
        target = out / f"trainer-{stage}" / "checkpoint-2"
        save_file(converted(target, stage), out / f"trainer-{stage}.safetensors")
    dist.barrier()


def main():
    out = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    os.environ["LOCAL_RANK"] = str(dist.get_rank())
    import deepspeed as ds

    # Its collectives in shared memory would be compiled first.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    for case in ("two", "three") if SMALL else CASES:
        write(out, case, ds)
    for stage in () if SMALL else (2, 3):
        trainer(out, stage)
    # Threads of its own are not joined at the interpreter's end, and now and then a rank that has done everything ends by SIGABRT.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
