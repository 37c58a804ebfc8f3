"""A nanoGPT-like loop, or one on torch.distributed.checkpoint: the two smallest trainers that a declaration describes.

usage: declared_loop.py --out_dir=OUT [--form=dcp] [--max_iters=N] [--eval_interval=N] [--init_from=resume]

Each batch follows from its number, so a run that is resumed has to end with the weights of a run in one go. FAULTS in the environment
names a directory of files: `step-N` kills the loop in that step, `save-N` in that save; each works once.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed.checkpoint as dcp


def option(name, default):
    for word in sys.argv:
        if word.startswith(f"--{name}="):
            return word.split("=", 1)[1]
    return default


def dies(what):
    """True once, if this fault was asked for."""
    path = os.path.join(os.environ.get("FAULTS", "/nowhere"), what)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def wait_for_copy():
    """The supervisor copies the only checkpoint after each save: the next save is torn once it has."""
    kept = os.path.join(out, ".supervise", "protected")
    for _ in range(600):
        if os.path.isdir(kept) and any(name.startswith(f"step_{done - every}.") for name in os.listdir(kept)):
            return
        time.sleep(0.1)
    sys.exit("no copy of the save before came")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class TornFile:
    """Writes half of a checkpoint, then kills the process."""

    def __init__(self, path, size):
        self.file, self.left = open(path, "wb"), size // 2

    def write(self, data):
        self.file.write(bytes(data)[: self.left])
        self.left -= len(data)
        if self.left <= 0:
            self.file.flush()
            kill()
        return len(data)

    def flush(self):
        self.file.flush()


form, out = option("form", "ckpt"), option("out_dir", "out")
last, every = int(option("max_iters", "12")), int(option("eval_interval", "3"))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
os.makedirs(out, exist_ok=True)
done = 0
step_from = os.environ.get("SUPERVISE_RESUME_FROM")
if form == "ckpt" and option("init_from", "scratch") == "resume":
    print(f"Resuming training from {out}", flush=True)
    state = torch.load(os.path.join(out, "ckpt.pt"))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["iter_num"]
elif form == "dcp" and step_from:
    print(f"Resuming training from {step_from}", flush=True)
    # Its state exists from the first step on; what this step changes is loaded over.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": torch.zeros(1)}
    dcp.load(state, checkpoint_id=step_from)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = int(state["done"].item())
else:
    print("Initializing a new model from scratch", flush=True)


def save():
    print(f"saving checkpoint to {out}", flush=True)
    if form == "dcp":
        path = os.path.join(out, f"step-{done}")
        if dies(f"save-{done}"):
            os.makedirs(path)
            with open(os.path.join(path, "__0_0.distcp"), "wb") as half:
                half.write(b"\0" * 100)
            kill()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": torch.tensor([float(done)])}
        dcp.save(state, checkpoint_id=path)
        return
    path = os.path.join(out, "ckpt.pt")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": done}
    # So that a copy of every save exists, however fast the loop is.
    if os.environ.get("AWAIT_COPIES") and done > every:
        wait_for_copy()
    if dies(f"save-{done}"):
        torch.save(state, TornFile(path, os.path.getsize(path)))
    torch.save(state, path)


while done < last:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(done))
    loss = ((model(data) - data.roll(1, 1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dies(f"step-{done}"):
        kill()
    done += 1
    print(f"iter {done}: loss {loss.item():.4f}, time 1.00ms", flush=True)
    if done % every == 0:
        save()

torch.save(model.state_dict(), os.path.join(out, "final.pt"))
print("done", flush=True)
