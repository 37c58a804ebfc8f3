"""verl's own SFT trainer on two nodes of a real Slurm cluster, FSDP2 over gloo: a rank is killed and brought back in the same allocation. The
tensors of both ranks and the losses are those of a run in one go, without Slurm.

usage: slurm_gang.py PROGRAMS [--work DIR]

Root is needed: each node has a network, processes and a host name of its own (tests/testbed/slurm-nodes.sh). Takes about a minute.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recovery import ENV, HERE, LIMIT, STEPS, Bench, attempts, nothing_left

CLUSTER = HERE.parent / "testbed/slurm-nodes.sh"
LOSS = re.compile(r"step:(\d+) .*?train/loss:(?:np\.float\w+\()?([-\d.e]+)")


def free_ports():
    """The first of four ports in a row that nobody has."""
    for first in range(20000 + os.getpid() % 2500 * 4, 32000, 4):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + 4):
                    stack.enter_context(socket.socket()).bind(("0.0.0.0", port))
                return first
            except OSError:
                continue
    raise AssertionError("no free ports")


@contextlib.contextmanager
def slurm(folder):
    subprocess.run([CLUSTER, "install"], check=True, stdout=subprocess.DEVNULL)
    log = (folder / "cluster.log").open("w")
    # Its daemons keep what they inherit: no pipe of ours.
    quiet = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    place = folder / "cluster"
    subprocess.run([CLUSTER, "up", place, str(free_ports())], check=True, env={**os.environ, "NODES": "2"}, **quiet)
    try:
        yield {"SLURM_CONF": f"{place}/etc/slurm.conf"}
    finally:
        subprocess.run([CLUSTER, "down", place], **quiet)


def property_of(job, name, env):
    text = subprocess.run(["scontrol", "-o", "show", "job", job], env=env, capture_output=True, text=True, check=True).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word).get(name)


def losses(texts):
    return {int(step): float(loss) for text in texts for step, loss in LOSS.findall(text)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="slurm-gang-"))
    bench = Bench(args.programs.resolve(), work)
    straight = losses([Path(f"{bench.straight}.log").read_text()])
    folder, root = bench.case("gang")
    config = folder / "sft.yaml"
    config.write_text(config.read_text().replace("nnodes: 1\n  n_gpus_per_node: 2", "nnodes: 2\n  n_gpus_per_node: 1"))
    with slurm(folder) as where:
        faults = [{"kind": "kill", "step": 4, "rank": 1}]
        # Names of the nodes do not resolve here.
        env = ENV | where | {"GLOO_SOCKET_IFNAME": "eth0", "FAULTS": json.dumps(faults), "FAULT_LEDGER": str(folder / "ledger")}
        env["PATH"] = f"{bench.programs}:{env['PATH']}"
        options = ["--time=60", f"--output={folder}/job.out", "--gres=none", "--cpus-per-task=1"]
        command = [sys.executable, "-m", "verl.trainer.sft_trainer", f"hydra.run.dir={folder}/hydra"]
        said = bench.call(["supervise", "sbatch", config, "--submit", "--", *options, "--", *command], env=env, cwd=folder).stdout
        job = re.search(r"^job (\d+) is submitted", said, re.M).group(1)
        limit = time.time() + LIMIT
        while (state := property_of(job, "JobState", env)) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.time() < limit, state
            time.sleep(0.5)
        output = (folder / "job.out").read_text()
        assert state == "COMPLETED", f"{state}\n{output}"
        assert property_of(job, "Restarts", env) == "0"
        assert len(list((folder / "ledger").iterdir())) == 1, output
    assert attempts(bench.status(root)) == 2, output
    journal = "".join(p.read_text() for p in sorted((root / ".supervise/journal").glob("*.jsonl")))
    assert journal.count('"nodes":["n1","n2"]') == 2, journal
    bench.same_as_straight(root)
    logs = sorted((root / ".supervise/attempts").glob("*/worker-0.log"))
    ours = losses(p.read_text(errors="replace") for p in logs)
    assert sorted(ours) == list(range(1, STEPS + 1)), ours
    assert ours == {step: straight[step] for step in ours}, (ours, straight)
    nothing_left(folder)
    if not args.work:
        shutil.rmtree(work)
    print(f"two nodes, one rank on each: rank 1 killed in step 4, brought back in job {job}; {STEPS} steps, tensors and losses as in one go: {ours}")


if __name__ == "__main__":
    main()
