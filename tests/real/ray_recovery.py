"""verl's Ray SFT trainer under `supervise`: its processes killed one kind after the other, two runs at once, a stop.

usage: ray_recovery.py PROGRAMS [--work DIR] [--only NAME]

As recovery.py, with the interpreter of the environment that install.sh makes. Ends with `N passed, M failed`.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import recovery
from recovery import ENV, FULL, HERE, attempts

LIMIT = 1800  # seconds until something happens: only a hang takes so long, on a machine however slow

RAY = Path(sys.executable).parent / "ray"
DAEMONS = ("gcs_server", "raylet", "dashboard.py", "log_monitor.py", "agent.py", "monitor.py")
TRAINER = ("-m", "verl.trainer.sft_trainer_ray")


# It goes on to the end, and leaves the machine to what is looked at.
SLOWLY = [{"kind": "slow", "step": step, "seconds": 5} for step in range(3, 800)]
# Ray gives its own processes half a minute to start, whatever is said: a busy machine needs another try, and as many as it takes.
PATIENT = "  policy: {ray.gcs: wait}\n  retries: 20\n"
NEVER_CAME_UP = re.compile(r"attempt (\d+): worker \d+ line \d+: Exception: The current node timed out during startup")


def never_came_up(said):
    """How many attempts ended so."""
    return len(set(NEVER_CAME_UP.findall(said)))


class RayBench(recovery.Bench):
    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.model = work / "model"
        self.runs = []
        self.call([sys.executable, HERE / "make_tiny_model.py", self.model])

    def case(self, name, steps=0):
        folder, root = super().case(name, steps)
        with open(folder / "sft.yaml", "a") as config:
            config.write(PATIENT)
        return folder, root

    def start(self, folder, *overrides, env=None, faults=None, submit=()):
        """`supervise run` in the background, its output in a file."""
        self.runs.append(Run(self, folder, overrides, env or {}, faults or [], submit))
        return self.runs[-1]


class Run:
    """One supervised run, and its processes: those that bear its mark."""

    def __init__(self, bench, folder, overrides, env, faults, submit):
        self.root, self.log = folder / "checkpoints", folder / "log"
        env = dict(ENV, **env, FAULTS=json.dumps(faults), FAULT_LEDGER=str(folder / "ledger"))
        argv = [bench.programs / "supervise", "run", folder / "sft.yaml", "--", *submit, sys.executable, *TRAINER,
                f"hydra.run.dir={folder}/hydra", *overrides]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([str(a) for a in argv], env=env, cwd=folder, stdout=log, stderr=log)
        self.run = self.wait(lambda: re.search(r"run ([0-9a-f]{16})", self.said()))[1]

    def said(self):
        return self.log.read_text()

    def wait(self, condition, alive=True):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            if alive and self.process.poll() is not None:
                raise AssertionError(f"the run ended with {self.process.returncode}:\n{self.said()[-6000:]}")
            time.sleep(0.2)
        raise AssertionError(f"it never came to that:\n{self.said()[-6000:]}\n{self.processes()}")

    def saved(self):
        tracker = self.root / "latest_checkpointed_iteration.txt"
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def step(self, at_least):
        self.wait(lambda: self.saved() >= at_least)

    def brought_back(self, attempt):
        """Waits until this attempt has saved a step."""
        self.wait(lambda: any(a == attempt for a, _ in self.processes().values()))
        self.step(self.saved() + 1)

    def processes(self):
        """pid: (attempt, command line)."""
        mark = f"SUPERVISE_ATTEMPT={self.run}/".encode()
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            marks = [w for w in words if w.startswith(mark)]
            if marks and line and int(pid) != self.process.pid:
                found[int(pid)] = (int(marks[0].split(b"/")[2]), line)
        return found

    def pids(self, *words):
        return sorted(p for p, (_, line) in self.processes().items() if any(w in line for w in words))

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(LIMIT)

    def driver(self):
        """The trainer itself, not the processes of its data loader, which look the same."""
        mine = self.pids("verl.trainer.sft_trainer_ray")
        return next(p for p in mine if int(Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[1]) not in mine)

    def daemons(self):
        return self.pids(*DAEMONS, "ray::") + [self.driver()]

    def scratch(self):
        return sorted(Path("/tmp").glob(f"ray-{self.run}-*"))

    def nothing_left(self):
        """No process bears the run's mark or names its directory, and that is gone, with Ray's session in it."""
        self.wait(lambda: not self.scratch(), alive=False)
        assert not self.processes(), self.processes()
        named = subprocess.run(["grep", "-l", "-a", f"ray-{self.run}-", *map(str, Path("/proc").glob("[0-9]*/cmdline"))],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        named = [line for line in named.splitlines() if Path(line).exists() and "grep" not in Path(line).read_text()]
        assert not named, named


def killed_beside_another_run(b):
    """Two runs on one machine: what is killed (a worker, with FULL=1 the raylet) is brought back, and is the other one bit for bit; that notices nothing, and is stopped."""
    shm = set(os.listdir("/dev/shm"))
    other = b.start(b.case("other")[0], "trainer.total_epochs=100", faults=SLOWLY)
    other.step(2)
    before = other.daemons()
    assert len(before) > len(DAEMONS), before
    folder, root = b.case("killed")
    run = b.start(folder, faults=[{"kind": "kill", "step": 3, "rank": 1}])
    run.brought_back(2)
    assert len(run.scratch()) == len(other.scratch()) == 1
    if FULL:
        run.kill(run.pids("raylet/raylet")[0])
    run.wait(lambda: run.process.poll() is not None, alive=False)
    said = run.said()
    assert run.process.returncode == 0, said
    assert "attempt 2: resume from global_step_2" in said, said
    assert "finished: step 8 is proven" in said, said
    assert attempts(b.status(root)) == 2 + FULL + never_came_up(said), said
    run.nothing_left()
    other.step(max(other.saved(), recovery.STEPS) + 1)
    # The rate is constant: how long a run is meant to be changes nothing of its steps.
    b.straight = other.root
    b.same_as_straight(root)
    assert other.daemons() == before, "the other run was disturbed"
    assert attempts(b.status(other.root)) == 1 + never_came_up(other.said())
    b.supervise("stop", other.root)
    assert other.process.wait(LIMIT) is not None
    other.nothing_left()
    left = {name for name in set(os.listdir("/dev/shm")) - shm if "plasma" in name and not in_use(name)}
    assert not left, left


def in_use(name):
    """A process maps this shared memory: a Ray of somebody else's."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if name in maps.read_text():
                return True
    return False


class Head:
    """A cluster as somebody starts it for many runs: one machine, no GPU, its files apart; ended by process, never by name.
    Its dashboard takes jobs."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ray-head-", dir="/tmp"))
        # Where a token of Ray's lies in the home directory, `ray start` asks for it and a plain `ray.init` does not send it.
        self.env = dict(ENV, RAY_TMPDIR=str(self.folder), RAY_AUTH_MODE="disabled", FAULTS=json.dumps(SLOWLY), FAULT_LEDGER=str(self.folder / "ledger"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.jobs_at = f"http://127.0.0.1:{port}"
        # The agent's usual port may be taken, by another cluster or by any connection: it would go on without it, and take no job for ever.
        argv = [RAY, "start", "--head", "--port=0", "--num-cpus=4", f"--dashboard-port={port}", "--dashboard-agent-listen-port=0",
                "--object-store-memory=200000000", "--disable-usage-stats"]
        done = subprocess.run([str(a) for a in argv], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stdout
        self.address = (self.folder / "ray/ray_current_cluster").read_text().strip()

    def pids(self, *words):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                mark = f"RAY_TMPDIR={self.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark and (not words or any(w in line for w in words)):
                found.append(int(pid))
        return sorted(found)

    def jobs(self):
        """name: how it is, in Ray's own words; of jobs that `supervise` submitted."""
        with urllib.request.urlopen(f"{self.jobs_at}/api/jobs/", timeout=LIMIT) as answer:
            found = [j for j in json.load(answer) if (j["submission_id"] or "").startswith("supervise-")]
        return {j["submission_id"]: j["status"] for j in sorted(found, key=lambda j: j["start_time"])}

    def takes_jobs(self):
        """Waits for the agent that starts jobs: on a busy machine it is there long after the head says that it is."""
        end = time.monotonic() + LIMIT
        while True:
            argv = [RAY, "job", "submit", f"--address={self.jobs_at}", "--", "true"]
            done = subprocess.run([str(a) for a in argv], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
            if done.returncode == 0:
                return
            assert "No available agent" in done.stdout and time.monotonic() < end, done.stdout

    def end(self):
        for _ in range(3):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        shutil.rmtree(self.folder, ignore_errors=True)


def as_a_job(b, head):
    """`ray job submit`: the job outlives the command, and is stopped by its name before the next one and at a stop."""
    folder, root = b.case("job")
    head.takes_jobs()
    submit = [RAY, "job", "submit", f"--address={head.jobs_at}", "--no-wait", "--"]
    run = b.start(folder, "trainer.total_epochs=100", env={"RAY_AUTH_MODE": "disabled"}, submit=submit)
    run.step(2)
    assert list(head.jobs().items()) == [(f"supervise-{run.run}-1", "RUNNING")], head.jobs()
    drivers = head.pids("verl.trainer.sft_trainer_ray")
    client, = run.pids("job submit")
    run.kill(client)
    run.brought_back(2)
    assert list(head.jobs().values()) == ["STOPPED", "RUNNING"], head.jobs()
    assert not set(drivers) & set(head.pids()), "the driver of attempt 1 lives beside that of attempt 2"
    b.supervise("stop", root)
    assert run.process.wait(LIMIT) == 7, run.said()
    assert list(head.jobs().values()) == ["STOPPED", "STOPPED"], head.jobs()
    # Ray says STOPPED a moment before the last process of the job is gone.
    end = time.monotonic() + LIMIT
    while head.pids("verl.trainer.sft_trainer_ray") or run.processes():
        assert time.monotonic() < end, (head.pids("verl.trainer.sft_trainer_ray"), run.processes())
        time.sleep(0.2)


def on_a_cluster_of_somebody_elses(b):
    head = Head()
    try:
        folder, root = b.case("guest")
        env = {"RAY_ADDRESS": head.address, "RAY_AUTH_MODE": "disabled"}
        words = [folder / "sft.yaml", "--json", "--", sys.executable, *TRAINER, f"hydra.run.dir={folder}/hydra", "trainer.total_epochs=100"]
        plan = json.loads(b.supervise("plan", *words, env=dict(ENV, **env)).stdout)
        told = {f["code"]: f["detail"] for f in plan["findings"]}
        assert head.address in told["ray_cluster"] and head.address in told["ray_found"], told
        assert not any(name in ("RAY_ADDRESS", "RAY_TMPDIR") for name, _ in plan["env"]), plan["env"]
        run = b.start(folder, "trainer.total_epochs=100", env=env)
        run.step(2)
        daemons, actors = head.pids("gcs_server", "raylet/raylet"), head.pids("ray::")
        assert actors and not run.scratch(), "the workers are not the cluster's"
        run.kill(run.driver())
        run.brought_back(2)
        still = set(head.pids("ray::Training")) & set(actors)
        assert not still, f"attempt 2 runs beside workers of attempt 1: {still}"
        b.supervise("stop", root)
        run.process.wait(LIMIT)
        assert not run.processes(), run.processes()
        as_a_job(b, head)
        assert head.pids("gcs_server", "raylet/raylet") == daemons, "the cluster was touched"
    finally:
        head.end()
    done = b.supervise("plan", *words, code=69, env=dict(ENV, **env))
    assert "does not answer" in done.stdout, done.stdout


def ending(case):
    """The same, and whatever comes of it, nothing that it started goes on behind it."""
    @functools.wraps(case)
    def ended(b):
        try:
            case(b)
        finally:
            while b.runs:
                b.runs.pop().end()
    return ended


CASES = [ending(killed_beside_another_run)]
if FULL:
    CASES.append(ending(on_a_cluster_of_somebody_elses))

if __name__ == "__main__":
    sys.exit(recovery.main(CASES, RayBench))
