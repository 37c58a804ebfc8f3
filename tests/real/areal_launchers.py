"""areal's own ways of starting its ranks, each under `supervise`: killed in the middle, brought back, nothing left behind.

usage: areal_launchers.py PROGRAMS [--work DIR] [--only CASE]

As areal_recovery.py. areal is not changed; where it asks for what a machine without GPUs has not, this stands in for it:

    local_launcher   on CPU the launcher puts the list of devices (`=0,0`) before its command, under a variable without a name: a
                     program of that name in PATH becomes what stands behind it
    ray_launcher     RAY_OVERRIDE_RESOURCES: Ray counts two GPUs, which nobody opens
    all schedulers   time: their limit for the start of a worker, 30 s (Slurm's: 300 s), is made longer (SLOW_START)
    slurm_scheduler, slurm_launcher
                     a shell program named `singularity` leaves out the image, in which they start their workers; the cluster is
                     a real one, of this machine alone, with two GPUs that nobody opens (tests/testbed/slurm.sh)

Ends with `N passed, M failed`.
"""

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import areal_bench
import areal_stage as stage
from areal_bench import HERE
from ray_recovery import PATIENT, never_came_up

STEPS = 6
SCRIPT = HERE / "areal_faulty.py"
RANKS = "+allocation_mode=fsdp:d2"
CLUSTER = HERE.parent / "testbed/slurm.sh"
# `singularity exec --env K=V ... IMAGE bash -c COMMANDS`, without the image.
SINGULARITY = """while [ "$1" != bash ]; do [ "$1" = --env ] && export "$2" && shift; shift; done; exec "$@\""""
TORCHRUN = f'exec {sys.executable} -m torch.distributed.run "$@"'
# Seconds that a worker has to start; areal gives it 30.
SLOW = {"SLOW_START": "600"}


def local_launcher(b):
    """The launcher of the older kind, on one machine: torchrun below a shell and a `tee`."""
    path = programs(b, torchrun=TORCHRUN, **{"=0,0": 'exec "$@"'})
    case = b.case("local", STEPS, gang="", env={"PATH": path})
    killed_once(case, "python3", "-m", "areal.infra.launcher.local", SCRIPT, RANKS)


def ray_launcher(b):
    """The same over Ray: each rank is a task of Ray's."""
    with ray(b) as env:
        more = {"RAY_OVERRIDE_RESOURCES": json.dumps({"GPU": 2}), "PYTHONPATH": str(HERE)}
        case = b.case("ray_launcher", STEPS, gang=PATIENT, env=env | more)
        killed_once(case, "python3", "-m", "areal.infra.launcher.ray", SCRIPT, RANKS)


def programs(b, **texts):
    """PATH with these shell programs in front."""
    folder = b.work / "programs"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def local_scheduler(b):
    """The controller, with workers of its own: it is killed between the weights and the counters of a save."""
    controller_killed(b, "local_scheduler", "local", {})


def ray_scheduler(b):
    """The same, with workers that are Ray's."""
    with ray(b) as env:
        controller_killed(b, "ray_scheduler", "ray", env)


def root_only(case):
    """Only root can make the nodes' devices and be Slurm's user."""

    @functools.wraps(case)
    def guarded(b):
        if os.getuid() == 0:
            return case(b)
        print(f"  {case.__name__}: skipped: only root can start a Slurm cluster", flush=True)

    return guarded


@root_only
def slurm_scheduler(b):
    """The same, with workers that are jobs of Slurm's: they outlive it, and are cancelled."""
    folder = programs(b, singularity=SINGULARITY)
    with slurm() as env:
        _, text = controller_killed(b, "slurm_scheduler", "slurm", env | {"PATH": folder})
        assert "are cancelled, and waited for: 1 (real_t0:actor, RUNNING)" in text, text[-3000:]


@root_only
def slurm_launcher(b):
    """The launcher of the older kind: torchrun in a job. All that is heard of it is what it saves."""
    with slurm() as env:
        path = programs(b, singularity=SINGULARITY, torchrun=TORCHRUN)
        case = b.case("slurm_launcher", STEPS, gang="", env=env | {"PATH": path})
        said = case.root / f"logs/{stage.USER}/real/t0/trainer.log"
        killed_once(case, "python3", "-m", "areal.infra.launcher.slurm", SCRIPT, RANKS, said=said)


def controller_killed(b, name, scheduler, env):
    """Its workers are ended, and it is brought back: every tensor is that of a controller with workers of its own, in one go."""
    straight = controlled(b, "local")
    case = b.case(name, STEPS, gang=PATIENT, env=env | SLOW)
    text = case.run(faults=[{"kind": "shards_done", "step": 3}], command=("python3", SCRIPT, f"scheduler.type={scheduler}"))
    assert f"{2 + never_came_up(text)} attempts" in text and "1 worker started" in text, text[-3000:]
    assert stage.step_of(case.root) == STEPS
    assert stage.tensors(stage.dcp(case.root)) == stage.tensors(stage.dcp(straight.root)), "other tensors"
    wrong = {s: (v, straight.losses[s]) for s, v in case.losses.items() if v != straight.losses[s]}
    assert case.losses and not wrong, f"other losses: {wrong}"
    return case, text


@functools.cache
def controlled(b, scheduler):
    """A run in one go whose ranks a controller leads: it deals the data out in another way."""
    case = b.case("controlled", STEPS, gang="", env=SLOW)
    text = case.run(command=("python3", SCRIPT, f"scheduler.type={scheduler}"))
    assert "1 attempt" in text and "1 worker started" in text, text[-3000:]
    return case


def killed_once(case, *command, said=None):
    """A rank is killed in mid-step, and comes back: every tensor and loss is that of a run in one go."""
    text = case.run(faults=[{"kind": "kill", "step": 4, "rank": 1}], command=command)
    assert f"{2 + never_came_up(text)} attempts" in text, text[-3000:]
    if said:
        case.losses |= stage.Attempt(0, stage.COLOURS.sub("", said.read_text(errors="replace"))).losses
    case.right()


@contextlib.contextmanager
def slurm():
    """A cluster of one node that is this case's alone."""
    call(CLUSTER, "install")
    # munge wants directories that nobody else may write to, and short names.
    folder = tempfile.mkdtemp(prefix="slurm-", dir="/run")
    try:
        call(CLUSTER, "up", folder, free_ports())
        yield {"SLURM_CONF": f"{folder}/etc/slurm.conf"}
        listed = call(CLUSTER, "jobs", folder)
        assert not listed, f"left with Slurm: {listed}"
    except BaseException:
        print(*(log.read_text()[-4000:] for log in Path(folder, "log").iterdir()), sep="\n", flush=True)
        raise
    finally:
        call(CLUSTER, "down", folder)
    left = areal_bench.processes(folder)
    assert not left, f"left behind: {left}"
    shutil.rmtree(folder)


def call(*argv):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=areal_bench.LIMIT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def free_ports():
    """The first of two ports that are free."""
    while True:
        port = stage.free_port()
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port + 1))
            return port


class ray:
    """A directory for Ray: a short one, as it makes sockets there."""

    def __init__(self, bench):
        self.bench = bench

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="r-", dir="/tmp")
        return {"RAY_TMPDIR": self.dir, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "600"}

    def __exit__(self, *_):
        left = areal_bench.processes(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not left, f"left behind: {left}"


CASES = [local_launcher, local_scheduler, ray_launcher, ray_scheduler, slurm_launcher, slurm_scheduler]

if __name__ == "__main__":
    sys.exit(areal_bench.main(CASES, STEPS))
