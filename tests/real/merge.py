"""`supervise merge` against verl.model_merger: every file, every name, every bit; and transformers loads what comes out.

usage: merge.py PROGRAMS        (the folder with the built binaries)
"""

import contextlib
import copy
import io
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import merge_lora
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)

HERE = Path(__file__).resolve().parent
SUPERVISE = Path(sys.argv[1]) / "supervise"


def gang(world, out, model, port):
    command = [HERE / "gang.sh", str(world), sys.executable, HERE / "merge_writers.py", out, model]
    done = subprocess.run(
        [str(c) for c in command],
        env={**os.environ, "PORT": str(port), "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def verl_merges(source, target):
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    target.mkdir()
    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(source),
        target_dir=str(target),
        hf_model_config_path=str(source / "huggingface"),
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        FSDPModelMerger(config).merge_and_save()


def we_merge(source, target, *options):
    done = subprocess.run(
        [SUPERVISE, "merge", source, "--target", target, "--json", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{source}: {done.returncode} {done.stderr}"
    return json.loads(done.stdout)


def tensors(directory):
    out = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as f:
            for key in f.keys():
                assert key not in out, key
                out[key] = f.get_tensor(key)
    return out


def files(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def equal(ours, theirs):
    a, b = tensors(ours), tensors(theirs)
    assert a.keys() == b.keys(), f"{ours}: {sorted(a.keys() ^ b.keys())[:5]}"
    odd = [key for key in a if not same_bits(a[key], b[key])]
    assert not odd, f"{ours}: {odd[:5]} differ"
    return len(a)


def logits(directory, critic):
    kind = AutoModelForTokenClassification if critic else AutoModelForCausalLM
    model = kind.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=torch.arange(24).reshape(2, 12)).logits


def compare(case, source, work):
    theirs, ours = work / "verl" / case, work / "ours" / case
    verl_merges(source, theirs)
    view = we_merge(source, ours)
    count = equal(ours, theirs)
    assert files(ours) == files(theirs), f"{case}: {set(files(ours)) ^ set(files(theirs))}"
    # One file: not only the tensors, every byte of it.
    a, b = (d / "model.safetensors" for d in (ours, theirs))
    assert a.read_bytes() == b.read_bytes(), f"{case}: {a} and {b} differ"
    assert view["bytes_checked"] > 0 and view["tensors"] == count
    # The tokenizer is copied; verl saves it anew, which adds words about how it was loaded.
    for name in ("config.json", "generation_config.json"):
        if (ours / name).exists():
            a, b = (json.loads((d / name).read_text()) for d in (ours, theirs))
            different = {k: (a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)}
            assert not different, f"{case}/{name}: {different}"
    if (ours / "lora_adapter").is_dir():
        equal(ours / "lora_adapter", theirs / "lora_adapter")
        a, b = (json.loads((d / "lora_adapter/adapter_config.json").read_text()) for d in (ours, theirs))
        for key in a:
            x, y = (sorted(v[key]) if key == "target_modules" else v[key] for v in (a, b))
            assert x == y, f"{case}/adapter_config.json: {key} is {x}, verl says {y}"
        peft_loads(ours)
    critic = case.startswith("critic")
    assert torch.equal(logits(ours, critic), logits(theirs, critic)), case
    print(f"{case}: {count} tensors, bit for bit those of verl.model_merger")


def peft_loads(directory):
    from peft import PeftModel

    base = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    PeftModel.from_pretrained(base, directory / "lora_adapter")


def compares(a, b, *options):
    done = subprocess.run([SUPERVISE, "compare", a, b, "--json", *options], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    view = json.loads(done.stdout)
    assert view["equal"] == (done.returncode == 0)
    return view


def worlds_compared(shards, work):
    """The same weights in 1, 2 and 4 ranks and merged are one model; a number that was changed is found where it is."""
    for case in ("qwen2", "qwen3_moe", "lora", "critic"):
        for other in (shards / f"{case}-w1", shards / f"{case}-w4"):
            view = compares(shards / f"{case}-w2", other)
            assert view["equal"], f"{other}: {view['differences'][:3]}"
    assert compares(shards / "qwen2-w2", work / "ours" / "qwen2-w4", "--as", "bfloat16")["equal"]
    assert not compares(shards / "qwen2-w2", shards / "llama-w2")["equal"]
    changed = work / "changed"
    subprocess.run(["cp", "-r", shards / "qwen2-w2", changed], check=True)
    path = changed / "model_world_size_2_rank_1.pt"
    state = torch.load(path, weights_only=False)
    name = "model.layers.1.mlp.up_proj.weight"
    local = state[name]._local_tensor
    local[3, 5] += 0.25
    torch.save(state, path)
    (one,) = compares(shards / "qwen2-w2", changed)["differences"]
    rows = torch.load(changed / "model_world_size_2_rank_0.pt", weights_only=False)[name]._local_tensor.shape[0]
    assert (one["name"], one["first_at"], one["different"]) == (name, [rows + 3, 5], 1), one
    assert abs(one["max_absolute"] - 0.25) < 1e-6, one
    # As verl's own test of a merge.
    done = subprocess.run([SUPERVISE, "merge", changed, "--test", work / "ours" / "qwen2-w2"], capture_output=True)
    assert done.returncode == 1, done
    print("compare: one model in every world; a changed number is found by name and place")


def critic_that_began_as_a_model(shards, work):
    """As verl's engine makes one: transformers leaves the base's class in config.json, and a reader of that would make up a head of words."""
    base = work / "base"
    we_merge(shards / "qwen2-w2", base)
    for world in (1, 2, 4):
        target = work / f"begun-w{world}"
        view = we_merge(shards / f"begun-w{world}", target, "--like", base)
        assert any("began as Qwen2ForCausalLM" in note for note in view["notes"]), view
        assert equal(target, work / "ours" / f"critic-w{world}") and torch.equal(logits(target, True), logits(work / "ours" / f"critic-w{world}", True))
        model, info = AutoModelForTokenClassification.from_pretrained(target, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and model.config.num_labels == 1, info
    done = subprocess.run([SUPERVISE, "merge", shards / "begun-w2", "--target", work / "never", "--like", work / "ours/llama-w2"], capture_output=True, text=True)
    assert done.returncode == 21 and "self_attn.q_proj.bias" in done.stderr and "score" not in done.stderr, done
    print("a critic that began as a model: its head alone is another, and config.json says so")


def several_files(source, work):
    """A model in several files has an index that transformers follows."""
    whole, parts = work / "whole", work / "parts"
    we_merge(source, whole, "--dtype", "keep")
    view = we_merge(source, parts, "--dtype", "keep", "--max-shard-size", "100KB")
    assert equal(parts, whole) > 0
    index = json.loads((parts / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == sorted(p.name for p in parts.glob("*.safetensors"))
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors(parts).values())
    assert torch.equal(logits(parts, False), logits(whole, False))
    assert AutoConfig.from_pretrained(parts).dtype == torch.float32
    print(f"several files: {len(view['files'])}, float32 is kept")


def casts(source, work):
    """Every type as torch casts it."""
    whole = tensors(work / "whole")
    for name in ("float16", "bfloat16", "float32"):
        target = work / name
        we_merge(source, target, "--dtype", name)
        made = tensors(target)
        odd = [k for k in whole if not same_bits(made[k], whole[k].to(getattr(torch, name)))]
        assert not odd, f"{name}: {odd[:5]}"
    print("types: float16, bfloat16 and float32 as torch casts them")


def adapter_alone(source, work):
    """`save_lora_only`: the adapter is all there is."""
    only, target = work / "only", work / "only-out"
    subprocess.run(["cp", "-r", source, only], check=True)
    for path in only.glob("model_world_size_*.pt"):
        state = torch.load(path, weights_only=False)
        torch.save({k: v for k, v in state.items() if "lora_" in k}, path)
    view = we_merge(only, target)
    assert view["tensors"] == 0 and not list(target.glob("*.safetensors")), view
    assert equal(target / "lora_adapter", work / "ours" / source.name / "lora_adapter") > 0
    print("an adapter alone: written without a model")


def changed(source, target, change):
    """A copy of a role whose ranks' values were changed."""
    subprocess.run(["cp", "-r", source, target], check=True)
    for path in target.glob("model_world_size_*.pt"):
        state = torch.load(path, weights_only=False)
        change(state)
        torch.save(state, path)
    return target


def what_no_reader_could_load(shards, work):
    """A model that lacks something, or whose adapter is of another kind, is refused; words of torch in names are taken out."""
    query, head = "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"

    def renamed(old, new):
        return lambda s: s.update({new: s.pop(old)})

    def scaled(state):
        # Both names may be one tensor.
        state[head] = copy.copy(state[head])
        state[head]._local_tensor = state[head]._local_tensor * 2

    down = "base_model.model.model.layers.0.mlp.down_proj."
    cases = [
        ("no-head", "qwen2-w2", lambda s: s.pop(head), 21, "lm_head.weight is missing"),
        ("no-query", "qwen2-w2", lambda s: s.pop(query), 21, "layer 1 has no self_attn.q_proj.weight"),
        ("untied", "tied-w2", scaled, 21, "their numbers differ"),
        ("dora", "lora-w2", renamed(down + "lora_A.default.weight", down + "lora_magnitude_vector.default.weight"), 23, "only plain adapters"),
        ("second", "lora-w2", renamed(down + "lora_A.default.weight", down + "lora_A.second.weight"), 23, "only plain adapters"),
        ("endless", "qwen2-w2", lambda s: s.update(endless=torch.ones(1).expand(2**40)), 23, "a view that repeats some"),
        ("saved", "lora-w2", renamed("base_model.model.lm_head.weight", "base_model.model.lm_head.modules_to_save.default.weight"), 23, "modules_to_save"),
    ]
    for name, case, change, code, words in cases:
        source = changed(shards / case, work / f"odd-{name}", change)
        done = subprocess.run([SUPERVISE, "merge", source, "--target", work / "never"], capture_output=True, text=True)
        assert done.returncode == code and words in done.stderr, f"{name}: {done}"
        assert not (work / "never").exists()
    # What is left out of a merge is not left out of a comparison.
    assert not compares(shards / "tied-w2", work / "odd-untied")["equal"]
    assert compares(shards / "tied-w2", work / "ours" / "tied-w2", "--as", "bfloat16")["equal"]
    assert compares(shards / "lora-w2", work / "ours" / "lora-w2", "--as", "bfloat16")["equal"]

    def compiled(state):
        for key in [k for k in state if k.startswith("model.layers.0.")]:
            state[key.replace("layers.0.", "layers.0._orig_mod.")] = state.pop(key)

    we_merge(changed(shards / "qwen2-w2", work / "compiled", compiled), work / "compiled-out")
    equal(work / "compiled-out", work / "ours" / "qwen2-w2")
    print(f"{len(cases)} models that no reader could load are refused")


def other_placements(work):
    """As torch's own modules leave them: FSDP2 over tensor parallelism interleaves, and sums may not be added up yet."""
    out = work / "placements"
    command = [HERE / "gang.sh", "4", sys.executable, HERE / "placement_writers.py", out]
    subprocess.run([str(c) for c in command], env={**os.environ, "PORT": str(free_port()), "PYTHONWARNINGS": "ignore"}, check=True, timeout=600)
    for role, word in (("strided", "_StridedShard(0), Shard(0)"), ("strided-alone", "_StridedShard(0)"), ("partial", "Partial")):
        done = subprocess.run([SUPERVISE, "merge", out / role, "--target", work / "never", "--keep-names"], capture_output=True, text=True)
        assert done.returncode == 23 and word in done.stderr and "model.embed_tokens.weight" in done.stderr, done
        assert not (work / "never").exists()
    print("parts that do not lie one behind the other are refused by name")


def mixed_keys(source, work):
    """Plain tensors beside cut ones: verl reads rank 0 alone where the first name is a plain one."""
    mixed = work / "mixed"
    subprocess.run(["cp", "-r", source, mixed], check=True)
    for path in mixed.glob("model_world_size_*.pt"):
        state = torch.load(path, weights_only=False)
        state = {"a_buffer": torch.arange(5.0), **state}
        torch.save(state, path)
    we_merge(mixed, work / "mixed-out", "--dtype", "keep", "--keep-names")
    made, whole = tensors(work / "mixed-out"), tensors(work / "whole")
    assert torch.equal(made.pop("a_buffer"), torch.arange(5.0))
    assert made.keys() == whole.keys() and all(same_bits(made[k], whole[k]) for k in whole)
    first = sorted(mixed.glob("model_world_size_*.pt"))[1]
    state = torch.load(first, weights_only=False)
    state["a_buffer"] += 1
    torch.save(state, first)
    done = subprocess.run(
        [SUPERVISE, "merge", mixed, "--target", work / "never", "--keep-names"], capture_output=True, text=True
    )
    assert done.returncode == 21 and "every rank should hold the same" in done.stderr, done
    assert not (work / "never").exists()
    print("mixed keys: a plain tensor is taken once, and refused where ranks disagree")


def replicas(source, work):
    """A hybrid mesh holds each part twice: the second one is compared where that is asked for."""
    view = we_merge(source, work / "replicas", "--check-replicas")
    assert equal(work / "replicas", work / "ours" / source.name) and not any("replica" in n for n in view["notes"]), view
    assert view["bytes_checked"] > we_merge(source, work / "one-replica")["bytes_checked"], view
    odd = work / "odd-replica"
    subprocess.run(["cp", "-r", source, odd], check=True)
    path = odd / "model_world_size_4_rank_3.pt"
    state = torch.load(path, weights_only=False)
    name = "model.layers.1.mlp.up_proj.weight"
    state[name]._local_tensor[0, 0] += 1
    torch.save(state, path)
    assert compares(source, odd)["equal"]
    for command in (["merge", odd, "--target", work / "never"], ["compare", source, odd]):
        done = subprocess.run([SUPERVISE, *command, "--check-replicas"], capture_output=True, text=True)
        words = f"{name} is not what the first rank holds"
        assert done.returncode == 21 and words in done.stderr, done
    assert not (work / "never").exists()
    print("replicas: compared when it is asked for, and one that differs is refused")


def main():
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        model, shards = work / "model", work / "shards"
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", model, "--rows", "8"], check=True, stdout=subprocess.DEVNULL)
        for world in (1, 2, 4):
            gang(world, shards, model, free_port())
        for name in ("verl", "ours"):
            (work / name).mkdir()
        for source in sorted(shards.iterdir()):
            if not source.name.startswith("begun"):
                compare(source.name, source, work)
        critic_that_began_as_a_model(shards, work)
        several_files(shards / "qwen2-w4", work)
        casts(shards / "qwen2-w2", work)
        worlds_compared(shards, work)
        adapter_alone(shards / "lora-w2", work)
        what_no_reader_could_load(shards, work)
        mixed_keys(shards / "qwen2-w2", work)
        other_placements(work)
        replicas(shards / "hybrid-w4", work)

        def refused(code, words, source, *options):
            done = subprocess.run([SUPERVISE, "merge", source, "--target", work / "never", *options], capture_output=True, text=True)
            assert done.returncode == code and words in done.stderr, f"{words}: {done}"
            assert not (work / "never").exists()

        merge_lora.check(we_merge, refused, work / "whole", shards / "lora-w2", work)


if __name__ == "__main__":
    main()
