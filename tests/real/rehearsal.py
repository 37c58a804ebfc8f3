"""`supervise plan --rehearse` against verl itself: what it takes, and an override that it does not know.

usage: rehearsal.py PROGRAMS

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the environment that install.sh makes.
Ends with `N passed`, or with the first case that differs.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

BIN = Path(sys.executable).parent
PPO = [sys.executable, "-m", "verl.trainer.main_ppo"]
SFT = [BIN / "torchrun", "--nproc-per-node", "2", "-m", "verl.trainer.sft_trainer"]
COMMON = ["trainer.save_freq=1", "trainer.total_training_steps=4"]


def told(supervise, work, command, *more):
    root = work / "checkpoints"
    argv = [supervise, "plan", "--rehearse", "--json", *more, "--", *command, *COMMON, f"trainer.default_local_dir={root}"]
    done = subprocess.run([str(a) for a in argv], cwd=work, timeout=600, capture_output=True, text=True)
    view = json.loads(done.stdout or "null")
    assert view, done.stderr
    assert view["trainer_version"] == version("verl"), view["trainer_version"]
    return [(f["code"], f["detail"]) for f in view["findings"] if f["code"] in ("override_unknown", "not_rehearsed")]


def main():
    supervise = Path(sys.argv[1]).resolve() / "supervise"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        assert told(supervise, work, PPO) == []
        assert told(supervise, work, SFT) == []
        (code, text), = told(supervise, work, PPO, "--set", "trainer.no_such=3")
        assert code == "override_unknown" and "trainer.no_such" in text, (code, text)
        # Nothing was trained, logged or written.
        assert list(work.iterdir()) == [], list(work.iterdir())
    print("3 passed")


main()
