#!/usr/bin/env python3
"""A real training on a GPU under `supervise run`, killed again and again: what stands by holds nothing of the GPU, what died has given it back before the launch.

usage: comeback.py SUPERVISE [--kills 10] [--cold-kills 3] [--trainers fsdp2,hf] [--device cuda|cpu] [--held-gib 40] [--limit 540]

Run it with the interpreter of an environment that has torch, transformers and accelerate. One rank; each attempt holds within a step until it is
killed. Before each kill, once the next interpreter is ready: that it has no /dev/nvidia* open or mapped, is not in nvidia-smi's list, and that the
memory in use did not grow. After it: how long until the memory is back, what nvidia-smi told the launch, how long that took. At every other kill a second
nvidia-smi samples the memory, which keeps the driver awake: comebacks with and without it are told apart. In the end the losses and weights are those of
a run in one go, bit for bit. Rows: standby, cold, and for FSDP2 a bash loop. After --limit seconds nothing more is killed, and what runs ends.

--device cpu tries the same without a GPU, with fake_nvidia_smi.py in its place. One JSON object a row, a table, and `N passed, M failed`; 77: skipped.
"""

import argparse
import json
import os
import pty
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REAL, BENCH = HERE.parent / "real", HERE.parent / "bench"
sys.path[:0] = [str(REAL), str(BENCH)]
import processes  # noqa: E402
import standby as real  # noqa: E402

SKIPPED = 77
# MiB by which memory in use may differ where it is meant to be the same: less than the smallest CUDA context takes.
SLACK = 64
ENV = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
SETS = real.SETS | {"gang.workers": 1, "gang.gpus": "[0]"}


class Checks:
    """What held, and what did not: by name, with how often."""

    def __init__(self):
        self.held, self.broken = {}, {}

    def __call__(self, name, holds, detail=""):
        if holds:
            self.held[name] = self.held.get(name, 0) + 1
        else:
            self.broken.setdefault(name, []).append(str(detail))
            print(f"FAILED {name}: {detail}", flush=True)
        return holds

    def tell(self):
        names = list(dict.fromkeys([*self.held, *self.broken]))
        for name in names:
            bad = len(self.broken.get(name, []))
            print(f"{'FAILED' if bad else 'ok':6} {name}: {self.held.get(name, 0)} of {self.held.get(name, 0) + bad}")
        print(f"{len(names) - len(self.broken)} passed, {len(self.broken)} failed")
        return 1 if self.broken or not names else 0


class Smi:
    """nvidia-smi, asked by this program; what the supervisor asks goes through a script that notes it."""

    def __init__(self, work, device):
        self.real = shutil.which("nvidia-smi") if device == "cuda" else str(HERE / "fake_nvidia_smi.py")
        self.log = work / "nvidia_smi.log"
        self.log.touch()
        (work / "bin").mkdir()
        (work / "bin/nvidia-smi").symlink_to(HERE / "watched_nvidia_smi.sh")
        self.env = {"NVIDIA_SMI": self.real, "NVIDIA_SMI_LOG": str(self.log), "PATH": f"{work}/bin:{os.environ['PATH']}", "FAKE_LEDGER": str(work)}

    def words(self, what, *more):
        return [self.real, f"--query-{what}", "--format=csv,noheader,nounits", *more]

    def ask(self, what, *more):
        said = subprocess.run(self.words(what, *more), env=os.environ | self.env, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        return said.stdout.strip()

    def used(self):
        return int(self.ask("gpu=memory.used", "-i", "0"))

    def processes(self):
        """Memory by process, where they are told."""
        found = [line.split(", ") for line in self.ask("compute-apps=pid,used_memory").splitlines()]
        return {int(words[0]): words[1] for words in found if words[0].isdigit()}

    def calls(self, begin, end):
        """Calls of the supervisor that began in this time: (begin, end, arguments, answer)."""
        lines = [line.split("\t") for line in self.log.read_text().splitlines()]
        all_ = [(float(line[0]), float(line[1]), *line[2:4]) for line in lines if len(line) >= 4]
        return [call for call in all_ if begin <= call[0] <= end]


class Samples:
    """Memory in use, each with its time, from one nvidia-smi that stays."""

    def __init__(self, smi):
        # With a terminal it prints each line when it has it.
        self.terminal, theirs = pty.openpty()
        words = smi.words("gpu=memory.used", "-i", "0", "-lms", "50")
        self.process = subprocess.Popen(words, env=os.environ | smi.env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.all = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        real.until("the first sample", lambda: self.all, 60)

    def read(self):
        rest = b""
        while True:
            try:
                more = os.read(self.terminal, 4096)
            except OSError:
                return
            *lines, rest = (rest + more).split(b"\n")
            self.all += [(time.time(), int(line)) for line in map(bytes.strip, lines) if line.isdigit()]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join(timeout=10)
        os.close(self.terminal)
        return self.all


class Fsdp2:
    name, sets, rows = "fsdp2", {"trainer": "plain"}, ("standby", "cold", "bash_loop")

    def __init__(self, device):
        self.device = device

    def command(self, out, steps):
        return [sys.executable, REAL / "fsdp2_train.py", out, steps, "--device", self.device]

    def has(self, out, step):
        losses = out / "losses.jsonl"
        return losses.exists() and f'"step": {step},' in losses.read_text()

    def differs(self, folder, straight, steps):
        one, other = (real.losses(f / "out/losses.jsonl") for f in (folder, straight))
        lost = [f"step {step}: {one.get(step)} and {other.get(step)}" for step in range(1, steps + 1) if one.get(step) != other.get(step)]
        weights, wanted = digests(folder), digests(straight)
        return lost + ([] if wanted and weights[-1:] == wanted[-1:] else [f"weights {weights} and {wanted}"])


class Hf:
    name, sets, rows = "hf", {"trainer": "hf"}, ("standby", "cold")

    def __init__(self, device):
        # It imports torch.
        import hf_recovery

        self.recovery, self.device = hf_recovery, device

    def command(self, out, steps):
        return [sys.executable, *self.recovery.flags(out, steps, 2, self.device), "--save_total_limit", 3]

    def has(self, out, step):
        """It is on disk with the next one: every other step is saved."""
        return (out / f"checkpoint-{step + 1}/trainer_state.json").exists()

    def differs(self, folder, straight, steps):
        return self.recovery.differs(*(f / f"out/checkpoint-{steps}" for f in (folder, straight)))


TRAINERS = {"fsdp2": Fsdp2, "hf": Hf}


def digests(folder):
    logs = [folder / "log", *sorted(folder.glob("run/attempts/*/worker-0.log"))]
    return re.findall(r"weights (\w+)", "\n".join(log.read_text() for log in logs if log.exists()))


def of_gpu(pid):
    """Devices that it has open, and those in its mappings."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    maps = Path(f"/proc/{pid}/maps").read_text()
    return sorted({link for link in links if link.startswith("/dev/nvidia")}), sorted(set(re.findall(r"/dev/nvidia\S*", maps))), "libcuda.so" in maps


class Row:
    """One way to come back, killed `kills` times."""

    def __init__(self, bench, trainer, row, kills):
        self.bench, self.trainer, self.row, self.kills = bench, trainer, row, kills
        self.name = f"{trainer.name}, {row}"
        self.folder = bench.work / f"{trainer.name}-{row}"
        self.out = self.folder / "out"
        self.folder.mkdir()
        self.comebacks, self.ready, self.memory, self.private, self.why, self.libcuda = [], [], [], [], [], 0

    def check(self, name, holds, detail=""):
        return self.bench.check(f"{self.name}: {name}", holds, detail)

    def start(self, holds):
        smi = self.bench.smi
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | ENV | smi.env
        env |= {processes.TAG: self.folder.name, "GPU_HELD_GIB": str(self.bench.held_gib)}
        if self.row in ("bash_loop", "straight"):
            start = [str(BENCH / "bash_loop.sh"), "1"]
        else:
            sets = SETS | self.trainer.sets | {"run_dir": self.folder / "run", "standby": "auto" if self.row == "standby" else "off"}
            start = [self.bench.supervise, "run", *(w for k, v in sets.items() for w in ("--set", f"supervisor.{k}={v}")), "--"]
        return real.Trial(None, self.folder, holds, self.trainer.command(self.out, self.bench.steps), env, 1, start)

    def run(self):
        holds = list(range(3, 3 + 2 * self.kills, 2))
        self.trial = t = self.start(holds)
        try:
            for n, step in enumerate(holds, 1):
                t.held(step)
                if self.bench.is_over():
                    print(f"{self.name}: the time is up after {n - 1} kills", flush=True)
                    break
                self.one(n, step)
            for step in holds:
                t.go(step)
            t.ends()
            self.nothing_else_came_of_it()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self.check("runs to its end", False, f"{error!s:.3000}; see {self.folder}")
        finally:
            processes.end(t.process, self.folder.name)

    def nothing_else_came_of_it(self):
        if self.row != "straight":
            self.check("was killed", self.comebacks)
            lost = self.trainer.differs(self.folder, self.bench.straight[self.trainer.name], self.bench.steps)
            self.check("losses and weights are those of a run in one go", not lost, lost[:5])

    def one(self, n, step):
        t, smi = self.trial, self.bench.smi
        worker = self.worker(n)
        before = smi.used()
        self.memory.append(before)
        if self.bench.device == "cuda":
            fds, _, _ = of_gpu(worker)
            self.check("the trainer itself has the GPU open (else nothing is shown here)", fds, f"{worker}: {fds}")
            self.check("the trainer holds what it should", before - self.bench.base >= self.bench.held_gib << 10, f"{before} MiB in use")
        if self.row == "standby":
            self.stand_by(n, worker, before)
        # Every other one is watched.
        samples = self.bench.samples() if n % 2 else None
        killed = time.time()
        os.kill(worker, 9)
        real.until(f"step {step} after the kill", lambda: t.alive() or self.trainer.has(self.out, step), 180)
        back = time.time()
        come = {"ms": (back - killed) * 1e3, "watched": samples is not None}
        if samples:
            low = [at for at, mib in samples.end() if at > killed and mib <= self.bench.base + SLACK]
            come["memory_back_ms"] = (low[0] - killed) * 1e3 if low else None
        if self.row in ("standby", "cold"):
            come |= self.launch(n, killed, back)
        self.comebacks.append(come)

    def worker(self, n):
        if self.row in ("standby", "cold"):
            return self.trial.workers(n)[0]
        return real.until("the loop's rank", lambda: self.trial.alive() or self.trial.marked(b"RANK"), 60)[0]

    def stand_by(self, n, worker, before):
        """Waits until the next interpreter is ready, and looks at it; one that is gone has left its reason for the launch to tell."""
        t, began = self.trial, time.monotonic()
        if self.why and self.is_lasting():
            return
        def ready():
            try:
                return t.are_ready()
            except OSError:
                return False
        try:
            real.until("an interpreter that begins", lambda: t.alive() or t.waiting(), 30)
            found = real.until("one that is ready", lambda: ready() or not t.waiting() and {"gone": 0}, 120)
        except AssertionError as error:
            self.check("an interpreter stands by before the kill", False, error)
            return
        if not self.check("an interpreter stands by before the kill", "gone" not in found, "it ended while it imported"):
            return
        self.ready.append((time.monotonic() - began) * 1e3)
        told = self.bench.smi.processes()
        for pid in found.values():
            fds, maps, libcuda = of_gpu(pid)
            self.libcuda += libcuda
            self.private.append(processes.private_kib(pid) / 1024)
            self.check("what stands by has no /dev/nvidia* open", not fds, f"{pid}: {fds}")
            self.check("what stands by has no /dev/nvidia* mapped", not maps, f"{pid}: {maps}")
            if worker in told:
                self.check("what stands by is not in nvidia-smi's list, the trainer is", pid not in told, f"{pid}: {told}")
            else:
                self.bench.note(f"nvidia-smi does not name the trainer's process here ({len(told)} told): its list says nothing about what stands by")
        now = self.bench.smi.used()
        self.check("no GPU memory is in use beside the trainer's", now - before <= SLACK, f"{before} MiB, then {now} MiB")

    def launch(self, n, killed, back):
        """What came before the launch: the journal, and what nvidia-smi was asked."""
        ahead = self.trial.kind(n + 1)
        if self.row == "standby" and not self.check("the next attempt had imported ahead", ahead == "went", ahead):
            self.why.append(ahead)
        calls = self.bench.smi.calls(killed, back)
        looks = [call for call in calls if call[2].startswith("--query-gpu=index")]
        launched = self.launched_at()[n]
        looks = [call for call in looks if call[0] <= launched]
        evidence = [call[1] - call[0] for call in calls if call[2].startswith("-q")]
        if not self.check("the launch looked at the GPU", looks, calls):
            return {}
        begin, end, _, said = looks[-1]
        used = int(said.split(", ")[2])
        self.check("memory is back before the launch, by what the launch itself was told", used <= self.bench.base + SLACK,
                   f"{used} MiB, before all of it {self.bench.base} MiB")
        return {"looks": len(looks), "to_look_ms": (looks[0][0] - killed) * 1e3, "look_ms": (end - begin) * 1e3, "to_launched_ms": (launched - end) * 1e3,
                "launched_to_step_ms": (back - launched) * 1e3, "evidence_ms": evidence[0] * 1e3 if evidence else None, "told_mib": used}

    def lines(self):
        return [line for f in sorted((self.folder / "run/journal").glob("*.jsonl")) for line in f.read_text().splitlines()]

    def launched_at(self):
        return [json.loads(line)["wall"] / 1e3 for line in self.lines() if real.launched(line)]

    def is_lasting(self):
        """No other interpreter is started ahead."""
        return any('"lasting":true' in line for line in self.lines())

    def result(self):
        def spread(key, of=lambda come: True):
            values = [come[key] for come in self.comebacks if come.get(key) is not None and of(come)]
            return [round(f(values)) for f in (min, statistics.median, max)] if values else None
        plain = lambda values: [round(f(values)) for f in (min, statistics.median, max)] if values else None
        out = {"trainer": self.trainer.name, "row": self.row, "device": self.bench.device, "kills": len(self.comebacks), "kill_to_step_ms": spread("ms"),
               "watched_ms": spread("ms", lambda come: come["watched"]), "unwatched_ms": spread("ms", lambda come: not come["watched"])}
        for key in ("to_look_ms", "looks", "look_ms", "to_launched_ms", "launched_to_step_ms", "evidence_ms", "memory_back_ms", "told_mib"):
            out[key] = spread(key)
        return out | {"base_mib": self.bench.base, "training_mib": plain(self.memory), "ready_ms": plain(self.ready), "private_mib": plain(self.private),
                      "libcuda_mapped": self.libcuda, "cold": self.why}


class Bench:
    def __init__(self, args, work):
        self.supervise, self.device, self.work = str(args.supervise.resolve()), args.device, work
        self.held_gib = args.held_gib if args.device == "cuda" else 0
        self.end = time.monotonic() + args.limit
        self.check, self.smi, self.notes, self.straight = Checks(), Smi(work, args.device), [], {}
        self.steps = 3 + 2 * max(args.kills, args.cold_kills) + 1
        print(self.smi.ask("gpu=name,driver_version,persistence_mode,memory.total"), flush=True)
        self.base = self.smi.used()
        began = time.monotonic()
        for _ in range(5):
            self.smi.ask("gpu=index,uuid,memory.used,memory.total,ecc.errors.uncorrected.volatile.total,retired_pages.pending")
        print(f"before all of it {self.base} MiB are in use; nvidia-smi alone takes {(time.monotonic() - began) * 200:.0f} ms (mean of 5)", flush=True)

    def is_over(self):
        return time.monotonic() > self.end

    def samples(self):
        try:
            return Samples(self.smi)
        except AssertionError as error:
            self.note(f"nvidia-smi does not sample here: {error}")
            return None

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", flush=True)


def rows_of(bench, name, args):
    """The results of one trainer; the run in one go is first, and warms the page cache."""
    trainer = TRAINERS[name](args.device)
    straight = Row(bench, trainer, "straight", 0)
    bench.straight[name] = straight.folder
    straight.run()
    for row in trainer.rows:
        one = Row(bench, trainer, row, args.kills if row == "standby" else args.cold_kills)
        one.run()
        result = one.result()
        print(json.dumps(result), flush=True)
        yield result


def table(results):
    print("\n| | kills | kill → step | slowest | with nobody watching | the launch's look | memory back after | ready after | private |\n" + "|---" * 9 + "|")
    for r in results:
        seconds = lambda key, n=1: f"{r[key][n] / 1e3:.2f} s" if r[key] else ""
        cells = [f"{r['trainer']}, {r['row']}", str(r["kills"]), seconds("kill_to_step_ms"), seconds("kill_to_step_ms", 2), seconds("unwatched_ms"),
                 f"{r['look_ms'][1]} ms" if r["look_ms"] else "", f"{r['memory_back_ms'][1]} ms" if r["memory_back_ms"] else "", seconds("ready_ms"),
                 f"{r['private_mib'][1]} MiB" if r["private_mib"] else ""]
        print(f"| {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("supervise", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--cold-kills", type=int, default=3)
    parser.add_argument("--trainers", default="fsdp2,hf")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--held-gib", type=int, default=40)
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if args.device == "cuda" and not (Path("/dev/nvidia0").exists() and shutil.which("nvidia-smi")):
        print("comeback.py: skipped: no GPU (/dev/nvidia0 and nvidia-smi)")
        return SKIPPED
    work = Path(tempfile.mkdtemp(prefix="gpu-comeback-"))
    bench = Bench(args, work)
    results = [result for name in args.trainers.split(",") for result in rows_of(bench, name, args)]
    table(results)
    failed = bench.check.tell()
    if failed or args.keep:
        print(f"its files: {work}")
    else:
        shutil.rmtree(work)
    return failed


if __name__ == "__main__":
    sys.exit(main())
