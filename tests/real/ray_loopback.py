"""verl's Ray SFT trainer on a cluster of a site's: a head and two nodes, each a `ray start` on an address of loopback's own. One node is
lost, then Ray's head, then the driver is killed. The tensors of both ranks are those of a run in one go on the same cluster.

usage: ray_loopback.py PROGRAMS [--work DIR]

The site starts what it lost again, once the run has seen the loss. Ends with a line that says what was done.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from own_network import own_network
from ray_recovery import LIMIT, RAY, TRAINER, RayBench
from recovery import ENV, HERE, nothing_left

STEPS = 12
# Steps as the workers of one attempt count them, that of the run in brackets: 3, 6 after 2, 10 after 5.
HOLDS_AT = (3, 4, 5)
ADDRESS = "127.0.0.11:6379"
HEAD, NODES = 1, (2, 3)
# A minute otherwise, in which nobody calls a head lost.
SOON = {"RAY_gcs_rpc_server_reconnect_timeout_s": "25", "RAY_AUTH_MODE": "disabled", "GLOO_SOCKET_IFNAME": "lo"}


class Site:
    """The cluster: its processes bear the mark of their node, and are ended by process, never by name."""

    def __init__(self, ledger):
        self.folder = Path(tempfile.mkdtemp(prefix="ray-site-", dir="/tmp"))
        self.ledger = ledger
        faults = [{"kind": "hold", "step": step, "rank": 1} for step in HOLDS_AT]
        self.env = dict(ENV, **SOON, RAY_TMPDIR=str(self.folder), FAULTS=json.dumps(faults), FAULT_LEDGER=str(ledger))

    def mark(self, node):
        return f"SITE_NODE={self.folder}/{node}"

    def start(self, *nodes):
        """The head before all others."""
        for node in nodes:
            words = ["--head", "--port=6379", "--include-dashboard=false"] if node == HEAD else [f"--address={ADDRESS}"]
            argv = [RAY, "start", *words, f"--node-ip-address=127.0.0.1{node}", f"--num-cpus={int(node != HEAD)}",
                    "--object-store-memory=100000000", "--disable-usage-stats"]
            name, value = self.mark(node).split("=")
            while True:
                done = subprocess.run([str(a) for a in argv], env=self.env | {name: value}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, timeout=LIMIT)
                if done.returncode == 0:
                    break
                # As ray_recovery.py says of it: half a minute is too short on a busy machine.
                assert "timed out during startup" in done.stdout or "Failed to connect to GCS" in done.stdout, done.stdout
                self.lose(node)

    def pids(self, *nodes, word=""):
        marks = {self.mark(node).encode() for node in nodes}
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                of_node = marks & set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
                if of_node and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
        return sorted(found)

    def lose(self, *nodes):
        """All processes of a node, and those that they start meanwhile."""
        while pids := self.pids(*nodes):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def end(self):
        self.lose(HEAD, *NODES)
        shutil.rmtree(self.folder, ignore_errors=True)


def two_nodes(bench, name):
    folder, root = bench.case(name)
    config = folder / "sft.yaml"
    text = config.read_text().replace("nnodes: 1\n  n_gpus_per_node: 2", "nnodes: 2\n  n_gpus_per_node: 1")
    config.write_text(text.replace("total_epochs: 1", f"total_epochs: 2\n  total_training_steps: {STEPS}"))
    return folder, root


class Lost:
    """One run, what is killed under it, and how long it took to come back."""

    def __init__(self, bench, site, folder):
        self.site, self.told = site, []
        self.run = bench.start(folder, env=SOON | {"RAY_ADDRESS": ADDRESS})

    def held(self, number):
        """Waits until the workers hold for the fault of this number: all steps before theirs are saved."""
        self.run.wait(lambda: (self.site.ledger / f"fault-{number}").exists())
        saved = self.run.saved()
        workers = [self.site.pids(node, word="ray::Training") for node in NODES]
        assert [len(w) for w in workers] == [1, 1], workers
        return saved, workers

    def ended(self, attempts):
        """Waits until so many attempts are over, as the run itself says."""
        self.run.wait(lambda: len(set(re.findall(r"attempt (\d+): worker 0 exited", self.run.said()))) == attempts)

    def back(self, what, began, saved):
        self.run.step(saved + 1)
        # One that waits for the cluster leaves a number out.
        resumed = re.findall(r"attempt \d+: resume from global_step_(\d+)", self.run.said())
        assert int(resumed[-1]) == saved, (resumed, saved)
        self.told.append(f"{what}: resumed from {saved}, a step further after {time.monotonic() - began:.0f} s")
        print(self.told[-1], flush=True)


def lost_and_brought_back(bench, site):
    straight, bench.straight = two_nodes(bench, "straight")
    site.ledger.mkdir()
    for step in HOLDS_AT:
        (site.ledger / f"go-{step}").touch()
    begun = bench.start(straight, env=SOON | {"RAY_ADDRESS": ADDRESS})
    begun.wait(lambda: begun.process.poll() is not None, alive=False)
    assert begun.process.returncode == 0, begun.said()
    shutil.rmtree(site.ledger)

    folder, root = two_nodes(bench, "lost")
    lost = Lost(bench, site, folder)
    run = lost.run

    saved, _ = lost.held(0)
    began = time.monotonic()
    site.lose(NODES[1])
    lost.ended(1)
    site.start(NODES[1])
    lost.back("a node lost", began, saved)

    saved, _ = lost.held(1)
    began = time.monotonic()
    gcs, = site.pids(HEAD, word="gcs_server")
    os.kill(gcs, signal.SIGKILL)
    lost.ended(2)
    run.wait(lambda: "waiting for a cluster that does not answer" in bench.supervise("status", root).stdout)
    site.lose(HEAD, *NODES)
    site.start(HEAD, *NODES)
    lost.back("its head killed, the cluster started anew", began, saved)

    saved, workers = lost.held(2)
    began = time.monotonic()
    run.kill(run.driver())
    lost.back("the driver killed", began, saved)
    still = set(site.pids(*NODES, word="ray::Training")) & set(sum(workers, []))
    assert not still, f"the last attempt runs beside workers of the one before: {still}"

    run.wait(lambda: run.process.poll() is not None, alive=False)
    said = run.said()
    assert run.process.returncode == 0 and f"finished: step {STEPS} is proven" in said, said
    assert said.count("1 worker started") == 4, said
    bench.call([sys.executable, HERE / "compare_pt.py", bench.straight / f"global_step_{STEPS}", root / f"global_step_{STEPS}"])
    assert not run.processes(), run.processes()
    nothing_left(folder)
    print(f"Ray on loopback, a head and two nodes: {'; '.join(lost.told)}; tensors as in one go")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    own_network()
    work = args.work or Path(tempfile.mkdtemp(prefix="ray-loopback-"))
    work.mkdir(exist_ok=True)
    bench = RayBench(args.programs.resolve(), work)
    site = Site(work / "ledger")
    try:
        site.start(HEAD, *NODES)
        lost_and_brought_back(bench, site)
    finally:
        while bench.runs:
            bench.runs.pop().end()
        site.end()
    if not args.work:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
