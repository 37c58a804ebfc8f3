"""`supervise merge` of checkpoints that are not verl's FSDP shards: Megatron's and torch's own, bit for bit the model they were made of.

usage: merge_formats.py PROGRAMS [--areal DIR] [--mbridge DIR]       (the folder with the built binaries)

merge_formats_writers.py makes them with megatron-core on the CPU. (Transformer Engine's modules cannot be built
there: they are stood in for, under megatron-core's own layers, in merge_formats_readers.py.) Every tensor of `supervise merge --dtype keep` has to be
that of the Hugging Face model it began as, and transformers has to load what is written. The names and shapes that Megatron gives them are those
of supervisor/weights/tests/megatron (UPDATE_GOLDEN=1 writes them). With --areal, a root that areal_sft.py wrote: the checkpoint that
areal goes on from has to become what areal itself exports at that step.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "supervisor/weights/tests/megatron"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gang(script, *arguments):
    command = [HERE / "gang.sh", "2", sys.executable, HERE / script, *arguments]
    done = subprocess.run(
        [str(c) for c in command],
        env={**os.environ, "PORT": str(free_port()), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    said = [line for line in done.stdout.splitlines() if "logits" in line or "loads it" in line]
    assert said, done.stdout[-3000:]
    print("\n".join(said), flush=True)


def merge(source, target, *options):
    return supervise("merge", source, "--target", target, *options)


def supervise(*words):
    return subprocess.run([str(c) for c in [supervise.program, *words, "--json"]], capture_output=True, text=True)


def run(*words):
    done = supervise(*words)
    assert done.returncode == 0, f"{words}: {done.returncode} {done.stderr}"
    return json.loads(done.stdout)


def merged(source, target, *options):
    return run("merge", source, "--target", target, *options)


def equal(made, want, case):
    assert made.keys() == want.keys(), f"{case}: {sorted(made.keys() ^ want.keys())[:6]}"
    odd = [k for k in want if made[k].dtype != want[k].dtype or not torch.equal(made[k], want[k])]
    assert not odd, f"{case}: {odd[:5]} differ"


def loads(directory, reference):
    """transformers builds the model of it without a word of what is missing, and it says the same."""
    from transformers import AutoModelForCausalLM

    tokens = torch.arange(16).reshape(2, 8)
    models = []
    for d in (directory, reference):
        model, info = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], (d, info)
        models.append(model.eval())
    with torch.no_grad():
        a, b = (m(input_ids=tokens).logits for m in models)
    assert torch.equal(a, b), directory


def critic_loads(directory, reference):
    """transformers loads it as verl's FSDP critics are loaded; only the bias, which Megatron's head has not, is new, and it is zero."""
    from transformers import AutoModelForTokenClassification

    model, info = AutoModelForTokenClassification.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    assert set(info["missing_keys"]) <= {"score.bias"} and not info["unexpected_keys"], (directory, info)
    assert model.config.num_labels == 1 and type(model).__name__ == json.loads((directory / "config.json").read_text())["architectures"][0]
    assert torch.equal(model.score.weight, load_file(reference / "model.safetensors")["score.weight"])
    assert model.score.bias is None or not model.score.bias.any(), model.score.bias


def refusals(out, work):
    """What is not clear, or not there, is named and nothing is written."""
    like = out / "hf" / "llama"

    def refused(code, words, source, *options):
        done = merge(source, work / "never", *options)
        assert done.returncode == code and words in done.stderr, (source, done.returncode, done.stderr)
        assert not (work / "never").exists()

    refused(23, "there is no table of Megatron's names for the model type gemma", out / "llama-tp2-stacked", "--like", other(like, work, model_type="gemma"))
    refused(21, "config.json asks for", out / "llama-tp2-stacked", "--like", other(like, work, num_attention_heads=8))
    refused(21, "has the shape", out / "llama-tp2-stacked", "--like", other(like, work, num_hidden_layers=3))
    refused(20, "self_attn.q_proj.bias", out / "llama-tp2-stacked", "--like", other(like, work, attention_bias=True))
    refused(23, "no tensor has a name that begins with net.", out / "flat", "--like", like, "--prefix", "net")
    victim = next((out / "llama-pp2-layers").glob("__1_*.distcp"))
    whole = victim.read_bytes()
    at = len(whole) // 2
    victim.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    refused(21, victim.name, out / "llama-pp2-layers", "--like", like)
    victim.unlink()
    refused(20, victim.name, out / "llama-pp2-layers", "--like", like)
    victim.write_bytes(whole)
    print("refused: an architecture without a table, a configuration that is another model's, a name that is nowhere, a byte that changed")


def other(like, work, **settings):
    """The same directory with another configuration."""
    config = json.loads((like / "config.json").read_text())
    changed = work / f"other-{len(list(work.iterdir()))}"
    changed.mkdir()
    (changed / "config.json").write_text(json.dumps({**config, **settings}))
    (changed / "model.safetensors").symlink_to(like / "model.safetensors")
    return changed


def golden(out, name, cases):
    """The names and shapes of a model as Megatron saves it, and as Hugging Face's libraries do."""
    from torch.distributed.checkpoint import FileSystemReader

    like = out / "hf" / name
    config = json.loads((like / "config.json").read_text())
    del config["transformers_version"]
    lines = ["config " + json.dumps(config, sort_keys=True)]

    def line(kind, key, shape):
        lines.append(" ".join([kind, key, *map(str, shape)]))

    for case in cases:
        found = FileSystemReader(out / f"{name}-{case}").read_metadata().state_dict_metadata
        for key in sorted(found):
            if hasattr(found[key], "size"):
                line(case, key, found[key].size)
    for key, tensor in sorted(load_file(like / "model.safetensors").items()):
        line("model", key, tensor.shape)
    text, path = "\n".join(lines) + "\n", GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path} is not what megatron-core writes: UPDATE_GOLDEN=1 writes it anew, read what changed"


def bridged(hf, mbridge, work):
    """A model that mbridge wrote itself is linked, and is the model; cast and cut it is that, too."""
    for name in ("llama", "qwen2"):
        out, target = work / f"bridged-{name}", work / f"linked-{name}"
        gang("bridge_writers.py", out, hf / name, mbridge)
        step = out / "global_step_1"
        view = merged(step, target, "--like", hf / name)
        assert view["linked"] == 1 and view["bytes_written"] == 0, view
        want = {k: t.to(torch.bfloat16) for k, t in load_file(hf / name / "model.safetensors").items()}
        equal(load_file(target / "model.safetensors"), want, name)
        loads(target, target)
        wide = work / f"wide-{name}"
        view = merged(step, wide, "--dtype", "float32", "--max-shard-size", "4KB")
        assert view["linked"] == 0 and any("float32 is asked for" in note for note in view["notes"]), view
        same = supervise("compare", wide, target, "--as", "bfloat16")
        assert same.returncode == 0, same.stdout
    print("models that mbridge wrote: linked, and every tensor is that of the model")


def areal(root, work):
    """areal's export of the step that its checkpoint holds."""
    [trial] = root.glob("checkpoints/*/real/t0")
    export = max(trial.glob("default/epoch*"), key=lambda p: int(p.name.split("globalstep")[1]))
    view = merged(trial, work / "areal", "--dtype", "keep")
    assert view["step"] == int(export.name.split("globalstep")[1]) + 1, view
    equal(load_file(work / "areal" / "model.safetensors"), load_file(export / "model.safetensors"), "areal")
    loads(work / "areal", export)
    names = [{p.name for p in d.iterdir()} for d in (work / "areal", export)]
    assert names[0] == names[1], names
    print(f"areal: the checkpoint of step {view['step']} is the model that areal exports then, {view['tensors']} tensors")


def converted(hf, work):
    """The way back: what `supervise convert` makes of each model is loaded by megatron-core, and merged it is the model again."""
    (work / "converted").mkdir()
    for like in sorted(d for d in hf.iterdir() if not d.name.endswith("_critic")):
        name = like.name
        stacked = [] if name.startswith(("deepseek", "qwen3_moe")) else ["stacked"]
        for form in [*stacked, "layers", "single"]:
            target, back = work / "converted" / f"{name}-{form}", work / f"back-{name}-{form}"
            # The first is what it does by itself; small pieces, as a large model has many.
            options = [] if form == [*stacked, "layers"][0] else ["--keys", form, "--chunk-size", "500B"]
            view = run("convert", "hf-to-megatron", like, "--target", target, *options)
            assert view["keys"] == form and view["bytes_written"] > 0, view
            merged(target, back, "--dtype", "keep")
            equal(load_file(back / "model.safetensors"), load_file(like / "model.safetensors"), target.name)
    gang("merge_formats_readers.py", hf, work / "converted")
    gang("merge_formats_readers.py", hf, work / "converted", "--engine", work / "engine")
    for saved in sorted((work / "engine").iterdir()):
        like = hf / saved.name.rsplit("-", 1)[0]
        merged(saved, work / f"of-engine-{saved.name}", "--dtype", "keep", "--like", like)
        equal(load_file(work / f"of-engine-{saved.name}" / "model.safetensors"), load_file(like / "model.safetensors"), f"engine {saved.name}")
    print(f"{len(list((work / 'engine').iterdir()))} saves of Transformer Engine's layers, its grouped experts among them: every tensor is that of the model")
    half = work / "half"
    run("convert", "hf-to-megatron", hf / "qwen3", "--target", half, "--dtype", "bfloat16")
    merged(half, work / "half-back", "--dtype", "keep")
    want = {k: t.to(torch.bfloat16) for k, t in load_file(hf / "qwen3" / "model.safetensors").items()}
    equal(load_file(work / "half-back" / "model.safetensors"), want, "bfloat16")
    print("converted: each is the model again when it is merged, as bfloat16 too")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--areal", type=Path, help="only this: a root that areal_sft.py wrote, with an export of its last step")
    parser.add_argument("--mbridge", type=Path, help="made by install_mbridge.sh: models that it writes are merged too")
    args = parser.parse_args()
    supervise.program = args.programs / "supervise"
    transformers.utils.logging.disable_progress_bar()
    if args.areal:
        with tempfile.TemporaryDirectory() as work:
            return areal(args.areal, Path(work))
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        out = work / "out"
        out.mkdir()
        gang("merge_formats_writers.py", out)
        seen = {}
        for source in sorted(p for p in out.iterdir() if p.name not in ("hf", "fsdp2", "flat", "trainer")):
            name = source.name.split("-")[0]
            like, target = out / "hf" / name, work / source.name
            view = merged(source, target, "--dtype", "keep", "--like", like)
            equal(load_file(target / "model.safetensors"), load_file(like / "model.safetensors"), source.name)
            assert view["bytes_checked"] > 0, view
            # transformers leaves the layers that predict further tokens out.
            if name.endswith("_critic"):
                critic_loads(target, like)
            elif name not in seen and not name.endswith("_mtp"):
                loads(target, like)
            seen.setdefault(name, []).append(source.name.removeprefix(f"{name}-"))
        for name, cases in seen.items():
            if not name.endswith("_critic"):
                golden(out, name, cases)
            print(f"{name}: {', '.join(cases)}: every tensor is that of the model it was made of")
        like = out / "hf" / "llama"
        for source in ("fsdp2", "flat"):
            merged(out / source, work / source, "--dtype", "keep", "--like", like)
            equal(load_file(work / source / "model.safetensors"), load_file(like / "model.safetensors"), source)
        sharded = out / "trainer" / "checkpoint-2"
        (sharded / "trainer_state.json").write_text("{}")
        (sharded / "config.json").write_text((like / "config.json").read_text())
        merged(sharded, work / "sharded", "--dtype", "keep")
        equal(load_file(work / "sharded" / "model.safetensors"), load_file(like / "model.safetensors"), "trainer")
        merged(out / "fsdp2", work / "named", "--dtype", "keep", "--like", like, "--prefix", "model")
        print("torch.distributed.checkpoint: of FSDP2, beside an optimizer and alone, and by accelerate")
        # A critic's head is another than that of the model that it began as, and nothing else.
        merged(out / "llama_critic-tp2-stacked", work / "critic-like", "--like", like)
        refusals(out, work)
        if args.mbridge:
            bridged(out / "hf", args.mbridge, work)
        converted(out / "hf", work)


if __name__ == "__main__":
    main()
