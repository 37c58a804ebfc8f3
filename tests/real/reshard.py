"""`supervise reshard` (FSDP2), and `supervise run` with `elastic: true` (FSDP1), with verl's own SFT trainer: 4 ranks, then 2, then 4 again, and 1; what
is trained is what four ranks train in one go.

usage: reshard.py PROGRAMS        (the folder with the built binaries)
"""

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from recovery import ENV, YAML

warnings.simplefilter("ignore")
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)

HERE = Path(__file__).resolve().parent
SUPERVISE = Path(sys.argv[1]) / "supervise"
VENV = Path(sys.executable).parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(work, model, out, ranks, *more):
    """The trainer's own run; gives its losses by step."""
    log = work / f"log_{out.name}_{ranks}"
    env = {**os.environ, "RANKS": str(ranks), "PORT": str(free_port()), "LOG_DIR": str(log), "PYTHONWARNINGS": "ignore"}
    command = [HERE / "sft.sh", VENV, model, out, "trainer.total_training_steps=6", *more]
    done = subprocess.run([str(c) for c in command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
    text = "".join(p.read_text(errors="replace") for p in sorted(log.glob("rank_0.*")))
    assert done.returncode == 0, text[-3000:]
    found = re.findall(r"step:(\d+) .*?train/loss:(?:np\.float\w+\()?([-\d.e]+)", text)
    return {int(step): float(loss) for step, loss in found}


def reshard(source, world, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [SUPERVISE, "reshard", source, "--world-size", str(world), "--target", target, "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    view = json.loads(done.stdout)
    verified = subprocess.run([SUPERVISE, "verify", target, "--depth", "full"], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout
    return view


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for n, item in enumerate(value):
            yield from leaves(item, f"{path}[{n}]")
    else:
        yield path, value


def gathered(step, kind):
    """Every value of a step's shards: tensors put together by torch, in the order of the ranks."""
    paths = sorted(step.glob(f"**/{kind}_world_size_*_rank_*.pt"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    states = [dict(leaves(torch.load(p, weights_only=False))) for p in paths]
    out = {}
    for name, first in states[0].items():
        if hasattr(first, "_local_tensor"):
            (placement,) = first.placements
            assert first.device_mesh.mesh.tolist() == list(range(len(states))), name
            parts = [s[name]._local_tensor for s in states]
            out[name] = torch.cat([p for p in parts if p.numel()], dim=placement.dim)
            assert out[name].shape == first.shape, name
            # As torch itself would cut it.
            for part, own in zip(torch.chunk(out[name], len(states), placement.dim), parts):
                assert part.shape == own.shape and own.is_contiguous(), name
        elif kind == "optim" and isinstance(first, torch.Tensor) and first.ndim == 1:
            # A flat parameter of FSDP1, filled up with zeros.
            out[name] = torch.cat([s[name] for s in states])
            filled = out[name].nonzero().max() + 1
            assert out[name].numel() - filled < 8, name
            out[name] = out[name][:filled]
        else:
            out[name] = first
    return out


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        equal = torch.equal(a[name], b[name]) if isinstance(a[name], torch.Tensor) else a[name] == b[name]
        assert equal, name
    return len(a)


def nothing_is_lost(source, target, back):
    """Model and optimizer, gathered before and after, and cut back."""
    view = reshard(source, 2, target)
    world = view["world_size_before"]
    reshard(target, world, back)
    for kind in ("model", "optim"):
        before = gathered(source, kind)
        for step in (target, back):
            count = same(before, gathered(step, kind))
        print(f"{kind}: {count} values of {world} ranks are those of 2 and of {world} again")


def end_all(mark):
    """SIGKILL for every process of a run, its supervisor first: as if the machine had gone."""
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"ELASTIC_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        found = [pid for pid in sorted(found) if pid != os.getpid()]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)


def elastic(work, model, straight):
    """The same by `supervise run` alone, with FSDP1: killed with four ranks, gone on with two, killed, gone on with four."""
    root, folder = work / "elastic/checkpoints", work / "elastic"
    root.mkdir(parents=True)
    config = folder / "sft.yaml"
    config.write_text(YAML.format(model=model, root=root).replace("total_epochs: 1", "total_epochs: 2\n  total_training_steps: 6"))
    env = {**ENV, "ELASTIC_MARK": str(folder), "PYTHONWARNINGS": "ignore"}

    def command(ranks, *more):
        sets = [word for key in (f"trainer.n_gpus_per_node={ranks}", *more) for word in ("--set", key)]
        call = [sys.executable, "-m", "verl.trainer.sft_trainer", f"hydra.run.dir={folder}/hydra", "engine.strategy=fsdp"]
        return [str(w) for w in (SUPERVISE, "run", config, *sets, "--", *call)]

    tracker = root / "latest_checkpointed_iteration.txt"

    def tracked():
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def until(step, ranks, *more):
        """Killed once a step is saved; gives the newest then, which may be one more."""
        run = subprocess.Popen(command(ranks, *more), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.time() + 600
        while tracked() < step:
            assert run.poll() is None and time.time() < limit, run.returncode
            time.sleep(0.05)
        end_all(folder)
        run.wait()
        return tracked() or step

    def asked(code, ranks, *more):
        done = subprocess.run(command(ranks, *more), env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, f"{done.returncode}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def resharded(ranks_before, ranks):
        """The newest step aside and the one that was cut from it hold the same; its number."""
        kept = max((p for p in (root / ".supervise/aside").glob("global_step_*") if p.is_dir()), key=lambda p: p.stat().st_ctime)
        step = root / kept.name.split(".")[0]
        for kind in ("model", "optim"):
            assert len(list(kept.glob(f"{kind}_world_size_{ranks_before}_rank_*.pt"))) == ranks_before, kept
            assert len(list(step.glob(f"{kind}_world_size_{ranks}_rank_*.pt"))) == ranks, step
            same(gathered(kept, kind), gathered(step, kind))
        return int(step.name.rsplit("_", 1)[1])

    newest = until(2, 4)
    said = asked(3, 2)
    assert "supervise reshard" in said and "supervisor.elastic: true" in said, said
    said = asked(3, 2, "supervisor.elastic=true", "data.train_batch_size=17")
    assert "data.train_batch_size=17 is no multiple of 2: data.train_batch_size=18" in said, said
    until(newest + 1, 2, "supervisor.elastic=true")
    first = resharded(4, 2)
    assert first in (newest, newest - 1), (first, newest)
    said = asked(0, 4, "supervisor.elastic=true")
    assert "from 2 ranks to 4" in said, said
    second = resharded(2, 4)
    losses = {}
    for path in sorted((root / ".supervise/attempts").glob("*/**/*")):
        if path.is_file():
            found = re.findall(r"step:(\d+) .*?train/loss:(?:np\.float\w+\()?([-\d.e]+)", path.read_text(errors="replace"))
            losses |= {int(step): float(loss) for step, loss in found}
    assert sorted(losses) == [1, 2, 3, 4, 5, 6], losses
    for step, loss in losses.items():
        assert abs(loss - straight[step]) < 5e-3 * abs(straight[step]), (step, loss, straight[step])
    journal = "".join(p.read_text() for p in sorted((root / ".supervise/journal").glob("*.jsonl")))
    assert journal.count('"resharded"') == 2, journal.count('"resharded"')
    print(f"supervise run: four ranks killed, step {first} cut for two, killed, step {second} cut for four; losses", losses)
    return root


def shared_storage(source, work):
    """Tensors that are views of one storage stay what they are."""
    odd, target = work / "views/global_step_2", work / "views-3/global_step_2"
    odd.parent.mkdir()
    subprocess.run(["cp", "-r", source, odd], check=True)
    base = torch.arange(12.0).reshape(3, 4)
    views = {"buf": base, "row": base[0], "turned": base.t(), "flat": base.view(-1), "end": base[2:]}
    for path in odd.glob("model_world_size_*.pt"):
        torch.save({**torch.load(path, weights_only=False), **views}, path)
    reshard(odd, 1, target)
    made = gathered(target, "model")
    for name, view in views.items():
        assert torch.equal(made["." + name], view), name
    print("views of one storage are what they were")


def manager(world, root, model, *more):
    """verl's own manager beside a training of torch's; gives the losses that it prints by step."""
    command = [HERE / "gang.sh", str(world), sys.executable, HERE / "verl_fsdp_manager.py", root, model, *more]
    env = {**os.environ, "PORT": str(free_port()), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", done.stdout)}


def refused(source, world, work, words):
    command = [SUPERVISE, "reshard", source, "--world-size", str(world), "--target", work / "never"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 23 and words in done.stderr, done
    assert not (work / "never").exists()


def uneven(work, model):
    """The layout of PPO by verl's own manager, for a world that divides nothing."""
    root = work / "fsdp2"
    manager(2, root, model, "--steps", "1")
    source, target = root / "global_step_1", work / "fsdp2-3" / "global_step_1"
    reshard(source, 3, target)
    print("fsdp2:", [same(gathered(source, kind), gathered(target, kind)) for kind in ("model", "optim")], "values, cut for three ranks")


def first_fsdp(work, model):
    """FSDP1, whose optimizer is kept in pieces of flat parameters: what it puts together itself stays the same."""
    tied = work / "tied"
    subprocess.run(["cp", "-r", model, tied], check=True)
    config = tied / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    # transformers 5 ties nothing where both are there.
    tensors = load_file(tied / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tied / "model.safetensors", {"format": "pt"})
    for name, of, worlds in (("fsdp1", model, (5, 2)), ("fsdp1-tied", tied, (3,))):
        root, whole = work / name, work / f"{name}.pt"
        losses = manager(2, root, of, "--steps", "1", "--strategy", "fsdp_mesh", "--gather", whole)
        straight = manager(2, work / f"{name}-straight", of, "--steps", "3", "--strategy", "fsdp_mesh")
        before = dict(leaves(torch.load(whole, weights_only=False)))
        source = root / "global_step_1"
        for world in worlds:
            target = work / f"{name}-{world}" / "global_step_1"
            reshard(source, world, target)
            losses |= manager(world, target.parent, of, "--steps", "3", "--strategy", "fsdp_mesh", "--resume", target, "--gather", whole)
            count = same(before, dict(leaves(torch.load(whole, weights_only=False))))
            for step, loss in losses.items():
                assert abs(loss - straight[step]) < 1e-3, (losses, straight)
            source = target
        print(f"{name}: {count} values of model and optimizer are the same with 2 ranks and then {worlds}; losses {losses}")
    refused(source, 1, work, "FSDP1 saved it")
    manager(2, work / "older", model, "--steps", "1", "--strategy", "fsdp")
    refused(work / "older/global_step_1", 3, work, "ShardedTensor")


def is_close(one, other):
    done = subprocess.run([SUPERVISE, "compare", one, other, "--tolerance", "1e-4", "--json"], capture_output=True, text=True)
    found = json.loads(done.stdout)["differences"]
    assert all("different" in d for d in found), found
    # Where a gradient is rounding alone, Adam makes it as large as any: all of a key's bias, which changes no attention, and a few
    # values elsewhere, more of them the earlier the ranks changed. An optimizer that was lost moves most values.
    odd = [d for d in found if not d["name"].endswith("k_proj.bias")]
    assert sum(d["different"] for d in odd) < 100, odd


def main():
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        model = work / "model"
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        straight = train(work, model, work / "straight", 4)
        assert sorted(straight) == [1, 2, 3, 4, 5, 6], straight
        nothing_is_lost(work / "straight/global_step_2", work / "two/global_step_2", work / "back/global_step_2")

        def resume(root, step):
            return "trainer.resume_mode=resume_path", f"trainer.resume_from_path={root / f'global_step_{step}'}"

        two = train(work, model, work / "two", 2, *resume(work / "two", 2))
        assert sorted(two) == [3, 4, 5, 6], two
        reshard(work / "two/global_step_4", 4, work / "four/global_step_4")
        four = train(work, model, work / "four", 4, *resume(work / "four", 4))
        assert sorted(four) == [5, 6], four
        reshard(work / "straight/global_step_4", 1, work / "one/global_step_4")
        one = train(work, model, work / "one", 1, *resume(work / "one", 4))
        assert sorted(one) == [5, 6], one
        for step, loss in [*two.items(), *four.items(), *one.items()]:
            assert abs(loss - straight[step]) < 5e-3 * abs(straight[step]), (step, loss, straight[step])
        print("losses of one go:      ", {s: round(x, 5) for s, x in straight.items()})
        print("of two ranks from 3 on:", {s: round(x, 5) for s, x in two.items()})
        print("of four from 5 on:     ", {s: round(x, 5) for s, x in four.items()})
        print("of one from 5 on:      ", {s: round(x, 5) for s, x in one.items()})
        is_close(work / "straight/global_step_6", work / "four/global_step_6")
        is_close(work / "straight/global_step_6", elastic(work, model, straight) / "global_step_6")
        shared_storage(work / "straight/global_step_2", work)
        uneven(work, model)
        first_fsdp(work, model)


if __name__ == "__main__":
    main()
