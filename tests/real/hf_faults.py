"""Faults in the saves of Hugging Face's Trainer, whichever program calls it: importing this arms them.

FAULTS and FAULT_LEDGER are those of fault_hooks.py, of which one kind is known here: `torn`: SIGKILL when half of trainer_state.json of step N is written;
with `"file": "optimizer"` half of this rank's part of DeepSpeed's optimizer.
"""

import os
import re
import signal

import torch
from transformers import TrainerState

import fault_hooks

FAULTS = fault_hooks.from_env()
OF_DEEPSPEED = re.compile(r"global_step(\d+)/[^/]*optim_states\.pt$")

whole, save = TrainerState.save_to_json, torch.save


def half(path):
    os.truncate(path, os.path.getsize(path) // 2)
    fault_hooks.die(signal.SIGKILL)


def torn(self, path):
    whole(self, path)
    if FAULTS and FAULTS.take(("torn",), self.global_step, "model"):
        half(path)


def torn_optimizer(what, file, *args, **more):
    save(what, file, *args, **more)
    found = OF_DEEPSPEED.search(str(file))
    if FAULTS and found and FAULTS.take(("torn",), int(found[1]), "optimizer"):
        half(file)


TrainerState.save_to_json, torch.save = torn, torn_optimizer
