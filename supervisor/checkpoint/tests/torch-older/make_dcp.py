"""Writes dcp_VERSION: what torch.distributed.checkpoint of older versions makes of one process's state.

PYTHON make_dcp.py (any torch from 2.0 on).
"""
import pathlib
import shutil

import torch
import torch.distributed.checkpoint as dcp

torch.manual_seed(1)
version = torch.__version__.split("+")[0]
out = pathlib.Path(__file__).parent / ("dcp_%s" % version)
shutil.rmtree(out, ignore_errors=True)
state = {
    "model.weight": torch.randn(6, 4),
    "model.bias": torch.randn(6, dtype=torch.float32),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "step": torch.tensor(7.0),
    "plain": {"lr": 0.1, "names": ["a", "b"]},
}
save = getattr(dcp, "save_state_dict", None) or dcp.save
save(state, storage_writer=dcp.FileSystemWriter(str(out)), no_dist=True)
