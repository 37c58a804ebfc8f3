"""Faults for areal's trainers, injected from outside its code as fault_hooks.py does.

Besides fault_hooks' faults in mid-step, a rank kills itself (SIGKILL) at a point of a recover save:

    shard_half         its shard is written to the half
    shard_unwritten    the other ranks have written their shards, it has not begun its own
    shard_written      all ranks have written their shards; `.metadata` is the one of the save before
    metadata_unlinked  the old `.metadata` is gone, the new one has not got its name
    shards_done        the checkpoint is whole; nothing of recover_info is written
    info_before        before `file` of recover_info is opened
    info_empty         `file` is opened and empty
    info_half          `file` is written to the half
    no_space           the device is full while it writes its shard (an OSError; the rank lives on, as areal lets it)

`step` counts steps done, as areal's log does: its global_step + 1.
"""

import builtins
import errno
import io
import json
import os
import signal
import time
from pathlib import Path

import fault_hooks

PATIENCE = 60  # seconds after which a copy is not waited for any more
IN_SHARD = ("shard_half", "shard_unwritten", "shard_written", "no_space")
IN_INFO = ("info_before", "info_empty", "info_half")
KINDS = (*fault_hooks.IN_STEP, *IN_SHARD, "metadata_unlinked", "shards_done", *IN_INFO)


class Faults(fault_hooks.Faults):
    def __init__(self, faults, ledger, rank):
        super().__init__(faults, ledger, rank)
        self.rank = rank
        self.ledger.joinpath("wrote").mkdir(exist_ok=True)

    def step(self):
        done = fault_hooks.current_step()
        return None if done is None else done + 1

    def before_optimizer(self, optimizer, args, kwargs):
        time.sleep(self.pace)
        fault = self.take(fault_hooks.IN_STEP, self.step())
        if fault is not None:
            fault_hooks.strike(fault, optimizer)

    def arm(self):
        from areal.utils import recover
        from torch.distributed.checkpoint import filesystem

        if any(f["kind"] in fault_hooks.IN_STEP for _, f in self.mine):
            fault_hooks.register_optimizer_step_pre_hook(self.before_optimizer)
        self.write, self.rename = filesystem.FileSystemWriter.write_data, filesystem.FileSystem.rename
        filesystem.FileSystemWriter.write_data = lambda writer, *rest: self.write_data(writer, *rest)
        filesystem.FileSystem.rename = lambda system, *paths: self.on_rename(system, *paths)
        # A name of the module comes before the builtin.
        recover.open = self.open
        dump = recover.RecoverInfo.dump
        recover.RecoverInfo.dump = lambda info, folder: (self.die_at(("shards_done",)), dump(info, folder))

    def die_at(self, kinds, file=None):
        fault = self.take(kinds, self.step(), file)
        if fault is not None:
            fault_hooks.die(signal.SIGKILL)

    def write_data(self, writer, *rest):
        step = self.step()
        fault = self.take(IN_SHARD, step)
        kind = fault and fault["kind"]
        if kind == "shard_unwritten":
            self.wait_for_peers(step)
            fault_hooks.die(signal.SIGKILL)
        done = self.write(writer, *rest)
        shard = Path(writer.path, f"__{self.rank}_0.distcp")
        if kind in ("shard_half", "no_space"):
            os.truncate(shard, shard.stat().st_size // 2)
            if kind == "no_space":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(shard))
            fault_hooks.die(signal.SIGKILL)
        self.ledger.joinpath("wrote", f"{step}-{self.rank}").touch()
        if kind == "shard_written":
            self.wait_for_peers(step)
            fault_hooks.die(signal.SIGKILL)
        return done

    def wait_for_peers(self, step):
        others = [r for r in range(int(os.environ["WORLD_SIZE"])) if r != self.rank]
        while not all(self.ledger.joinpath("wrote", f"{step}-{r}").exists() for r in others):
            time.sleep(0.01)

    def on_rename(self, system, old, new):
        if str(new).endswith(".metadata"):
            self.die_at(("metadata_unlinked",))
        self.rename(system, old, new)

    def open(self, path, mode="r", *rest):
        name = Path(path).name
        fault = self.take(IN_INFO, self.step(), name) if "w" in mode else None
        if fault is None:
            return builtins.open(path, mode, *rest)
        if fault["kind"] == "info_before":
            fault_hooks.die(signal.SIGKILL)
        if fault["kind"] == "info_half":
            return half_of(path, mode)
        builtins.open(path, mode).close()
        fault_hooks.die(signal.SIGKILL)


def half_of(path, mode):
    """A file of which only the first half reaches the disk before its writer is killed."""

    class Half(io.BytesIO if "b" in mode else io.StringIO):
        def __exit__(self, *_):
            whole = self.getvalue()
            with builtins.open(path, mode) as file:
                file.write(whole[: len(whole) // 2])
            fault_hooks.die(signal.SIGKILL)

    return Half()


def wait_for_copy(kept, step):
    """Steps that are a thousand times shorter than real ones: each begins when the save before it was copied."""
    until = time.monotonic() + PATIENCE
    while step and not any(kept.glob(f"step_{step}.*")) and time.monotonic() < until:
        time.sleep(0.02)


def controller_waits(kept):
    """A controller has no optimizer, and its workers have no faults: it goes on when the save that it just ended was copied."""
    from areal.utils import recover

    dump = recover.RecoverInfo.dump

    def dump_and_wait(info, folder):
        dump(info, folder)
        wait_for_copy(kept, fault_hooks.current_step() + 1)

    recover.RecoverInfo.dump = dump_and_wait


def arm_from_env():
    """Arms the faults that FAULTS names for this rank; without FAULTS and KEPT nothing is touched."""
    if kept := os.environ.get("KEPT"):
        fault_hooks.register_optimizer_step_pre_hook(lambda *_: wait_for_copy(Path(kept), fault_hooks.current_step()))
        if "RANK" not in os.environ:
            controller_waits(Path(kept))
    text = os.environ.get("FAULTS")
    if not text:
        return
    faults = json.loads(text)
    unknown = [f for f in faults if f.get("kind") not in KINDS or not isinstance(f.get("step"), int)]
    if unknown:
        raise SystemExit(f"FAULTS: cannot read {unknown}")
    if faults:
        # Also where none is this rank's: a fault may wait for the others' shards.
        Faults(faults, os.environ["FAULT_LEDGER"], int(os.environ.get("RANK", "0"))).arm()
