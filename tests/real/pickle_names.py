"""Prints every name that the pickles of real trainers hold, with what is done with it, and checks that `supervise verify` knows them all.

usage: pickle_names.py PROGRAMS [--also PATH]... [--show]      (PROGRAMS: the folder with the built `supervise`)

torch, numpy, transformers, accelerate, peft, torchdata, megatron-core, omegaconf and, where it is installed, DeepSpeed save what they save
in a run: state dicts, optimizers, schedules, random states, arguments, configurations, places in the data. Each pickle is read by a machine
that calls nothing and notes each call, its arguments' kinds, and each state. The list of what a checkpoint may name and call
(supervisor/checkpoint/src/pickle/danger/known.rs) is made from that; a file that `verify` does not call whole ends this with 1.
--also adds checkpoints that are there already, such as those of make_checkpoints.py; of them only what is called unsafe counts.
"""

import argparse
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import importlib
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import tempfile
import types
import uuid
import warnings
import zipfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402


class Name:
    """An imported name, not imported."""

    def __init__(self, module, name):
        self.path = (module, name)

    def __hash__(self):
        return hash(self.path)

    def __eq__(self, other):
        return isinstance(other, Name) and self.path == other.path


class Made:
    """What a call would have given."""

    def __init__(self, kind):
        self.kind = kind


def kind(value, depth=0):
    """A value in a word or two."""
    if isinstance(value, Name):
        return "<" + ".".join(value.path) + ">"
    if isinstance(value, Made):
        return value.kind
    if isinstance(value, tuple):
        return "(" + ", ".join(kind(x, depth + 1) for x in value[:12]) + ")" if depth < 3 else "tuple"
    if isinstance(value, dict):
        return "{" + ", ".join(sorted({kind(k, 9) + ": " + kind(v, 9) for k, v in value.items()})) + "}"
    if isinstance(value, (list, set, frozenset)):
        return type(value).__name__ + "[" + ", ".join(sorted({kind(x, 9) for x in value})) + "]"
    return type(value).__name__


SEEN = collections.defaultdict(set)


class Reader(pickle._Unpickler):
    """Reads a pickle without importing or calling anything."""

    dispatch = dict(pickle._Unpickler.dispatch)
    source = ""

    def note(self, *what):
        SEEN[" ".join(what)[:400]].add(self.source)

    def find_class(self, module, name):
        return Name(module, name)

    def persistent_load(self, reference):
        self.note("storage", kind(reference))
        return Made("storage")

    def call(self, how, callee, *given):
        self.note(how, kind(callee), *map(kind, given))
        name = callee.path[1] if isinstance(callee, Name) else kind(callee)
        if name == "getattr":
            owner, attribute = given[0]
            return Name(owner.path[0], f"{owner.path[1]}.{attribute}")
        return Made(f"@{name}")

    def load_reduce(self):
        given = self.stack.pop()
        self.stack[-1] = self.call("call", self.stack[-1], given)

    def load_newobj(self):
        given = self.stack.pop()
        self.stack[-1] = self.call("new", self.stack[-1], given)

    def load_newobj_ex(self):
        words, given = self.stack.pop(), self.stack.pop()
        self.stack[-1] = self.call("new", self.stack[-1], given, words)

    def load_build(self):
        state = self.stack.pop()
        self.note("state", kind(self.stack[-1]), kind(state))

    def set_items(self, items):
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2]):
            if isinstance(target, dict):
                target[key] = value
            else:
                self.note("item", kind(target), kind(key), kind(value, 9))

    def load_setitem(self):
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def load_setitems(self):
        self.set_items(self.pop_mark())

    def add(self, items):
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        else:
            self.note("append", kind(target))

    def load_append(self):
        self.add([self.stack.pop()])

    def load_appends(self):
        self.add(self.pop_mark())

    for code, method in (
        (pickle.REDUCE, load_reduce), (pickle.NEWOBJ, load_newobj), (pickle.NEWOBJ_EX, load_newobj_ex), (pickle.BUILD, load_build),
        (pickle.SETITEM, load_setitem), (pickle.SETITEMS, load_setitems), (pickle.APPEND, load_append), (pickle.APPENDS, load_appends),
    ):  # fmt: skip
        dispatch[code[0]] = method


def pickles(data):
    """The pickles in a file: of an archive its data.pkl, of several archives behind each other each one's."""
    if not data.startswith(b"PK"):
        return [data]
    found, begin = [], 0
    for end in re.finditer(rb"PK\x05\x06.{18}", data, re.DOTALL):
        with zipfile.ZipFile(io.BytesIO(data[begin : end.end()])) as archive:
            found += [archive.open(e).read() for e in archive.infolist() if e.filename.endswith("/data.pkl")]
        begin = end.end()
    return found


def read(path, source):
    for data in pickles(path.read_bytes()):
        reader = Reader(io.BytesIO(data))
        reader.source = source
        reader.load()


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.two(self.one(x))


def optimizers():
    """The state of each of torch's optimizers after two steps."""
    out = {}
    for name in sorted(dir(torch.optim)):
        made = getattr(torch.optim, name)
        if not isinstance(made, type) or name in ("Optimizer", "SparseAdam"):
            continue
        model = Pair()
        weights = [p for p in model.parameters() if name != "Muon" or p.ndim == 2]
        optimizer = made(weights, lr=0.1)
        for _ in range(2):
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step(lambda loss=loss: loss)
        out[name] = optimizer.state_dict()
    return out


def schedules():
    """The state of each of torch's and transformers' schedules."""
    import transformers

    optimizer = torch.optim.SGD(Pair().parameters(), lr=0.1, momentum=0.9)
    s = torch.optim.lr_scheduler
    made = {
        "LambdaLR": s.LambdaLR(optimizer, lambda n: 1.0), "StepLR": s.StepLR(optimizer, 2), "MultiStepLR": s.MultiStepLR(optimizer, [2, 4]),
        "ConstantLR": s.ConstantLR(optimizer), "LinearLR": s.LinearLR(optimizer), "ExponentialLR": s.ExponentialLR(optimizer, 0.9),
        "PolynomialLR": s.PolynomialLR(optimizer), "CosineAnnealingLR": s.CosineAnnealingLR(optimizer, 10),
        "CosineAnnealingWarmRestarts": s.CosineAnnealingWarmRestarts(optimizer, 10), "CyclicLR": s.CyclicLR(optimizer, 0.01, 0.1),
        "OneCycleLR": s.OneCycleLR(optimizer, 0.1, total_steps=10), "ReduceLROnPlateau": s.ReduceLROnPlateau(optimizer),
        "SequentialLR": s.SequentialLR(optimizer, [s.ConstantLR(optimizer), s.LinearLR(optimizer)], [2]),
        "ChainedScheduler": s.ChainedScheduler([s.ConstantLR(optimizer), s.LinearLR(optimizer)]),
        "MultiplicativeLR": s.MultiplicativeLR(optimizer, lambda n: 1.0),
    }  # fmt: skip
    for name in ("linear", "cosine", "constant_with_warmup", "inverse_sqrt"):
        made[name] = transformers.get_scheduler(name, optimizer, num_warmup_steps=2, num_training_steps=10)
    return {name: one.state_dict() for name, one in made.items()}


def plain():
    """Plain Python, as arguments and counters are."""
    default = {made.__name__: collections.defaultdict(made) for made in (list, dict, int, float, set, str, collections.OrderedDict)}
    return {
        "when": [datetime.datetime.now(datetime.timezone.utc), datetime.date(2026, 1, 2), datetime.timedelta(1), datetime.time(1, 2)],
        "paths": [pathlib.PosixPath("/a/b"), pathlib.PurePosixPath("c")],
        "numbers": [decimal.Decimal("1.5"), fractions.Fraction(1, 3), 1 << 80, 1.5 + 2j, True, None],
        "texts": ["text", b"bytes", bytearray(b"array"), uuid.uuid4()],
        "many": [{1, 2}, frozenset([3]), range(4), slice(1, 2), (1,), collections.deque([1], maxlen=2), collections.Counter("abc")],
        "dicts": [collections.OrderedDict(a=1), default, types.SimpleNamespace(a=1), argparse.Namespace(lr=0.1, path=Path("x"), dtype=torch.bfloat16)],
        "types": [int, float, str, list, dict, bool],
    }


def arrays():
    kinds = ["float32", "float64", "float16", "int64", "int8", "uint32", "bool", "complex64", "datetime64[s]", "timedelta64[s]", "S4", "U4"]
    found = {name: np.ones(3).astype(name) for name in kinds}
    found |= {"object": np.array(["a", None, 1], dtype=object), "fields": np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])}
    found |= {"transposed": np.ones((2, 3)).T, "fortran": np.asfortranarray(np.ones((2, 3))), "none": np.zeros((0, 3)), "type": np.dtype("f4")}
    found |= {f"scalar {name}": np.ones(1).astype(name)[0] for name in kinds}
    return {**found, "types": [np.float32, np.int64, np.bool_]}


def randoms():
    torch.manual_seed(1)
    return {
        "cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate(), "old": np.random.RandomState(3),
        "generators": [np.random.Generator(made(3)) for made in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM)],
        "states": np.random.default_rng(1).bit_generator.state,
    }  # fmt: skip


def typed():
    """A tensor of each type that can be filled."""
    found = {}
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            found[str(dtype)] = torch.zeros(2).to(dtype)
    return found


def tensors():
    base = torch.randn(4, 4)
    named = torch.nn.Parameter(base.clone())
    named.sequence_parallel = True
    quantized = torch.quantize_per_tensor(base, 0.1, 3, torch.qint8)
    channels = torch.quantize_per_channel(base, torch.ones(4), torch.zeros(4), 0, torch.qint8)
    return {
        "types": typed(),
        "parameter": [torch.nn.Parameter(base), named, torch.nn.Buffer(base)],
        "views": [base[1:], base.t(), torch.view_as_complex(base.clone().reshape(8, 2)).conj(), torch._neg_view(base)],
        "sparse": [base.to_sparse(), base.to_sparse_csr(), base.to_sparse_csc(), base.to_sparse_bsr((2, 2))],
        "quantized": [quantized, channels],
        "meta": torch.empty(3, device="meta"),
        "nested": torch.nested.nested_tensor([base, base[:2]]),
        "storages": [base.clone().untyped_storage(), base.clone().storage()],
        "words": [base.shape, base.device, base.dtype, base.layout, torch.__version__],
        "module": Pair().state_dict(),
    }


def torch_save(out):
    for name, make in (("optimizers", optimizers), ("schedules", schedules), ("plain", plain), ("arrays", arrays), ("randoms", randoms), ("tensors", tensors)):
        value = make()
        for protocol in 2, 4, 5:
            torch.save(value, out / f"{name}_{protocol}.pt", pickle_protocol=protocol)
        if name in ("plain", "arrays", "schedules"):
            (out / f"{name}.pkl").write_bytes(pickle.dumps(value))


def distributed(out):
    """Sharded tensors of a mesh of one rank; DCP."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{out}/group", rank=0, world_size=1)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    state = {
        "both": distribute_tensor(torch.randn(4, 4), mesh, [Shard(0), Replicate()]),
        "one": distribute_tensor(torch.randn(4, 4), mesh["tp"], [Shard(1)]),
        "sum": torch.distributed.tensor.DTensor.from_local(torch.randn(4), mesh, [Partial(), Replicate()]),
        "parameter": torch.nn.Parameter(distribute_tensor(torch.randn(4, 4), mesh["dp"], [Shard(0)])),
    }
    torch.save(state, out / "dtensor.pt")
    del state["sum"]
    dcp.save({**state, "words": plain()["dicts"][0], "numpy": np.ones(3)}, checkpoint_id=out / "dcp")
    dist.destroy_process_group()
    (out / "group").unlink()


def deepspeed(out):
    """An engine in each stage of ZeRO, on the CPU."""
    try:
        import deepspeed as ds
    except ImportError:
        print("deepspeed is not installed: left out")
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{out}/group", rank=0, world_size=1)
    os.environ["LOCAL_RANK"] = "0"
    # Its collectives in shared memory would be compiled first.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    for stage in 0, 1, 2, 3:
        settings = {
            "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "bf16": {"enabled": stage > 0}, "zero_allow_untested_optimizer": True,
            "scheduler": {"type": "WarmupLR", "params": {}},
        }  # fmt: skip
        model = Pair()
        engine, *_ = ds.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1), config=settings, dist_init_required=False)
        loss = engine(torch.ones(1, 4, dtype=torch.bfloat16 if stage else torch.float32)).float().square().mean()
        engine.backward(loss)
        engine.step()
        engine.save_checkpoint(str(out / f"deepspeed_{stage}"), client_state={"epoch": 1, "lr": 0.1})
    dist.destroy_process_group()


def trainer(out):
    """transformers' Trainer for two steps, and what accelerate saves of itself."""
    import accelerate
    import transformers

    config = transformers.Qwen2Config(vocab_size=64, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    data = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 4
    given = transformers.TrainingArguments(
        output_dir=str(out / "trainer"), max_steps=2, save_steps=2, save_strategy="steps", report_to=[], use_cpu=True, per_device_train_batch_size=1,
        lr_scheduler_type="cosine", optim="adamw_torch", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    transformers.Trainer(transformers.Qwen2ForCausalLM(config), given, train_dataset=data).train()
    here = accelerate.Accelerator(cpu=True)
    model = Pair()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch.ones(4, 4), shuffle=True)
    here.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1), loader)
    here.save_state(str(out / "accelerate"))
    # It is an archive of torch under another name.
    (out / "accelerate/random_states_0.pkl").rename(out / "accelerate/random_states_0.pt")


def places(out):
    """Where dataloaders stand, with workers and without."""
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import RandomSampler

    for workers in 0, 2:
        data = torch.arange(8)
        loader = StatefulDataLoader(data, batch_size=2, num_workers=workers, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(1)))
        batches = iter(loader)
        next(batches)
        torch.save(loader.state_dict(), out / f"data_{workers}.pt")
        del batches


def arguments(out):
    """Configurations and arguments as trainers keep them beside the weights: Megatron's common.pt, OmegaConf."""
    from omegaconf import OmegaConf

    words = {"args": plain()["dicts"][3], "iteration": 3, "checkpoint_version": 3.0}
    try:
        from megatron.core import enums
        from megatron.core.transformer import enums as more

        found = [*vars(enums).values(), *vars(more).values()]
        words["enums"] = [member for cls in found if isinstance(cls, type) and issubclass(cls, enum.Enum) and cls.__module__.startswith("megatron.") for member in cls]
    except ImportError:
        print("megatron-core is not installed: left out")
    torch.save(words, out / "common.pt")
    config = OmegaConf.create({"lr": 0.1, "list": [1, {"a": None}], "same": "${lr}", "missing": "???"})
    torch.save({"config": config, "hyper": OmegaConf.to_container(config)}, out / "omegaconf.pt")


def files(roots):
    for root in roots:
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file() and (path.suffix in (".pt", ".pth", ".bin", ".pkl", ".distcp") or path.name == ".metadata"):
                yield path


def judged(programs, paths):
    """The verdict of each file, and what was said of it."""
    found = {}
    paths = [str(path) for path in paths if path.suffix != ".distcp"]
    done = subprocess.run([programs / "supervise", "verify", "--json", *paths], capture_output=True, text=True, check=False)
    for path in json.loads(done.stdout)["paths"]:
        file = path["files"][0]
        found[path["path"]] = (file["verdict"], [f["detail"] for f in file["findings"] if f["level"] != "note"])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--also", type=Path, action="append", default=[])
    parser.add_argument("--show", action="store_true", help="print every name with what is done with it, and where it was seen")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bad = []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for write in torch_save, distributed, trainer, places, arguments, deepspeed:
            write(work)
        paths = list(files([work, *options.also]))
        for path in paths:
            root = next(r for r in [work, *options.also] if path.is_relative_to(r))
            # What is there already may be damaged on purpose.
            with contextlib.nullcontext() if root == work else contextlib.suppress(Exception):
                read(path, str(path.relative_to(root)))
        for path, (verdict, said) in judged(options.programs.resolve(), paths).items():
            if verdict == "unsafe" or verdict != "whole" and path.startswith(str(work)):
                bad.append(f"{path} is called {verdict}: {'; '.join(said[:20])}")
    if options.show:
        for what, where in sorted(SEEN.items()):
            print(f"{what}    [{len(where)}: {sorted(where)[0]}]")
    print("\n".join(bad) or f"{len(paths)} files of real trainers name nothing that verify does not know ({len(SEEN)} kinds of calls)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
