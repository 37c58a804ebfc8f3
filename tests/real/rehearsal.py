"""A relaunch tried in advance against verl itself: what it takes, overrides that it does not know, a script that was learnt, and
the rehearsal that a run makes beside its training.

usage: rehearsal.py PROGRAMS

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
from importlib.metadata import version
from pathlib import Path

BIN = Path(sys.executable).parent
PPO = [sys.executable, "-m", "verl.trainer.main_ppo"]
SFT = [BIN / "torchrun", "--nproc-per-node", "2", "-m", "verl.trainer.sft_trainer"]
COMMON = ["trainer.save_freq=1", "trainer.total_training_steps=4"]
# Its interpreter comes from an environment that the script activates.
SCRIPT = """\
#!/bin/bash
export PATH={bin}:$PATH
torchrun --nproc-per-node 2 -m verl.trainer.sft_trainer {words} "$@"
"""
LIMIT = 1800
ENV = dict(os.environ, WITHOUT_MEGATRON="1", HYDRA_FULL_ERROR="1")


def call(work, argv, code):
    env = dict(ENV, XDG_STATE_HOME=str(work.parent / "state"))
    done = subprocess.run([str(a) for a in argv], cwd=work, env=env, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


def told(supervise, work, command, *more, code=0, learn=()):
    """What a plan says of the rehearsal."""
    root = work / "checkpoints"
    words = [] if learn else [*COMMON, f"trainer.default_local_dir={root}"]
    done = call(work, [supervise, "plan", *learn, "--rehearse", "--json", *more, "--", *command, *words], code)
    view = json.loads(done.stdout)
    assert view["trainer_version"] == version("verl"), view["trainer_version"]
    return [(f["code"], f["detail"]) for f in view["findings"] if f["code"] in ("override_unknown", "not_rehearsed")]


def what_verl_takes(supervise, work):
    assert told(supervise, work, PPO) == []
    assert told(supervise, work, SFT) == []


def an_override_that_it_does_not_know(supervise, work):
    (code, text), = told(supervise, work, PPO, "--set", "trainer.no_such=3", code=78)
    assert code == "override_unknown" and "a relaunch would fail" in text and "trainer.no_such" in text, (code, text)


def whose_fault_it_is(supervise, work):
    # The user's own word, and an error that names nobody: without ours it is the same.
    (code, text), = told(supervise, work, [*SFT, "data.messages_key=${no.such.key}"])
    assert code == "not_rehearsed" and "not even as it is written" in text, (code, text)
    # The same error, by what is added to the command.
    (code, text), = told(supervise, work, SFT, "--set", "data.messages_key=${no.such.key}", code=78)
    assert code == "override_unknown" and "composed as it is written" in text, (code, text)


def a_script_that_was_learnt(supervise, work):
    script = work.parent / "run.sh"
    words = " ".join([*COMMON, f"trainer.default_local_dir={work}/checkpoints"])
    script.write_text(SCRIPT.format(bin=BIN, words=words))
    assert told(supervise, work, ["bash", script], learn=["--learn", "--yes"]) == []
    (code, text), = told(supervise, work, ["bash", script], "--set", "trainer.no_such=3", learn=["--learn", "--yes"], code=78)
    assert code == "override_unknown" and "trainer.no_such" in text, (code, text)


def beside_the_training(supervise, work):
    """The interpreter composes as ever, and sleeps where it should train."""
    root, python, log = work / "checkpoints", work / "python3", work / "log"
    python.write_text(f'#!/bin/bash\n[[ "$*" == *main_ppo* && "$*" != *--cfg* ]] && exec sleep 1000\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for more in ([], ["--set", "trainer.no_such=3"]):
        argv = [supervise, "run", *more, "--", python, "-m", "verl.trainer.main_ppo", *COMMON, f"trainer.default_local_dir={root}"]
        with open(log, "w") as out:
            run = subprocess.Popen([str(a) for a in argv], cwd=work, env=ENV, stdout=out, stderr=out)
        end = time.monotonic() + LIMIT
        while "rehearsed a restart" not in log.read_text():
            assert run.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        found = json.loads(call(work, [supervise, "status", root, "--json"], 0).stdout)[0]["rehearsal"]
        run.send_signal(signal.SIGTERM)
        assert run.wait(LIMIT) == 143, log.read_text()
        if more:
            assert "trainer.no_such" in found["refused"]["what"][0], found
        else:
            assert found == "taken", found


CASES = [what_verl_takes, an_override_that_it_does_not_know, whose_fault_it_is, a_script_that_was_learnt]


def main():
    supervise = Path(sys.argv[1]).resolve() / "supervise"
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            work.mkdir()
            case(supervise, work)
            # Nothing was trained, logged or written.
            assert list(work.iterdir()) == [], list(work.iterdir())
        print(f"ok {case.__name__}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        beside_the_training(supervise, Path(folder))
    print(f"{len(CASES) + 1} passed")


main()
