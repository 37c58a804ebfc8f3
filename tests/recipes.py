#!/usr/bin/env python3
"""Runs what docs/recipes.md shows: submitit and Hydra with the demo trainer, the YAML of the others through their own readers.

usage: recipes.py PROGRAMS [NAME...]    (a directory with `supervise`; the packages come from PyPI, into target/recipes)
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.argv[1]).resolve()
PLACE = TOP / "target/recipes"

SKYPILOT = """
import sky
task = sky.Task.from_yaml("recipe.yaml")
assert "supervise run" in task.run and all(r.use_spot for r in task.resources), task
"""
KUBEFLOW = """
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob as TrainJob
job = yaml.safe_load(open("recipe.yaml"))
def lost(put, got, path):
    if isinstance(put, dict):
        for key in put:
            yield from lost(put[key], got[key], f"{path}.{key}") if key in got else [f"{path}.{key}"]
    elif isinstance(put, list):
        for n, both in enumerate(zip(put, got, strict=True)):
            yield from lost(*both, f"{path}[{n}]")
assert not (unknown := list(lost(job, TrainJob.from_dict(job).to_dict(), "job"))), unknown
"""
DSTACK = """
import yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
task = parse_apply_configuration(yaml.safe_load(open("recipe.yaml")))
assert task.stop_duration == 420, task
"""
# Packages, the language of the recipe, and the program that reads it; without one it is run.
RECIPES = {
    "submitit": (["submitit==1.5.4"], "python", None),
    "Hydra": (["hydra-core==1.3.8", "hydra-submitit-launcher==1.2.0", "submitit==1.5.4"], "python", None),
    "SkyPilot": (["skypilot==0.14.1"], "yaml", SKYPILOT),
    "Kubeflow TrainJob": (["kubeflow_trainer_api==2.3.0", "pyyaml"], "yaml", KUBEFLOW),
    "dstack": (["dstack==0.22.5"], "yaml", DSTACK),
}


def block(name, language):
    section = (TOP / "docs/recipes.md").read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.S)[1]


def run(name):
    packages, language, reader = RECIPES[name]
    place = PLACE / name.split()[0].lower()
    python = place / "venv/bin/python"
    if not python.exists():
        venv.create(place / "venv", with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    env = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(place), "XDG_STATE_HOME": str(folder / "state")}
    recipe = block(name, language)

    def python_runs(*words):
        subprocess.run([python, *words], cwd=folder, env=env, check=True)

    if reader:
        (folder / "recipe.yaml").write_text(recipe)
        python_runs("-c", reader)
        return
    # On this machine, without its GPUs: a machine with Slurm's commands need not have a cluster.
    recipe = recipe.replace("gpus_per_node=8, ", "").replace('AutoExecutor("logs")', 'AutoExecutor("logs", cluster="local")')
    (folder / "recipe.py").write_text(recipe)
    shutil.copy(TOP / "examples/configs/demo.yaml", folder / "ppo.yaml")
    if name == "submitit":
        python_runs("recipe.py")
        assert finished(folder) == 1
    else:
        python_runs("recipe.py", "--multirun", "+demo.seed=20,21")
        assert finished(folder) == 2
        python_runs("recipe.py", "--multirun", "+demo.seed=22,23", "hydra/launcher=submitit_local")
        assert finished(folder) == 4


def finished(folder):
    """Runs that ended with their last step, after the four faults of the demo."""
    return len(list(folder.glob("**/checkpoints/global_step_14")))


for name in sys.argv[2:] or RECIPES:
    run(name)
    print(f"recipes.py: {name}: ok", flush=True)
