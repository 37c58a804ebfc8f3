"""Makes one folder of real checkpoints for each writer that there is, with two steps in each.

usage: make_checkpoints.py OUT [--areal VENV] [--steps 2]       (run with the python of install.sh's environment; about 50 s)

Each writer is a script beside this one, started as a gang of two CPU ranks; two gangs run at a time. What is there in the
end is named in `catalogue`. Output that exists already is kept.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
AREAL_TRIAL = Path("checkpoints/trainer/real/t0")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gang(python, script, *args, log, **env):
    """Two ranks of a script; its whole output where it fails."""
    command = [HERE / "gang.sh", "2", python, *script, *args]
    return run(command, log, PORT=str(free_port()), LOG_DIR=str(log), GRACE="5", **env)


def run(command, log, **env):
    log.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PYTHONWARNINGS": "ignore", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    if done.returncode:
        for path in sorted(log.iterdir()):
            print(f"== {path}\n{path.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise SystemExit(f"{' '.join(map(str, command))}: ended with {done.returncode}\n{done.stdout[-3000:]}")


class Writers:
    """The jobs, each with the folder in OUT that it makes."""

    def __init__(self, out, areal, steps):
        self.out, self.areal, self.steps = out, areal, str(steps)
        self.python, self.model, self.logs = sys.executable, out / "model", out / "logs"

    def tiny_model(self):
        run(
            [self.python, HERE / "make_tiny_model.py", self.model, "--hidden", "8", "--layers", "1", "--vocab", "64"],
            self.logs / "model",
        )

    def megatron(self, out):
        gang(self.python, [HERE / "verl_megatron_manager.py"], out, self.model, "--steps", self.steps, log=self.logs / "megatron")

    def areal_trainer(self, out):
        # Its path has the name of the user in it.
        gang(
            self.areal / "bin/python", [HERE / "areal_sft.py"], self.model, out, "--steps", "4", "--earlier",
            out / "earlier", log=self.logs / "areal", AREAL_SPMD_MODE="1", TORCH_COMPILE_DISABLE="1", LOGNAME="trainer",
        )  # fmt: skip

    def fsdp(self, strategy):
        def make(out):
            manager = HERE / "verl_fsdp_manager.py"
            gang(
                self.python, [manager], out, self.model, "--strategy", strategy, "--critic", "--steps", self.steps, log=self.logs / strategy
            )  # fmt: skip

        return make

    def sft(self, out):
        venv = Path(sys.prefix)
        log = self.logs / "sft"
        command = [HERE / "sft.sh", venv, self.model, out, f"trainer.total_training_steps={self.steps}"]
        run(command, log, PORT=str(free_port()), LOG_DIR=str(log))
        shutil.rmtree(f"{out}.hydra", ignore_errors=True)

    def dcp(self, out):
        gang(self.python, [HERE / "dcp_writers.py"], out, "--steps", self.steps, log=self.logs / "dcp")

    def plain(self, out):
        run([self.python, HERE / "plain_writers.py", out, self.model], self.logs / "plain")

    def jobs(self):
        """Longest first."""
        found = {
            "verl_megatron": self.megatron,
            "verl_fsdp1": self.fsdp("fsdp"),
            "verl_fsdp2": self.fsdp("fsdp2"),
            "verl_sft": self.sft,
            "dcp": self.dcp,
            "plain": self.plain,
        }
        return {"areal": self.areal_trainer, **found} if self.areal else found


def make(out, areal, steps=2):
    """Makes what is missing in OUT."""
    out.mkdir(parents=True, exist_ok=True)
    writers = Writers(out.resolve(), areal, steps)
    if not writers.model.exists():
        writers.tiny_model()

    def one(name, job):
        folder = writers.out / name
        if not folder.exists():
            fresh = writers.out / f"{name}.partial"
            shutil.rmtree(fresh, ignore_errors=True)
            job(fresh)
            fresh.rename(folder)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(one, *item) for item in writers.jobs().items()]:
            done.result()


def catalogue(out):
    """Name to the folders of its two steps, one list for each checkpoint in OUT."""
    found = {}
    for name in ("verl_fsdp1", "verl_fsdp2", "verl_sft"):
        found[name] = [out / name / f"global_step_{step}" for step in (1, 2)]
    for folder in sorted((out / "verl_megatron").iterdir()):
        found[f"megatron_{folder.name}"] = [folder / f"global_step_{step}" for step in (1, 2)]
    for parent in ("dcp", "plain"):
        for folder in sorted((out / parent).iterdir()):
            found[folder.name] = [folder / f"step_{step}" for step in (1, 2)]
    if (out / "areal").exists():
        trials = [out / "areal" / "earlier", out / "areal" / AREAL_TRIAL]
        found["areal_dcp"] = [trial / "default" / "recover_checkpoint" for trial in trials]
        found["areal_hf"] = sorted(trials[1].glob("default/epoch*"))
        found["areal_trial"] = trials
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--areal", type=Path, help="the environment that install_areal.sh made")
    parser.add_argument("--steps", type=int, default=2, help="more than the two that most scripts look at")
    args = parser.parse_args()
    make(args.out, args.areal, args.steps)
    for name, steps in catalogue(args.out).items():
        size = sum(path.stat().st_size for path in steps[0].rglob("*") if path.is_file())
        print(f"{name:<28} {len(steps)} steps, {size / 1024:7.1f} KiB each")


if __name__ == "__main__":
    main()
