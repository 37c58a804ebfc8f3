"""A hand-written training loop, with torch alone, that reports with the Python package.

usage: loop_train.py ROOT STEPS

LOOP_FAULTS in the environment: {"STEP": "kill" | "tear" | "hang"}, each of which happens once: a kill after the step, a kill in the middle
of its save, a step that never ends. LOOP_LEDGER: a directory that remembers them.
"""

import hashlib
import io
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

import supervise

root, steps = Path(sys.argv[1]), int(sys.argv[2])
faults = json.loads(os.environ.get("LOOP_FAULTS", "{}"))


def fault(kind, step):
    flag = Path(os.environ.get("LOOP_LEDGER", "."), f"{kind}-{step}")
    due = faults.get(str(step)) == kind and not flag.exists()
    if due:
        flag.touch()
    return due


torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
start, path = 0, supervise.resume_from()
if path:
    state = torch.load(path)
    start = state["step"]
    torch.set_rng_state(state["rng"])
    for name, part in parts.items():
        part.load_state_dict(state[name])
for step in range(start + 1, steps + 1):
    x = torch.randn(64, 16)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    time.sleep(0.05)
    if fault("hang", step):
        time.sleep(3600)
    supervise.report(step=step, total=steps, metrics={"loss": loss.item()})
    if step % 10 == 0:
        held = io.BytesIO()
        torch.save({"step": step, "rng": torch.get_rng_state(), **{name: part.state_dict() for name, part in parts.items()}}, held)
        torn = fault("tear", step)
        (root / f"step_{step}.pt").write_bytes(held.getvalue()[: len(held.getvalue()) // (2 if torn else 1)])
        if torn:
            os.kill(os.getpid(), signal.SIGKILL)
        supervise.saved(root / f"step_{step}.pt", step=step)
    if fault("kill", step):
        os.kill(os.getpid(), signal.SIGKILL)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(f"final step {steps}, weights {digest[:16]}", flush=True)
