"""Real trainers whose next attempt's interpreters wait (`standby: auto`): killed again and again, beside the same run in one go.

usage: standby.py PROGRAMS [--work DIR] [--only plain|verl]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the environment that install.sh makes. Every attempt
holds within a step until the test has done what it is about; the seed of the ranks that are killed is printed. Losses and weights are
compared with those of a run in one go, bit for bit; each comeback's kind with the journal. STANDBY_KILLS=20 in the environment kills
so often while all is ready (verl: at most five times; default 2 and 1). Ends with `N passed, M failed`.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import recovery

HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("STANDBY_KILLS", "0"))
SETS = {"trainer": "plain", "gang.launcher": "gang", "gang.workers": 2, "gang.gpus": "none", "backoff.initial": "0s", "retries": 1000}
NAMES_LATER = """
import importlib, os, sys
for line in open(sys.argv[1]):
    kind, _, name = line.rstrip("\\n").partition(" ")
    if kind == "i":
        try:
            importlib.import_module(name)
        except ImportError:
            pass
os.write(1, b"ready")
os.read(0, 1)
"""


def until(what, condition, limit=600):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit} s")


def environment(pid):
    try:
        return dict(v.split(b"=", 1) for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in v)
    except OSError:
        return {}


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def opened(pid):
    """Its open files by kind, without what counts them."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{fd}")))
        except OSError:
            pass
    return Counter(links)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


class Trial:
    """A supervised run that holds where it is asked to."""

    def __init__(self, programs, folder, holds, command, env, ranks=2, start=None):
        self.ranks = ranks
        self.folder, self.ledger, self.run_dir = folder, folder / "ledger", folder / "run"
        self.faults = [{"kind": "hold", "step": step} for step in holds]
        env = dict(env, FAULTS=json.dumps(self.faults), FAULT_LEDGER=str(self.ledger))
        sets = [f"supervisor.run_dir={self.run_dir}", "supervisor.standby=auto"]
        words = [w for s in sets for w in ("--set", s)]
        argv = [*(start or [str(programs / "supervise"), "run", *words]), *map(str, command)]
        self.log = folder / "log"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the run ended with {self.process.returncode}:\n{self.log.read_text()[-6000:]}")

    def held(self, step):
        """A rank holds in this step."""
        number = next(i for i, f in enumerate(self.faults) if f["step"] == step)
        until(f"step {step} holds", lambda: self.alive() or (self.ledger / f"fault-{number}").exists())

    def marked(self, name):
        """Processes of this run whose environment has this name, by rank."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            env = environment(pid)
            if env.get(b"FAULT_LEDGER") == str(self.ledger).encode() and name in env and b"RANK" in env and is_running(pid):
                found[int(env[b"RANK"])] = int(pid)
        return found

    def waiting(self):
        return self.marked(b"SUPERVISE_AWAITED")

    def both_wait(self):
        return until("interpreters were started ahead", lambda: self.alive() or (w := self.waiting()) and len(w) == self.ranks and w)

    def are_ready(self):
        """All have imported all, and read their order: the system call says so."""
        self.alive()
        waiting = self.waiting()
        calls = [Path(f"/proc/{pid}/syscall").read_text().split()[0] for pid in waiting.values()]
        return len(calls) == self.ranks and set(calls) == {"0"} and all(resident(pid) > 100 for pid in waiting.values()) and waiting

    def ready(self):
        return until("the interpreters are ready", self.are_ready)

    def workers(self, attempt):
        """All ranks of this attempt, as others find them."""
        def found():
            self.alive()
            of = self.marked(b"SUPERVISE_ATTEMPT")
            of = {r: p for r, p in of.items() if environment(p).get(b"SUPERVISE_ATTEMPT", b"").endswith(b"/%d" % attempt)}
            return len(of) == self.ranks and of
        return until(f"attempt {attempt} runs", found)

    def kill(self, attempt, rank=None):
        rank = random.randrange(self.ranks) if rank is None else rank
        os.kill(self.workers(attempt)[rank], signal.SIGKILL)
        return time.monotonic()

    def go(self, step):
        (self.ledger / f"go-{step}").touch()

    def kind(self, attempt):
        """`went`, or why the start was cold; None: it is the first."""
        def launches():
            lines = [line for f in sorted((self.run_dir / "journal").glob("*.jsonl")) for line in f.read_text().splitlines()]
            found = [body for body in map(launched, lines) if body]
            return len(found) >= attempt and found
        ahead = until(f"the launch of attempt {attempt} is in the journal", launches)[attempt - 1].get("ahead")
        return ahead["cold"]["why"] if isinstance(ahead, dict) else ahead

    def ends(self):
        assert self.process.wait(timeout=900) == 0, self.log.read_text()[-6000:]


def launched(line):
    try:
        value = json.loads(line)
    except ValueError:
        return None
    todo = [value]
    while todo:
        at = todo.pop()
        if isinstance(at, dict):
            if isinstance(at.get("launched"), dict):
                return at["launched"]
            todo += at.values()
    return None


def resident(pid):
    """In MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 // 1024


def guard_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def holds_no_more_than_a_new_one(trial, waiting):
    """Beside an interpreter that has just imported the same: its channel is all that one that waits has more."""
    guard = guard_of(waiting[0])
    texts = [p.read_bytes() for p in Path(f"/proc/{guard}/fd").iterdir() if os.readlink(p).startswith("/memfd:interpreter")]
    names = trial.folder / "names"
    names.write_bytes(next(t for t in texts if t.startswith(b"b ")))
    env = {os.fsdecode(k): os.fsdecode(v) for k, v in environment(waiting[0]).items() if not k.startswith(b"SUPERVISE_")}
    env["PYTHONPATH"] = ":".join(p for p in env.get("PYTHONPATH", "").split(":") if not p.startswith("/proc/"))
    new = subprocess.Popen([sys.executable, "-c", NAMES_LATER, names], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert new.stdout.read(5) == b"ready"
    try:
        for rank, pid in waiting.items():
            more = opened(pid) - opened(new.pid) - Counter({"/dev/null": 1, "socket:[N]": 1, "pipe:[N]": 1})
            assert not more, f"rank {rank} holds {more}"
            assert threads(pid) <= threads(new.pid), f"rank {rank}: {threads(pid)} threads, a new one {threads(new.pid)}"
            assert "/dev/nvidia" not in Path(f"/proc/{pid}/maps").read_text()
    finally:
        new.stdin.close()
        new.wait()


def losses(path):
    """Step to loss; a step that was trained twice came to the same."""
    found = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        assert found.setdefault(entry["step"], entry["loss"]) == entry["loss"], f"step {entry['step']} was trained twice, and differs"
    return found


def went(kinds):
    """Those that were ready go on: a machine that is busy elsewhere may keep one from answering in time, never all of them."""
    assert set(kinds) <= {"went", "it gave no answer"} and "went" in kinds, kinds


def plain_ranks(b):
    """FSDP2 in torch alone: killed while they are ready, while they import, when they are gone, before the first step."""
    kills = KILLS or 2
    folder = b.work / "plain"
    folder.mkdir()
    ready = list(range(3, 3 + 2 * kills, 2))
    at = ready[-1]
    importing, gone, early, guardless = at + 2, at + 4, at + 6, at + 8
    steps = guardless + 1
    script = [sys.executable, HERE / "fsdp2_train.py"]
    straight = folder / "straight"
    in_one_go = b.call([HERE / "gang.sh", 2, *script, straight, steps]).stdout
    sets = [w for key, value in SETS.items() for w in ("--set", f"supervisor.{key}={value}")]
    t = Trial(b.programs, folder, [*ready, importing, gone, early, guardless], [*sets, "--", *script, folder / "out", steps], b.env)
    cold, kinds = {}, []
    for n, step in enumerate(ready, 1):
        t.held(step)
        waiting = t.ready()
        now = {rank: (opened(pid), threads(pid)) for rank, pid in t.workers(n).items()}
        if n == 1:
            holds_no_more_than_a_new_one(t, waiting)
            cold = now
        if n > 1:
            kinds.append(t.kind(n))
        for rank, (files, count) in now.items():
            assert not files - cold[rank][0] and count <= cold[rank][1], f"attempt {n}, rank {rank}: {files - cold[rank][0]}, {count} threads"
        t.kill(n)
    n = len(ready) + 1
    t.held(importing)
    kinds.append(t.kind(n))
    went(kinds)
    t.both_wait()
    t.kill(n)
    t.held(gone)
    # A module that takes longer than the order waits makes the start cold.
    amid = t.kind(n + 1)
    assert amid == "went" or "no answer" in amid, amid
    os.kill(t.ready()[random.randrange(2)], signal.SIGKILL)
    t.kill(n + 1)
    t.held(early)
    assert "it is gone" in t.kind(n + 2), t.kind(n + 2)
    t.ready()
    t.kill(n + 2)
    # Between the order and the first step.
    t.kill(n + 3)
    t.held(guardless)
    went([*kinds, t.kind(n + 3)])
    assert "no step" in t.kind(n + 4), t.kind(n + 4)
    waiting = t.ready()
    os.kill(guard_of(waiting[0]), signal.SIGKILL)
    until("they end with their guard", lambda: not any(map(is_running, waiting.values())))
    t.kill(n + 4)
    t.ends()
    assert "gone" in t.kind(n + 5), t.kind(n + 5)
    assert losses(folder / "out/losses.jsonl") == losses(straight / "losses.jsonl")
    digest = re.findall(r"weights \w+", in_one_go)[-1]
    assert digest in t.log.read_text() or digest in (t.run_dir / f"attempts/{n + 5:04}/worker-0.log").read_text(), digest
    recovery.nothing_left(folder)


def verls_ranks(b):
    """verl's SFT trainer, its CPU platform installed as any plugin is."""
    kills = min(KILLS or 1, recovery.STEPS - 3)
    folder, root = b.case("sft")
    venv = installed_plugin(b.work / "venv")
    ready = list(range(2, 2 + kills))
    env = dict(b.env, PYTHONPATH="")
    (folder / "sft.yaml").write_text((folder / "sft.yaml").read_text().replace("initial: 200ms", "initial: 0s"))
    command = [folder / "sft.yaml", "--", venv / "bin/python", "-m", "verl.trainer.sft_trainer", f"hydra.run.dir={folder}/hydra"]
    t = Trial(b.programs, folder, [*ready, ready[-1] + 2], command, env)
    kinds = []
    for n, step in enumerate(ready, 1):
        t.held(step)
        waiting = t.ready()
        if n > 1:
            kinds.append(t.kind(n))
        if n == 1:
            holds_no_more_than_a_new_one(t, waiting)
        t.kill(n)
    n = len(ready) + 1
    t.held(ready[-1] + 2)
    went([*kinds, t.kind(n)])
    t.both_wait()
    t.kill(n)
    t.ends()
    amid = t.kind(n + 1)
    assert amid == "went" or "no answer" in amid, amid
    b.same_as_straight(root)
    recovery.nothing_left(folder)


def both(b):
    """At once: what one waits for, the other computes."""
    with ThreadPoolExecutor() as pool:
        for case in [pool.submit(plain_ranks, b), pool.submit(verls_ranks, b)]:
            case.result()


def installed_plugin(place, python=sys.executable):
    """An environment over that of this interpreter which has the plugin in its site-packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
    site = next((place / "lib").glob("python3*/site-packages"))
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    below = subprocess.run(ask, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    for name in ("verl_cpu_platform.py", "verl_ppo_cpu.py", "fault_hooks.py"):
        shutil.copy(HERE / name, site)
    return place


class Bench(recovery.Bench):
    env = {k: v for k, v in recovery.ENV.items() if k != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    seed = random.randrange(1 << 30)
    random.seed(seed)
    print(f"seed {seed}", flush=True)
    alone = any(word.startswith("--only") for word in sys.argv)
    sys.exit(recovery.main([plain_ranks, verls_ranks] if alone else [both], Bench))
