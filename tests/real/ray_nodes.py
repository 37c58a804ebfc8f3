"""verl's Ray SFT trainer on two nodes of a real Slurm cluster: Ray is brought up over them, and its processes are killed one after the
other: Ray's head, with FULL=1 the raylet of the second node and the driver too. Then the rank on the second node falls asleep inside a step, and is found by what
Ray's processes on both nodes did before. The tensors of both ranks are those of a run in one go on one machine.

usage: ray_nodes.py PROGRAMS [--work DIR] [--spins | --ppo]

Root is needed, as for slurm_gang.py. Ends with a line that says what was done. --spins: nothing is killed; the run is stopped and submitted again, and that rank computes for ever instead.
--ppo: verl's PPO trainer, two workers, a critic, one
engine for each node, whose second worker dies in a save.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import ppo_recovery
from ray_recovery import TRAINER, RayBench, Run, never_came_up
from recovery import ENV, FULL, HERE, LIMIT, STEPS, attempts, nothing_left
from slurm_gang import property_of, slurm

EPOCHS = 6
HANGS_AT = 36  # a step as the worker of one attempt counts them: Ray's keep no other count
STALL = "  stall: {minimum: 20s, factor: 1.0, hard: 20m}\n"
GOING = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")


class Job(Run):
    """A run that is a job of Slurm's: its processes are on this machine, behind the walls of the nodes."""

    def __init__(self, bench, folder, command, env):
        self.root, self.env, self.output = folder / "checkpoints", env, folder / "job.out"
        # The supervisor is one of the job's processes.
        self.process = types.SimpleNamespace(pid=0)
        said = bench.call(command, env=env, cwd=folder).stdout
        self.job = re.search(r"^job (\d+) is submitted", said, re.M).group(1)
        self.run = self.wait(lambda: re.search(r"run ([0-9a-f]{16})", self.said()))[1]

    def said(self):
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def state(self):
        return property_of(self.job, "JobState", self.env)

    def wait(self, condition, alive=True):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if found := condition():
                return found
            assert not alive or self.state() in GOING, f"{self.state()}\n{self.said()[-6000:]}"
            time.sleep(0.2)
        raise AssertionError(f"it never came to that:\n{self.said()[-6000:]}\n{self.processes()}")


def on_node(pid, other):
    """Both are in one network."""
    return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{other}/ns/net")


def submit(bench, folder, config, command, more):
    """The run as a job of the cluster that MORE names."""
    env = more | {"GLOO_SOCKET_IFNAME": "eth0", "RAY_AUTH_MODE": "disabled", "FAULT_LEDGER": str(folder / "ledger")}  # names of the nodes do not resolve here
    env["PATH"] = f"{bench.programs}:{env['PATH']}"
    options = ["--time=60", f"--output={folder}/job.out", "--gres=none", "--cpus-per-task=1"]
    return Job(bench, folder, ["supervise", "sbatch", config, "--submit", "--", *options, "--", *command, f"hydra.run.dir={folder}/hydra"], env)


def on_two_nodes(folder, epochs, more):
    config = folder / "sft.yaml"
    text = config.read_text().replace("nnodes: 1\n  n_gpus_per_node: 2", "nnodes: 2\n  n_gpus_per_node: 1").replace("total_epochs: 1", f"total_epochs: {epochs}")
    # One worker fits on each node.
    ray = "  gang: {ray_start: [--num-cpus=1, --object-store-memory=200000000, --include-dashboard=false]}\n"
    config.write_text(text.replace("supervisor:\n", "supervisor:\n" + ray + more))
    return config


def ppo(bench, work):
    folder, root = work / "ppo", work / "ppo/checkpoints"
    folder.mkdir()
    config = folder / "ppo.yaml"
    text = ppo_recovery.YAML.format(model=bench.model, root=root, here=HERE, steps=ppo_recovery.STEPS)
    text = text.replace("nnodes: 1\n  n_gpus_per_node: 2", "nnodes: 2\n  n_gpus_per_node: 1").replace("num_cpus: 8, num_gpus: 2", "num_cpus: 6, num_gpus: 1")
    config.write_text(text)
    faults = [{"kind": "torn", "step": 2, "rank": 1, "file": "optim"}]
    with slurm(folder) as where:
        run = submit(bench, folder, config, [sys.executable, "-m", "verl.trainer.main_ppo"], ppo_recovery.ENV | where | {"FAULTS": json.dumps(faults)})
        run.wait(lambda: run.state() not in GOING, alive=False)
        assert run.state() == "COMPLETED", run.said()
        assert property_of(run.job, "Restarts", run.env) == "0"
    said = run.said()
    assert "resume from global_step_1" in said and "moved aside: global_step_2" in said, said
    for role in ("actor", "critic"):
        first, last = (ppo_recovery.optimizer_step(root, step, role) for step in (1, ppo_recovery.STEPS))
        assert last == ppo_recovery.STEPS * first, f"{role} did not go on: {first}, {last}"
    nothing_left(folder)
    print(f"two nodes, Ray over both: PPO torn in a save of step 2, brought back in job {run.job}; both optimizers went on to step {ppo_recovery.STEPS}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--spins", action="store_true")
    parser.add_argument("--ppo", action="store_true")
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="ray-nodes-"))
    bench = RayBench(args.programs.resolve(), work)
    if args.ppo:
        ppo(bench, work)
    else:
        killed_and_hung(bench, args.spins)
    if not args.work:
        shutil.rmtree(work)


def killed_and_hung(bench, spins):
    folder, bench.straight = bench.case("straight")
    bench.call([bench.programs / "supervise", "run", folder / "sft.yaml", "--", sys.executable, *TRAINER, f"hydra.run.dir={folder}/hydra"])
    folder, root = bench.case("ray")
    config = on_two_nodes(folder, EPOCHS, STALL)
    faults = [{"kind": "spin" if spins else "hang", "step": HANGS_AT, "rank": 1}]
    killed = [] if spins else ["raylet of the second node", "head", "driver"] if FULL else ["head"]
    if killed:
        faults += [{"kind": "slow", "step": step, "seconds": 2, "rank": 0} for step in range(2, STEPS + 1)]
    with slurm(folder) as where:
        env = ENV | where | {"FAULTS": json.dumps(faults), "FAULT_PACE": "1"}

        def again():
            return submit(bench, folder, config, [sys.executable, *TRAINER], env)

        run = again()
        if spins:
            stopped(bench, run, root)
            run = again()

        def victims():
            """Of each kind one process of the attempt that runs now."""
            gcs = run.pids("gcs_server")[0]
            # Our own process on each node has the driver's words too, and the driver's data loaders have its line.
            drivers = [p for p, (_, line) in run.processes().items() if TRAINER[1] in line and "__ray" not in line]
            far = [p for p in run.pids("raylet/raylet") if not on_node(p, gcs)]
            workers = run.pids("ray::Training")
            assert len(far) == 1 and len(workers) == 2, run.processes()
            assert sorted(on_node(p, gcs) for p in workers) == [False, True], "both workers are on one node"
            return {"raylet of the second node": far[0], "head": gcs, "driver": min(drivers)}

        for kind in killed:
            run.step(run.saved() + 1)
            before = max(attempt for attempt, _ in run.processes().values())
            run.kill(victims()[kind])
            run.wait(lambda before=before: any(a > before and "ray::Training" in line for a, line in run.processes().values()))
        run.wait(lambda: run.state() not in GOING, alive=False)
        assert run.state() == "COMPLETED", run.said()
        assert property_of(run.job, "Restarts", run.env) == "0"
    output = run.said()
    found = stalled(folder, output)
    assert "has 2 machines" in "".join(p.read_text(errors="replace") for p in sorted((root / ".supervise/attempts").glob("*/worker-0.log")))
    assert attempts(bench.status(root)) == len(killed) + 2 + spins + never_came_up(output), output
    said = json.loads(bench.call([bench.programs / "supervise", "history", root, "--json"]).stdout)
    classes = [a.get("class") or (a.get("diagnosis") or {}).get("class") for a in said.get("attempts", said)]
    assert "hang.step" in classes[len(killed):], classes
    bench.same_as_straight(root)
    nothing_left(folder)
    print(f"two nodes, Ray over both: {', '.join(killed) or 'nothing'} killed, brought back in job {run.job} ({classes}); {found}; tensors as in one go")


def stopped(bench, run, root):
    """The driver ends at SIGTERM, and with it Ray on both nodes: no grace is waited out."""
    # Before the first step: resumed at the end of an epoch, verl leaves one out.
    run.wait(lambda: run.pids("ray::Training"))
    bench.call([bench.programs / "supervise", "stop", root], env=run.env)
    run.wait(lambda: run.state() not in GOING, alive=False)
    assert "asked to stop" in run.said() and "did not end the workers in time" not in run.said(), run.said()


def stalled(folder, output):
    """What was said of the hang: it names the worker that Ray started, and its node."""
    fault = json.loads((folder / "ledger/fault-0").read_text())
    told = [line for line in output.splitlines() if "killing the workers" in line and "stuck: " in line]
    assert len(told) == 1 and "hard limit" not in told[0], output
    words = told[0].partition("stuck: ")[2]
    assert re.search(r"worker \d on node n\d \(", words), words
    # A rank is judged only if it had a core while it was well. Beside other tests it may have had none.
    ranks = {"the rank that hangs": rf"worker 1 on node n2 \(ray::Training[^ ,]*, pid {fault['pid']}\)", "the rank that waits for it": r"worker 0 on node n1 \(ray::Training"}
    for rank, pattern in ranks.items():
        if not re.search(pattern, words):
            assert not FULL, words
            words += f" ({rank} was not judged)"
    return words


if __name__ == "__main__":
    main()
