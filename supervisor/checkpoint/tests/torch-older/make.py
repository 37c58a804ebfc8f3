"""Writes older.pt files: what torch.save of older versions makes of a training's state.

PYTHON make.py (any torch from 1.6 on): writes state_VERSION.pt, and stream_VERSION.pt, which went through a buffer.
"""
import collections
import io
import pathlib
import random

import numpy as np
import torch
from torch import nn

torch.manual_seed(1)
here = pathlib.Path(__file__).parent
version = torch.__version__.split("+")[0]

model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
for _ in range(3):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    schedule.step()
base = torch.randn(6, 4)
state = {
    "model": model.state_dict(),
    "parameter": nn.Parameter(torch.ones(3)),
    "half": [torch.ones(5, dtype=torch.bfloat16), torch.ones(5, dtype=torch.float16)],
    "whole": [torch.arange(5), torch.zeros(2, dtype=torch.bool)],
    "views": [base[2:5, 1:], base.t(), torch.empty(0, 3), torch.tensor(1.5)],
    "optimizer": optimizer.state_dict(),
    "lr_scheduler": schedule.state_dict(),
    "rng": {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()},
    "plain": collections.OrderedDict(a=1, b=[None, True, 2.5, "x"]),
}
torch.save(state, str(here / ("state_%s.pt" % version)))
stream = io.BytesIO()
torch.save({"a": torch.ones(3)}, stream)
(here / ("stream_%s.pt" % version)).write_bytes(stream.getvalue())
