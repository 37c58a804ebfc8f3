"""Writes the small files of this folder: what torch.save makes of the values that trainers keep.

PYTHON make.py (torch 2.11.0, numpy 2.4.6). Files differ from run to run in their serialization ids only.
"""
import argparse
import collections
import datetime
import io
import pathlib
import random

import numpy as np
import torch
from torch import nn

torch.manual_seed(1)
here = pathlib.Path(__file__).parent


def save(name, value, **options):
    torch.save(value, here / f"{name}.pt", **options)


base = torch.randn(6, 4)
model = nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1)

kinds = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 uint16 uint32 uint64 float8_e4m3fn float8_e5m2"
save("dtypes", {k: torch.zeros(5, dtype=getattr(torch, k)) for k in kinds.split()})
save("views", {"part": base[2:5, 1:], "turned": base.t(), "wide": base.expand(2, 6, 4), "none": torch.empty(0, 3), "one": torch.tensor(1.5)})
save("modules", {"state": model.state_dict(), "parameter": nn.Parameter(torch.ones(3))})
save("module", model)
save("sparse", {"coo": torch.eye(4).to_sparse(), "csr": torch.eye(4).to_sparse_csr()})
save("quantized", torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8))
save("adamw", optimizer.state_dict())
save("extra", {"lr_scheduler": schedule.state_dict(), "rng": {"cpu": torch.arange(16, dtype=torch.uint8)}})
save("numpy", {"array": np.arange(5), "scalar": np.float32(3.5), "flag": np.bool_(True), "generator": np.random.default_rng(1), "text": np.array(["a", "b"]),
               "objects": np.array([1, None], dtype=object)})
save("python", {"path": pathlib.Path("x"), "when": datetime.datetime(2026, 1, 1), "span": datetime.timedelta(1), "args": argparse.Namespace(a=1), "set": {1, 2},
                "frozen": frozenset([1]), "complex": 1j, "bytes": b"abc", "array": bytearray(b"x"), "big": 1 << 80, "negative": -(1 << 70), "nan": float("nan"),
                "range": range(3), "default": collections.defaultdict(list, {"a": [1]}), "deque": collections.deque([1, 2]),
                "counter": collections.Counter("abc"), "dtype": torch.float32, "device": torch.device("cuda:0"), "size": torch.Size([1, 2]),
                "version": torch.__version__, "random": random.Random(1).getstate()[1][:3]})
save("storages", {"untyped": torch.ones(3).untyped_storage(), "meta": torch.ones(3, device="meta")})
for protocol in 3, 4, 5:
    save(f"protocol_{protocol}", {"a": torch.randn(3, 4), "b": collections.OrderedDict(x=1)}, pickle_protocol=protocol)
stream = io.BytesIO()
torch.save({"a": torch.ones(3)}, stream)
(here / "stream.pt").write_bytes(stream.getvalue())
save("not_finite", {"a": torch.tensor([1.0, float("inf"), float("nan")])})

# Not whole, or not provable to the last byte.
save("legacy", {"a": torch.ones(3)}, _use_new_zipfile_serialization=False)
torch.jit.save(torch.jit.script(nn.Linear(3, 4)), str(here / "script.pt"))
try:
    save("failed", {"a": torch.ones(3), "no": io})
except TypeError:
    pass  # A save that raises leaves a closed archive behind.
torch.serialization.set_crc32_options(False)
save("no_checksums", {"a": torch.randn(300, 4), "b": torch.randn(7)})
