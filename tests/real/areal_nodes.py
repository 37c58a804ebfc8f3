"""areal's SFT trainer over Ray, which `supervise` brings up on two nodes of a Slurm cluster: its launcher, with the raylet of the second node
killed in one attempt and a rank in the next, then its controller, killed between the weights and the counters of a save. Each comes back in its
allocation, a rank on each node; the tensors and losses are those of a run in one go on one machine.

usage: areal_nodes.py PROGRAMS [--work DIR] [--only CASE]

As areal_launchers.py; root is needed, as for slurm_gang.py. Ends with `N passed, M failed`.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import types

import areal_bench
import areal_stage as stage
from areal_bench import HERE, LIMIT
from areal_launchers import SLOW, controlled
from ray_nodes import GOING, Job, on_node
from ray_recovery import PATIENT
from slurm_gang import property_of, slurm

STEPS = 6
SCRIPT = HERE / "areal_faulty.py"
RAY = "  gang: {ray_start: [--num-cpus=1, --object-store-memory=200000000, --include-dashboard=false]}\n" + PATIENT
ENV = SLOW | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "PYTHONPATH": str(HERE)}
# A rank hangs, so that the raylet below it dies in the middle of a step.
FAULTS = [{"kind": "hang", "step": 3, "rank": 1}, {"kind": "kill", "step": 5, "rank": 1}]


def ray_launcher(b):
    """Each rank is a task of Ray's."""
    with job(b, "ray_launcher", FAULTS, "-m", "areal.infra.launcher.ray", SCRIPT, "+allocation_mode=fsdp:d2") as (case, run):
        run.wait(lambda: case.ledger.joinpath("fault-0").exists())
        far = [p for p in run.pids("raylet/raylet") if not on_node(p, run.pids("gcs_server")[0])]
        assert len(far) == 1, run.processes()
        run.kill(far[0])
        text = ended(case, run)
    assert attempts(text) >= 3 and "Ray has ended on node n2" in text, text[-6000:]
    case.right()


def ray_scheduler(b):
    """The controller's workers are actors of Ray's."""
    straight = controlled(b, "local")
    with job(b, "ray_scheduler", [{"kind": "shards_done", "step": 3}], SCRIPT, "scheduler.type=ray") as (case, run):
        ranks = run.wait(lambda: [r for r in [run.pids("ray::RayRPCServer")] if len(r) == 2])[0]
        assert not on_node(*ranks), "both workers are on one node"
        text = ended(case, run)
    assert attempts(text) >= 2, text[-6000:]
    assert stage.tensors(stage.dcp(case.root)) == stage.tensors(stage.dcp(straight.root)), "other tensors"
    wrong = {s: (v, straight.losses[s]) for s, v in case.losses.items() if v != straight.losses[s]}
    assert case.losses and not wrong, f"other losses: {wrong}"


@contextlib.contextmanager
def job(b, name, faults, *command):
    """A case that is a job of a cluster of two nodes."""
    case = b.case(name, STEPS, gang=RAY, env=ENV)
    text = case.yaml.read_text()
    case.yaml.write_text(text.replace("n_nodes: 1\n  n_gpus_per_node: 2", "n_nodes: 2\n  n_gpus_per_node: 1"))
    folder = case.root.parent / f"{name}.job"
    folder.mkdir()
    with slurm(folder) as where:
        env = case.env(faults) | where
        env["PATH"] = f"{b.programs}:{env['PATH']}"
        options = ["--time=60", f"--output={folder}/job.out", "--gres=none", "--cpus-per-task=1"]
        submitter = types.SimpleNamespace(call=call)
        words = ["supervise", "sbatch", case.yaml, "--submit", "--", *options, "--", sys.executable, *command]
        yield case, Job(submitter, folder, words, env)
    # The cluster's own processes name a folder beside it.
    case.nothing_left()


def attempts(text):
    return int(re.search(r"(\d+) attempts?, term", text)[1])


def call(argv, env, cwd):
    done = subprocess.run([str(a) for a in argv], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout
    return done


def ended(case, run):
    """What was said, once the job has ended well: in one allocation, on both nodes."""
    run.wait(lambda: run.state() not in GOING, alive=False)
    text = stage.COLOURS.sub("", run.said())
    assert run.state() == "COMPLETED", text[-6000:]
    assert property_of(run.job, "Restarts", run.env) == "0"
    fired = sorted(p.name for p in case.ledger.glob("fault-*"))
    assert len(fired) == len(json.loads(run.env["FAULTS"])), f"only {fired} were seen:\n{text[-6000:]}"
    assert stage.step_of(case.root) == STEPS, text[-6000:]
    logs = sorted(case.root.glob("supervise/*/real/t0/attempts/*/worker-0.log"))
    said = [stage.COLOURS.sub("", log.read_text(errors="replace")) for log in logs]
    complete = [words for words in said if "has 2 machines and 2 GPUs" in words]
    assert len(complete) >= len(fired) + 1, said
    for words in said:
        case.losses |= stage.Attempt(0, words).losses
    return text


CASES = [ray_launcher, ray_scheduler]

if __name__ == "__main__":
    # areal asks for the address of its own name, which a node of a real cluster knows.
    os.environ["HOSTS"] = "1"
    sys.exit(areal_bench.main(CASES, STEPS))
