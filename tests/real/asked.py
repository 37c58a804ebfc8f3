"""A package of recipes of one's own, against verl itself: an entry point, a configuration and a search path that no table of ours
knows are composed by the interpreter that would run them.

usage: asked.py PROGRAMS

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the environment that install.sh makes.
Ends with `N passed`, or with the first case that differs.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1800
# What is imported leaves a mark: who looks only must not leave one.
MAIN = """\
import hydra
import ray
from verl.trainer.main_ppo import run_ppo
from verl.trainer.main_ppo_v0 import BaseTaskRunner

open("imported", "a").write("x")


class CakeRunner(BaseTaskRunner):
    def run(self, config):
        config.trainer.project_name = config.cake.name
        super().run(config)


@hydra.main(config_path="config", config_name="cake", version_base=None)
def main(config):
    run_ppo(config, task_runner_class=ray.remote(CakeRunner))


if __name__ == "__main__":
    main()
"""
CONFIG = """\
hydra: {searchpath: [pkg://verl.trainer.config]}
defaults: [ppo_trainer, _self_]
cake: {name: sponge}
algorithm: {adv_estimator: grpo}
trainer:
  default_local_dir: baked/${cake.name}
  save_freq: 7
  n_gpus_per_node: 2
  total_training_steps: 70
"""
OWN = ["-m", "cakes.main_cake", "trainer.n_gpus_per_node=4"]
GIVEN = ["-m", "verl.trainer.main_ppo", "--config-path={work}/cakes/config", "--config-name=cake", "trainer.n_gpus_per_node=4"]


def call(work, argv, code):
    env = dict(os.environ, XDG_STATE_HOME=str(work.parent / "state"), PYTHONPATH=str(work))
    done = subprocess.run([str(a) for a in argv], cwd=work, env=env, timeout=LIMIT, capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


def view(supervise, work, words, *more):
    done = call(work, [supervise, "plan", "--json", *more, "--", sys.executable, *words], 0)
    found = json.loads(done.stdout)
    return found, {f["code"]: f["detail"] for f in found["findings"]}


def imports(work):
    mark = work / "imported"
    return len(mark.read_text()) if mark.exists() else 0


def an_entry_point_of_its_own(supervise, work):
    found, told = view(supervise, work, OWN, "--learn")
    assert found["root"] == str(work / "baked/sponge"), found["root"]
    assert "every 7 steps" in told["cadence"], told
    assert "RayPPOTrainer" in told["entry_assumed"] and "composed_by_trainer" in told, told
    assert imports(work) == 1
    again, _ = view(supervise, work, OWN)
    assert again["root"] == found["root"] and imports(work) == 1


def a_configuration_of_its_own(supervise, work):
    words = [word.format(work=work) for word in GIVEN]
    found, told = view(supervise, work, words, "--learn")
    assert found["root"] == str(work / "baked/sponge"), found["root"]
    assert "every 7 steps" in told["cadence"] and "entry_assumed" not in told, told


def a_script(supervise, work):
    script = work.parent / "run.sh"
    script.write_text(f'#!/bin/bash\nexport PATH={Path(sys.executable).parent}:$PATH\npython3 {" ".join(OWN)} cake.name=layer "$@"\n')
    done = call(work, [supervise, "plan", "--learn", "--yes", "--json", "--", "bash", script], 0)
    assert json.loads(done.stdout)["root"] == str(work / "baked/layer")


def what_is_no_hydra_program(supervise, work):
    """It would train at once, whatever it is asked for."""
    (work / "cakes/main_cake.py").write_text("import argparse\n\nopen('imported', 'a').write('x')\n")
    told = call(work, [supervise, "plan", "--learn", "--", sys.executable, *OWN], 78).stderr
    assert "does not name hydra" in told and "trainer=plain" in told and imports(work) == 0, told


def what_it_refuses(supervise, work):
    command = [supervise, "plan", "--learn", "--", sys.executable, *OWN, "trainer.no_such=3"]
    assert "itself does not take the override of trainer.no_such" in call(work, command, 78).stderr
    command = [supervise, "plan", "--learn", "--", sys.executable, *OWN, "--config-name=bread"]
    told = call(work, command, 78).stderr
    assert "does not compose its configuration" in told and "bread" in told, told


def a_relaunch_of_it(supervise, work):
    """The interpreter composes as ever, and sleeps where it should train: what a resume is given is taken."""
    python, log = work.parent / "python3", work.parent / "log"
    python.write_text(f'#!/bin/bash\n[[ "$*" == *"-m cakes.main_cake"* && "$*" != *--cfg* ]] && exec sleep 1000\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = dict(os.environ, XDG_STATE_HOME=str(work.parent / "state"), PYTHONPATH=str(work))
    with open(log, "w") as out:
        run = subprocess.Popen([supervise, "run", "--", str(python), *OWN], cwd=work, env=env, stdout=out, stderr=out)
    end = time.monotonic() + LIMIT
    while "rehearsed a restart" not in log.read_text():
        assert run.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.2)
    found = json.loads(call(work, [supervise, "status", work / "baked/sponge", "--json"], 0).stdout)[0]["rehearsal"]
    run.send_signal(signal.SIGTERM)
    assert run.wait(LIMIT) == 143, log.read_text()
    assert found == "taken", found


CASES = [an_entry_point_of_its_own, a_configuration_of_its_own, a_script, what_is_no_hydra_program, what_it_refuses, a_relaunch_of_it]


def main():
    supervise = Path(sys.argv[1]).resolve() / "supervise"
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder).resolve() / "work"
            (work / "cakes/config").mkdir(parents=True)
            (work / "cakes/__init__.py").touch()
            (work / "cakes/main_cake.py").write_text(MAIN)
            (work / "cakes/config/cake.yaml").write_text(CONFIG)
            case(supervise, work)
        print(f"ok {case.__name__}", flush=True)
    print(f"{len(CASES)} passed")


main()
