"""From the kill of a rank to the next training step, new or repeated: `supervise` with and without standby, a bash loop, torchrun.

usage: comeback.py SUPERVISE PYTHON [--trainer fsdp2|sft|hf|ppo|areal] [--kills 20] [--rows standby,cold,bash_loop,torchrun]

PYTHON is the interpreter of ../real/install.sh's environment, for areal of install_areal.sh's. `ppo` is verl's, over Ray: its driver stands by, and the one from which Ray's workers are forked.
`areal` has a row `launcher`, areal's own local launcher with its restarts; two programs stand in for what it needs of GPUs. Each kill is a SIGKILL of a random rank, after a step; where interpreters
are to stand by, once both are ready (how long that takes is a column). The clock stops at the first step that is on record after the
old ranks were gone. One JSON object a row, times in ms as [least, median, most], then a table with ratios to the first row.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import processes

GANG = {"gang.launcher": "gang", "gang.workers": 2, "gang.gpus": "none"}
HERE = Path(__file__).resolve().parent
REAL = HERE.parent / "real"
sys.path.insert(0, str(REAL))
import ppo_recovery  # noqa: E402
import standby as real  # noqa: E402

SETS = {"retries": 10000, "backoff.initial": "0s", "run_dir": "{dir}/run"}
ENV = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SFT_ENV = {"VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform", "VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda", "WITHOUT_MEGATRON": "1"}


ATTEMPT = 1 << 32
# Of each file how far it was read, and what was counted: read anew each time, the clock would take a third of a processor.
read_so_far = {}


def counted(log, mark):
    """How often a mark stands in the whole lines of a file that grows."""
    try:
        with open(log, "rb") as f:
            at, count = read_so_far.get(log, (0, 0))
            # A shorter one took its place.
            if f.seek(0, os.SEEK_END) < at:
                at, count = 0, 0
            f.seek(at)
            new = f.read()
    except FileNotFoundError:
        return 0
    new = new[: new.rfind(b"\n") + 1]
    read_so_far[log] = (at + len(new), count + new.count(mark))
    return read_so_far[log][1]


def printed(folder, mark):
    """Steps that were printed. An attempt's last lines may be written after its ranks are gone: those of the next one count for more."""
    logs = [(0, folder / "log")]
    logs += [(int(log.parent.name) * ATTEMPT, log) for log in folder.glob("run/attempts/*/worker-0.log")]
    counts = [(base, counted(log, mark)) for base, log in logs]
    return max((base + count for base, count in counts if count), default=0)


class Trainer:
    # How `supervise` starts it, and the peers; how many wait. For a driver other programs wait than what is killed.
    sets, ranks, waiting, driver = GANG, 2, 2, False
    # A rank has it in its environment.
    named = "RANK"

    def loop(self, words):
        return [str(HERE / "bash_loop.sh"), str(self.ranks), self.python, *words]


class Fsdp2(Trainer):
    pattern = "fsdp2_train.py"
    trainer = "plain"

    def __init__(self, python, place):
        self.python, self.env = python, ENV

    def words(self):
        return [str(REAL / "fsdp2_train.py"), "{dir}/out", "1000000"]

    def steps(self, folder):
        """Steps on record so far."""
        return counted(folder / "out/losses.jsonl", b"\n")


class Sft(Trainer):
    pattern = "verl.trainer.sft_trainer"
    trainer = "verl"

    def __init__(self, python, place):
        self.model = place / "model"
        subprocess.run([python, REAL / "make_tiny_model.py", self.model], check=True, stdout=subprocess.DEVNULL)
        venv = place / "venv"
        real.installed_plugin(venv, python)
        self.python, self.env = str(venv / "bin/python"), {**ENV, **SFT_ENV}

    def words(self):
        return ["-m", self.pattern, f"data.train_files={self.model}/train.parquet", "data.train_batch_size=16", "data.micro_batch_size_per_gpu=4",
                "data.use_dynamic_bsz=False", "data.max_length=128", "data.truncation=right", "data.num_workers=0",
                "data.ignore_input_ids_mismatch=True", f"model.path={self.model}", "model.use_remove_padding=False",
                "model.enable_gradient_checkpointing=False", "+model.override_config.attn_implementation=sdpa", "engine.strategy=fsdp2",
                "engine.use_torch_compile=False", "engine.dtype=float32", "trainer.device=cpu", "trainer.logger=[console]",
                "trainer.total_epochs=100000", "trainer.save_freq=1", "trainer.test_freq=-1", "trainer.max_ckpt_to_keep=2",
                "trainer.default_local_dir={dir}/out", "trainer.project_name=bench", "trainer.experiment_name=sft", "trainer.nnodes=1",
                "trainer.n_gpus_per_node=2", "hydra.run.dir={dir}/hydra"]

    def steps(self, folder):
        return printed(folder, b"train/loss:")


class Hf(Trainer):
    pattern = "hf_train.py"
    trainer = "plain"

    def __init__(self, python, place):
        self.python, self.env = python, ENV

    def words(self):
        return [str(REAL / "hf_train.py"), "--output_dir", "{dir}/out", "--max_steps", "1000000", "--save_steps", "1", "--logging_steps", "1",
                "--per_device_train_batch_size", "4", "--save_total_limit", "3", "--use_cpu", "--report_to", "none"]

    def steps(self, folder):
        return printed(folder, b"'grad_norm'")


class Ppo(Trainer):
    """verl's PPO over a Ray of its own: the driver starts all of it."""

    # Ray writes the class over the command line, and over the environment behind it.
    pattern, named = "ray::WorkerDict", None
    trainer, driver = "verl", True
    sets, ranks, waiting = {"rehearse": "false"}, 1, 2

    def __init__(self, python, place):
        real.installed_plugin(place / "venv", python)
        self.python, self.place = str(place / "venv/bin/python"), place
        self.env = {name: value for name, value in ppo_recovery.ENV.items() if os.environ.get(name) != value} | {"RAY_AUTH_MODE": "disabled"}
        del self.env["PYTHONPATH"]
        subprocess.run([python, REAL / "make_tiny_model.py", place / "model"], check=True, stdout=subprocess.DEVNULL)
        text = ppo_recovery.YAML.format(model=place / "model", root="out", here=REAL, steps=1000000)
        (place / "ppo.yaml").write_text(text.split("supervisor:")[0].replace("total_epochs: 10\n", "total_epochs: 1000000\n"))

    def words(self):
        return ["-m", "verl.trainer.main_ppo", "--config-path", str(self.place), "--config-name", "ppo", "trainer.default_local_dir={dir}/out",
                "trainer.max_actor_ckpt_to_keep=2", "trainer.max_critic_ckpt_to_keep=2", "hydra.run.dir={dir}/hydra"]

    def loop(self, words):
        return ["bash", "-c", 'while ! "$@"; do :; done', "loop", self.python, *words]

    def steps(self, folder):
        return printed(folder, b"training/global_step:")


class Areal(Trainer):
    """areal's SFT trainer: each rank a process of its own, or all below areal's local launcher."""

    pattern = "areal_sft.py"
    trainer = "areal"

    def __init__(self, python, place):
        self.python, self.yaml = python, place / "areal.yaml"
        import areal_bench

        # The launcher says in which mode the ranks are.
        os.environ.pop("AREAL_SPMD_MODE")
        # On CPU the launcher puts a list of devices before its command, under a variable without a name.
        for name, text in {"torchrun": f'exec {python} -m torch.distributed.run "$@"', "=0,0": 'exec "$@"'}.items():
            program = place / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/bash\n{text}\n")
            program.chmod(0o755)
        self.env = {**ENV, "LOGNAME": "bench", "PATH": f"{place}/bin:{Path(python).parent}:{os.environ['PATH']}"}
        subprocess.run([python, REAL / "make_tiny_model.py", place / "model"], check=True, stdout=subprocess.DEVNULL)
        text = areal_bench.YAML.format(root="out", model=place / "model", steps=1000000, batch=16, schedule="constant")
        # `on` is a truth value to YAML; areal alone does not take it.
        text = text.split("supervisor:")[0].replace("mode: on", "mode: auto")
        self.yaml.write_text(text.replace("total_train_epochs: 4", "total_train_epochs: 1000000"))

    def words(self):
        return [str(REAL / self.pattern), "--config", str(self.yaml), "cluster.fileroot={dir}/out", "cluster.name_resolve.nfs_record_root={dir}/names"]

    def launcher(self):
        script, *words = self.words()
        # It asks that both are there.
        made = ["bash", "-c", 'mkdir -p {dir}/out {dir}/names; exec "$@"', "launcher"]
        return [*made, "env", "-u", "AREAL_SPMD_MODE", self.python, "-m", "areal.infra.launcher.local", script, *words, "+allocation_mode=fsdp:d2",
                "+recover.retries=1000000"]

    def loop(self, words):
        return ["env", "AREAL_SPMD_MODE=1", *super().loop(words)]

    def steps(self, folder):
        logs = [folder / "log", *folder.glob("run/attempts/*/worker-0.log"), *folder.glob("out/logs/*/*/*/*.log")]
        return sum(counted(log, b"Train step") for log in logs)


TRAINERS = {"fsdp2": Fsdp2, "sft": Sft, "hf": Hf, "ppo": Ppo, "areal": Areal}


def command(row, trainer, supervise):
    if row == "bash_loop":
        return trainer.loop(trainer.words())
    if row == "launcher":
        return trainer.launcher()
    if row == "torchrun":
        # With the agent's store, or with a fixed port, a restarted gang of gloo ranks waits forever in init_process_group, see README.md.
        return ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", trainer.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=1000000", *trainer.words()]
    sets = {**SETS, **trainer.sets, "trainer": trainer.trainer, "standby": "auto" if row == "standby" else "off"}
    words = [word for key, value in sets.items() for word in ("--set", f"supervisor.{key}={value}")]
    return [supervise, "run", *words, "--", trainer.python, *trainer.words()]


class Run:
    def __init__(self, name, trainer, argv):
        self.folder, self.trainer = Path(tempfile.mkdtemp(prefix=f"bench-{name}-")), trainer
        argv = [word.replace("{dir}", str(self.folder)) for word in argv]
        self.launcher = processes.start(argv, self.folder.name, self.folder / "log", **trainer.env)

    def wait(self, what, condition, limit=600, every=0.01):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if found := condition():
                return found
            if self.launcher.poll() is not None:
                raise RuntimeError(f"the launcher ended with {self.launcher.returncode}: no {what}")
            time.sleep(every)
        raise RuntimeError(f"no {what} within {limit} s")

    def step_after(self, count):
        self.wait("step", lambda: self.trainer.steps(self.folder) > count)
        return time.monotonic()

    def ranks(self):
        mine = processes.of_launcher(self.launcher.pid, self.folder.name)
        awaited = lambda pid: processes.environment(pid, "SUPERVISE_AWAITED") and not processes.environment(pid, "SUPERVISE_ATTEMPT")
        named = lambda pid: self.trainer.named is None or processes.environment(pid, self.trainer.named) is not None
        driver = self.trainer.driver
        fit = lambda pid: self.trainer.pattern in processes.command_line(pid) and named(pid)
        waits = lambda pid: awaited(pid) and (driver or fit(pid))
        return [p for p in mine if fit(p) and not awaited(p)], [p for p in mine if waits(p)]

    def ready(self, every=0.01):
        """Interpreters that have imported all, and read their order."""
        def look():
            waiting = self.ranks()[1]
            calls = [Path(f"/proc/{pid}/syscall").read_text().split()[0] for pid in waiting]
            return len(waiting) == self.trainer.waiting and set(calls) == {"0"} and all(real.resident(pid) > 100 for pid in waiting) and waiting
        began = time.monotonic()
        found = self.wait("interpreters that are ready", look, every=every)
        return time.monotonic() - began, max(map(processes.private_kib, found)) / 1024

    def kill(self):
        old, before = self.ranks()[0], self.trainer.steps(self.folder)
        killed = time.monotonic()
        os.kill(random.choice(old), signal.SIGKILL)
        self.wait("end of the old ranks", lambda: not any(map(processes.stat, old)))
        over = (before // ATTEMPT + 1) * ATTEMPT if before >= ATTEMPT else self.trainer.steps(self.folder)
        return (self.step_after(over) - killed) * 1e3

    def end(self, keep):
        processes.end(self.launcher, self.folder.name)
        if not keep:
            shutil.rmtree(self.folder)


def measure(row, trainer, supervise, kills):
    result, took, ready, memory = {"row": row}, [], [], []
    run = Run(row, trainer, command(row, trainer, supervise))
    try:
        for _ in range(kills):
            run.step_after(run.trainer.steps(run.folder) + 1)
            if row == "standby":
                after, mib = run.ready()
                ready.append(after * 1e3)
                memory.append(mib)
            took.append(run.kill())
    except RuntimeError as error:
        result["stuck"] = f"{error}; see {run.folder}/log"
    finally:
        if row == "standby":
            result["not_ahead"] = colder(run.folder)
        run.end("stuck" in result)
    spread = lambda values: [round(f(values)) for f in (min, statistics.median, max)] if values else None
    return result | {"kills": len(took), "kill_to_step_ms": spread(took), "ready_ms": spread(ready),
                     "private_mib": round(statistics.median(memory)) if memory else None}


def colder(folder):
    """Why comebacks were not from interpreters that waited, from the journal."""
    lines = [line for file in sorted(folder.glob("run/journal/*.jsonl")) for line in file.read_text().splitlines()]
    launches = [body.get("ahead") for body in map(real.launched, lines) if body]
    return [ahead for ahead in launches[1:] if ahead != "went"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("supervise")
    parser.add_argument("python")
    parser.add_argument("--trainer", choices=TRAINERS, default="fsdp2")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", default="standby,cold,bash_loop,torchrun")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        trainer = TRAINERS[args.trainer](args.python, Path(place))
        rows = []
        for row in args.rows.split(","):
            rows.append(measure(row, trainer, args.supervise, args.kills))
            print(json.dumps(rows[-1]), flush=True)
    base = rows[0]["kill_to_step_ms"]
    print(f"\n{args.trainer}: kill of a rank to the next step\n| | median | slowest | x {rows[0]['row']} | kills | ready after | private a rank |")
    print("|---" * 7 + "|")
    for r in rows:
        t, ready = r["kill_to_step_ms"], r["ready_ms"]
        ratio = f"{t[1] / base[1]:.1f}" if t and base else ""
        cells = [r["row"], f"{t[1] / 1e3:.2f} s" if t else "", f"{t[2] / 1e3:.2f} s" if t else "", ratio, str(r["kills"]) + (", then stuck" if "stuck" in r else ""),
                 f"{ready[1] / 1e3:.0f} s" if ready else "", f"{r['private_mib']} MiB" if r["private_mib"] else ""]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
