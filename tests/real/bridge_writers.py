"""Writes a model as verl's Megatron trainers leave it by default: mbridge's own export, in layout v2.

usage: gang.sh 2 python bridge_writers.py OUT MODEL MBRIDGE

MODEL is a directory of merge_formats_writers.py (OUT/hf/NAME), MBRIDGE a directory with mbridge in it. Two tensor parallel ranks hold megatron-core's layers
with Transformer Engine's modules stood in for; the bridge gathers, splits and writes them. OUT/global_step_1/actor is what the checkpoint manager makes
of it: `model/huggingface` with configuration and weights, `model/dist_ckpt` empty beside it.
"""

import importlib
import sys
import types
from pathlib import Path

sys.path.append(sys.argv[3])

import transformer_engine_standins

transformer_engine_standins.stand_in()

import merge_formats_models as models
import merge_formats_writers as writers
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoConfig
from verl_megatron_manager import CudaMeansCpu, stand_in_for_cuda


def bridge_of(directory):
    """Its bridges of plain language models; those of others ask for packages that nothing here needs."""
    for name in ("mbridge", "mbridge.models"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(directory, *name.split(".")))]
        sys.modules[name] = module
    for name in ("llama", "qwen2"):
        importlib.import_module(f"mbridge.models.{name}")
    return importlib.import_module("mbridge.core.auto_bridge").AutoBridge


def main():
    out, hf = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    stand_in_for_cuda()
    writers.stand_in_for_kernels()
    from megatron.core import mpu

    AutoBridge = bridge_of(sys.argv[3])

    with CudaMeansCpu():
        mpu.initialize_model_parallel(tensor_model_parallel_size=2)
        config = AutoConfig.from_pretrained(hf)
        whole = models.megatron(config, load_file(hf / "model.safetensors"))
        model = writers.build(config, 2, 1, 1, engine=True)
        writers.fill(model, whole, 1)
        model = model.to(torch.bfloat16)
        for name, parameter in model.named_parameters():
            # As Transformer Engine's own modules say it.
            if any(word in name for word in ("linear_", "word_embeddings", "output_layer")) and "layer_norm" not in name:
                parameter.tensor_model_parallel = True
                parameter.partition_dim = 1 if name.endswith(("linear_proj.weight", "linear_fc2.weight")) else 0
        # As verl's engine asks for it; the rows that fill the vocabulary up are its own to leave out.
        bridge = AutoBridge.from_config(config, dtype=torch.bfloat16)
        bridge.make_vocab_size_divisible_by, bridge.vocab_size, bridge.padded_vocab_size = models.PADDED, models.VOCABULARY, models.PADDED
        bridge.safetensor_io = bridge._get_safetensor_io(str(hf))
        place = out / "global_step_1/actor/model/huggingface"
        place.mkdir(parents=True, exist_ok=True)
        place.with_name("dist_ckpt").mkdir(exist_ok=True)
        bridge.save_weights([model], str(place))
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"{hf.name}: mbridge wrote it; whoever loads it reads what two ranks held", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
