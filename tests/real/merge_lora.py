"""`supervise merge --fold-lora` against peft's merge_and_unload; merge.py calls it.

How a matrix product rounds is the library's and the processor's choice. Numbers whose products and sums are exact have to come out bit for bit; random ones
as far as any order of the sum may differ. How many of those are equal bit for bit is printed: all of them, where torch sums up in the order of the ranks.
"""

import json

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

CASES = {
    "plain": (torch.float32, dict(r=4, lora_alpha=16)),
    "rslora": (torch.float32, dict(r=8, lora_alpha=12, use_rslora=True)),
    "patterns": (
        torch.float32,
        dict(r=4, lora_alpha=8, alpha_pattern={"v_proj": 3, "layers.1.mlp.down_proj": 20}, rank_pattern={"down_proj": 6}),
    ),
    "bfloat16": (torch.bfloat16, dict(r=16, lora_alpha=16)),
    "float16": (torch.float16, dict(r=16, lora_alpha=8)),
}


def exact(tensor, step, most):
    """The same shape, of small multiples of a step."""
    return torch.randint(-most, most + 1, tensor.shape).to(tensor.dtype) * step


def adapter(base, target, settings, whole_numbers, dtype):
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", **settings)
    )
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = exact(parameter.data, 0.5, 3) if whole_numbers else torch.randn_like(parameter) * 0.1
    model.save_pretrained(target)
    path = target / "adapter_model.safetensors"
    save_file({k: t.to(dtype) for k, t in load_file(path).items()}, path, metadata={"format": "pt"})


def peft_merges(base, target):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), target).merge_and_unload()
    return {k: t for k, t in model.state_dict().items()}


def steps(tensor):
    """Numbers of 16 bits as places in the order of all of them."""
    bits = tensor.view(torch.int16).int()
    return torch.where(bits < 0, -32768 - bits, bits)


def near(made, want, base):
    """No number differs by more than another order of the sum can make of it. Gives how many are not the same."""
    odd = 0
    for key, tensor in want.items():
        same = made[key] == tensor
        odd += (~same).sum().item()
        if key not in base or same.all():
            continue
        if tensor.dtype == torch.float32:
            change = (tensor - base[key]).abs()
            # 16 roundings of what is summed up, and one of the result.
            assert ((made[key] - tensor).abs() <= 16 * 2**-24 * (change.max() + tensor.abs())).all(), key
        else:
            assert ((steps(made[key]) - steps(tensor)).abs() <= 1).all(), key
    return odd


def check(merge, refused, plain, with_adapter, work):
    """`merge` makes a model, `refused` looks for words in the refusal; a model without an adapter, shards of one with an adapter."""
    work = work / "fold"
    work.mkdir()
    torch.manual_seed(5)
    for case, (dtype, settings) in CASES.items():
        for kind in ("exact", "random"):
            base, target, out = (work / f"{case}-{kind}-{what}" for what in ("base", "adapter", "out"))
            model = AutoModelForCausalLM.from_pretrained(plain, dtype=dtype)
            if kind == "exact":
                for parameter in model.parameters():
                    parameter.data = exact(parameter.data, 1.0, 3)
            model.save_pretrained(base)
            # Sums of halves times whole factors: the factors of these are some.
            whole = kind == "exact" and case != "rslora"
            adapter(base, target, settings, whole, dtype)
            want = peft_merges(base, target)
            view = merge(target, out, "--dtype", "keep", "--fold-lora", base)
            assert any("was added to 9 tensors" in n and "adapter_config.json" in n for n in view["notes"]), view
            made = load_file(out / "model.safetensors")
            assert made.keys() == want.keys() and all(made[k].dtype == want[k].dtype for k in want), case
            before = load_file(base / "model.safetensors")
            assert sum(not torch.equal(before[k], want[k]) for k in want) == 9, case
            odd = near(made, want, before)
            assert not whole or case == "patterns" or odd == 0, f"{case}: {odd} differ"
            count = sum(t.numel() for t in want.values())
            print(f"--fold-lora, {case}, {kind}: {count - odd} of {count} numbers are those of peft bit for bit")
    # What a trainer of verl saved: the model and the adapter in the same shards; and the adapter beside the merged model.
    merge(with_adapter, work / "apart", "--dtype", "keep")
    want = peft_merges(work / "apart", work / "apart" / "lora_adapter")
    for source in (with_adapter, work / "apart"):
        out = work / f"of-{source.name}"
        merge(source, out, "--dtype", "keep", "--fold-lora")
        near(load_file(out / "model.safetensors"), want, load_file(work / "apart" / "model.safetensors"))
        assert not (out / "lora_adapter").exists() and not (out / "adapter_config.json").exists()
        AutoModelForCausalLM.from_pretrained(out)
    refusals(refused, work)


def refusals(refused, work):
    base, target = work / "plain-random-base", work / "plain-random-adapter"
    path = target / "adapter_config.json"
    settings = json.loads(path.read_text())
    for change in (
        {"use_dora": True},
        {"fan_in_fan_out": True},
        {"bias": "all"},
        {"init_lora_weights": "pissa"},
        {"modules_to_save": ["lm_head"]},
        {"alpha_pattern": {"q_proj|k_proj": 3}},
        {"peft_type": "LOHA"},
    ):
        path.write_text(json.dumps({**settings, **change}))
        refused(23, next(iter(change)) if "peft_type" not in change else "LOHA", target, "--fold-lora", base)
    path.write_text(json.dumps({**settings, "r": 5}))
    refused(21, "speaks of rank 5", target, "--fold-lora", base)
    path.write_text(json.dumps(settings))
    refused(64, "holds an adapter alone", target, "--fold-lora")
    refused(64, "there is no adapter in", base, "--fold-lora")
    print("--fold-lora: other kinds of adapters are refused by name")
