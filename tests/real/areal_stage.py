"""What the cases of areal_alone.py and areal_recovery.py stand on: areal's SFT trainer on CPU ranks, and what it left behind.

Importing areal takes most of a launch. `Stage.launch` imports it once and forks the ranks from there: each is a process of its
own, with its own group and its own faults, as gang.sh would start it.
"""

import functools
import gc
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
USER = "trainer"
LIMIT = 900  # seconds that a launch may take: only a hang takes so long, on a machine however slow
ENV = {"AREAL_SPMD_MODE": "1", "TORCH_COMPILE_DISABLE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
       "TOKENIZERS_PARALLELISM": "false", "LOGNAME": USER, "PYTHONWARNINGS": "ignore"}  # fmt: skip
os.environ |= ENV
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
DONE = re.compile(r"Train step (\d+)/\d+ done")
STAT = re.compile(r"sft/(loss/avg|lr)\s*│\s*([-\d.e+]+)")


@dataclass
class Attempt:
    """What one launch did, by its log."""

    code: int | str
    text: str
    losses: dict[int, float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)

    def __post_init__(self):
        step = None
        for line in self.text.splitlines():
            if found := DONE.search(line):
                step = int(found[1])
            for name, value in STAT.findall(line):
                {"loss/avg": self.losses, "lr": self.rates}[name][step] = float(value)

    @property
    def steps(self):
        return sorted(self.losses)

    @property
    def error(self):
        """The exception that ended it."""
        names = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception))\b", self.text, re.M)
        return next((n for n in names if n == "CheckpointException"), names[-1] if names else None)


class Stage:
    def __init__(self, work):
        self.work = work
        self.model = work / "model"
        call([sys.executable, HERE / "make_tiny_model.py", self.model])
        self.count = 0
        preload()

    def launch(self, root, steps, *, world=2, faults=(), user=USER, keep=None, **knobs):
        """One launch of all ranks, as a user makes it; its ranks end as a gang's do: with the first that fails."""
        self.count += 1
        logs = root.parent / f"{root.name}.logs" / f"{self.count:03}"
        logs.mkdir(parents=True)
        port = free_port()
        env = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
               "LOGNAME": user, "FAULTS": json.dumps(list(faults)), "FAULT_LEDGER": root.parent / f"{root.name}.ledger"}  # fmt: skip
        work = functools.partial(train, self.model, root, steps, keep, world=world, **knobs)
        pids = {fork(work, env | {"RANK": r, "LOCAL_RANK": r}, logs / f"rank_{r}.log"): r for r in range(world)}
        code = gang(set(pids))
        return Attempt(code, "\n".join(COLOURS.sub("", p.read_text(errors="replace")) for p in sorted(logs.iterdir())))


def preload():
    """All that a launch imports; what is there by now is never looked at for garbage again."""
    import areal_sft  # noqa: F401
    import torch
    from areal.engine import FSDPLMEngine  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()


def train(model, root, steps, keep, **knobs):
    import areal_faults
    from areal.trainer.sft_trainer import SFTTrainer
    from areal_sft import samples

    areal_faults.arm_from_env()
    with SFTTrainer(config(model, root, steps, **knobs), train_dataset=samples(model)) as trainer:
        if keep is not None:
            keep_all(trainer.recover_handler, trial(root), keep)
        trainer.train()


def config(model, root, steps, *, world=2, batch=8, freq=1, schedule="constant", backend=None, **more):
    """areal_sft.py's configuration, on so many ranks; 64 samples make 8 steps of an epoch with the batch of 8."""
    from areal_sft import config

    made = config(str(model), str(root), steps, None)
    made.actor.backend = backend or f"fsdp:d{world}"
    made.cluster.n_gpus_per_node = world
    made.train_dataset.batch_size = batch
    made.recover.freq_steps = freq
    made.actor.optimizer.lr_scheduler_type = schedule
    for name, value in more.items():
        setattr(made.recover, name, value)
    return made


def keep_all(handler, live, folder):
    """Copies the trial after each save; nobody overwrites it while rank 0, whom the others wait for, copies."""
    dump = handler.dump

    def dump_and_copy(engine, step_info, *args, **kwargs):
        dump(engine, step_info, *args, **kwargs)
        if os.environ["RANK"] == "0":
            shutil.copytree(live, folder / str(step_info.global_step + 1))

    handler.dump = dump_and_copy


def trial(root, user=USER):
    return Path(root, "checkpoints", user, "real", "t0")


def dcp(root, user=USER):
    return trial(root, user) / "default/recover_checkpoint"


def info(root):
    return trial(root) / "recover_info"


def step_of(root):
    """Steps done, as the counters say."""
    return json.loads((info(root) / "step_info.json").read_text())["global_step"] + 1


def fork(work, env, log):
    """Runs `work` in a child with this environment, all it says in `log`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ.update({k: str(v) for k, v in env.items()})
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def gang(pids):
    """Waits for all, kills the rest once one has failed; the first status that is not 0, or `hang`."""
    first, until = 0, time.monotonic() + LIMIT
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in pids:
            pids.remove(pid)
            code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > until:
            code = "hang"
        else:
            time.sleep(0.02)
            continue
        if code != 0 and first == 0:
            first = code
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return first


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(argv):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout[-4000:]


def tensors(folder):
    """The digest of every tensor of a distributed checkpoint, put together from its shards, with the names' values for the rest."""
    import torch
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {}
    _load_state_dict(state, FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return {name: digest(value, torch) for name, value in flat(state)}


def metadata(folder):
    from torch.distributed.checkpoint import FileSystemReader

    return FileSystemReader(folder).read_metadata()


def flat(value, name=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}")
    else:
        yield name, value


def digest(value, torch):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return hashlib.sha256(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
