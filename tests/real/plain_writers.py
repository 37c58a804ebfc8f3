"""Writes single files with every option of torch.save and of safetensors, and a sharded Hugging Face model.

usage: python plain_writers.py OUT MODEL [--steps 2]

OUT/NAME/step_N holds what was written. MODEL is a directory made by make_tiny_model.py.
"""

import argparse
import io
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = 4096


def state(step):
    """What a training script saves: weights of several types, shared and odd ones, optimizer, plain objects."""
    rng = torch.Generator().manual_seed(step)
    weight = torch.randn(ROWS // 64, 64, generator=rng)
    model = OrderedDict(
        weight=weight,
        tied=weight,
        view=weight[3:5, ::2],
        bf16=weight.bfloat16(),
        half=weight[:3].half(),
        double=weight[:3].double(),
        complex=torch.complex(weight[0], weight[1]),
        fp8=weight[:4].to(torch.float8_e5m2),
        int64=torch.arange(100) * step,
        flags=weight[0] > 0,
        empty=torch.empty(0, 7),
        scalar=torch.tensor(float(step)),
        parameter=torch.nn.Parameter(weight[7].clone()),
    )
    optimizer = {"state": {0: {"step": torch.tensor(float(step)), "exp_avg": weight * 0.1}}, "param_groups": [{"lr": 1e-3}]}
    return {"model": model, "optim": optimizer, "step": step, "rng": rng.get_state(), "name": "wörter", "none": None}


def save_with(config, value, path):
    """Saves under other values of torch.utils.serialization.config.save."""
    from torch.utils.serialization import config as where

    before = {key: getattr(where.save, key) for key in config}
    for key, setting in config.items():
        setattr(where.save, key, setting)
    torch.save(value, path)
    for key, setting in before.items():
        setattr(where.save, key, setting)


def save_without_crc(value, path):
    """Each CRC in the file is a constant then."""
    torch.serialization.set_crc32_options(False)
    torch.save(value, path)
    torch.serialization.set_crc32_options(True)


def save_to_stream(value, path):
    """Through a file object the archive is named `archive`, not after the file."""
    stream = io.BytesIO()
    torch.save(value, stream)
    path.write_bytes(stream.getvalue())


def save_legacy(value, path, protocol):
    """The format from before torch 1.6, in which torch itself cannot read an fp8 tensor back."""
    model = {name: tensor for name, tensor in value["model"].items() if name != "fp8"}
    torch.save({**value, "model": model}, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)


def save_script(path, step):
    """TorchScript: the same container, with constants and code."""
    torch.manual_seed(step)
    torch.jit.script(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU())).save(str(path))


TORCH = {
    "zip": lambda value, path: torch.save(value, path),
    "zip_protocol_3": lambda value, path: torch.save(value, path, pickle_protocol=3),
    "zip_protocol_4": lambda value, path: torch.save(value, path, pickle_protocol=4),
    "zip_protocol_5": lambda value, path: torch.save(value, path, pickle_protocol=5),
    "zip_no_crc": save_without_crc,
    "zip_aligned_4096": lambda value, path: save_with({"storage_alignment": 4096}, value, path),
    "zip_stream": save_to_stream,
    "zip_no_byteorder": lambda value, path: torch.save(value, path, _disable_byteorder_record=True),
    "legacy": lambda value, path: save_legacy(value, path, 2),
    "legacy_protocol_4": lambda value, path: save_legacy(value, path, 4),
}


def plain_tensors(value):
    """What safetensors can hold: contiguous tensors that share nothing."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in value["model"].items()}


def save_model(source, folder, step, limit):
    """A Hugging Face model with tokenizer, in shards where `limit` is smaller than its weights."""
    model = AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(step)
    model.save_pretrained(folder, max_shard_size=limit)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for step in range(1, args.steps + 1):
        value = state(step)

        def folder(name, step=step):
            path = args.out / name / f"step_{step}"
            path.mkdir(parents=True, exist_ok=True)
            return path

        for name, write in TORCH.items():
            write(value, folder(f"torch_{name}") / "state.pt")
        save_script(folder("torch_script") / "module.pt", step)
        save_file(plain_tensors(value), folder("safetensors") / "state.safetensors")
        save_file(plain_tensors(value), folder("safetensors_words") / "state.safetensors", {"format": "pt", "step": str(step)})
        save_model(args.model, folder("hf_sharded"), step, "4KB")
        save_model(args.model, folder("hf_single"), step, "5GB")


if __name__ == "__main__":
    main()
