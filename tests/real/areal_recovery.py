"""areal's own SFT trainer under `supervise`: killed at each point of a save, its files damaged, and brought back.

usage: areal_recovery.py PROGRAMS [--work DIR] [--only CASE]

PROGRAMS is the folder with the built `supervise`. Run it with the python of install_areal.sh's environment; it takes about eight
minutes. What areal makes of the same without `supervise` is in areal_alone.py. Within the first epoch and with a constant
schedule, every tensor and every loss must be those of a run in one go; beyond, it must have been said before that they will not
be. Ends with `N passed, M failed`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import areal_stage as stage

HERE = Path(__file__).resolve().parent
LIMIT = 560
YAML = """\
experiment_name: real
trial_name: t0
cluster:
  fileroot: {root}
  n_nodes: 1
  n_gpus_per_node: 2
  name_resolve: {{type: nfs, nfs_record_root: {root}/names}}
total_train_epochs: 4
total_train_steps: {steps}
tokenizer_path: {model}
scheduler: {{type: null}}
train_dataset: {{path: "-", type: sft, batch_size: {batch}, shuffle: true}}
actor:
  experiment_name: ${{experiment_name}}
  trial_name: ${{trial_name}}
  path: {model}
  backend: fsdp:d2
  dtype: float32
  attn_impl: sdpa
  gradient_checkpointing: false
  pad_to_maximum: true
  optimizer: {{lr: 1e-3, warmup_steps_proportion: 0.0, lr_scheduler_type: {schedule}}}
  scheduling_spec: [{{gpu: 0}}]
recover: {{mode: on, freq_steps: 1, experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
saver: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
evaluator: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
stats_logger: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
supervisor:
  backoff: {{initial: 200ms}}
  scan_interval: 200ms
"""
GANG = "  gang: {launcher: gang, gpus: none}\n"


class Bench:
    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.stage = stage.Stage(work)
        self.straights = {}

    def straight(self, steps, **knobs):
        """A run in one go without us, with a copy after each save; of as many steps as anybody asked for first."""
        name = "straight" + "".join(f"-{k}-{v}" for k, v in knobs.items())
        if name not in self.straights:
            done = self.stage.launch(self.work / name, steps, keep=self.work / f"{name}.kept", **knobs)
            assert done.code == 0, done.text[-4000:]
            self.straights[name] = done, self.work / f"{name}.kept"
        return self.straights[name]

    def case(self, name, steps, *, batch=4, schedule="constant", gang=GANG):
        """A file root with a YAML beside it, as a user has them."""
        root = self.work / name
        (root / "names").mkdir(parents=True)
        case = Case(self, root, {"batch": batch, "schedule": schedule})
        case.gang = gang
        case.steps(steps)
        return case


class Case:
    def __init__(self, bench, root, knobs):
        self.bench, self.root, self.knobs = bench, root, knobs
        self.yaml = root.parent / f"{root.name}.yaml"
        self.ledger = root.parent / f"{root.name}.ledger"
        self.losses = {}

    def steps(self, steps):
        text = YAML.format(root=self.root, model=self.bench.stage.model, steps=steps, **self.knobs) + self.gang
        self.yaml.write_text(text)
        self.last = steps

    def env(self, faults, pause, user=stage.USER):
        return os.environ | {"FAULTS": json.dumps(faults), "FAULT_LEDGER": str(self.ledger), "PAUSE": str(pause), "LOGNAME": user,
                             "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip

    def call(self, *argv, faults=(), pause=0, env=None, code=0):
        began = time.monotonic()
        done = subprocess.run([str(self.bench.programs / "supervise"), *map(str, argv)], env=env or self.env(list(faults), pause),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)  # fmt: skip
        text = stage.COLOURS.sub("", done.stdout)
        print(f"  {argv[0]} {self.root.name}: {done.returncode}, {time.monotonic() - began:.0f} s", flush=True)
        assert code is None or done.returncode == code, f"ended with {done.returncode}, not {code}:\n{text[-8000:]}"
        return text

    def run(self, *more, faults=(), pause=0, code=0, command=("python3", HERE / "areal_faulty.py"), **env):
        text = self.call("run", self.yaml, *more, "--", *command, faults=faults, pause=pause, code=code, **env)
        if faults and code == 0:
            fired = sorted(p.name for p in self.ledger.glob("fault-*"))
            assert len(fired) == len(faults), f"{fired} of {len(faults)} faults were seen:\n{text[-8000:]}"
        for log in sorted(self.root.glob("supervise/*/real/t0/attempts/*/worker-0.log")):
            self.losses |= stage.Attempt(0, stage.COLOURS.sub("", log.read_text(errors="replace"))).losses
        self.nothing_left()
        return text

    def plan(self, *more, code=0):
        return self.call("plan", self.yaml, *more, "--", "python3", HERE / "areal_faulty.py", code=code)

    def right(self, steps=None):
        """Every tensor and every loss is that of a run in one go."""
        good, kept = self.bench.straight(STEPS, **self.knobs)
        steps = steps or self.last
        there = stage.tensors(stage.dcp(self.root))
        assert there == stage.tensors(kept / str(steps) / "default/recover_checkpoint"), "other tensors"
        wrong = {s: (v, good.losses[s]) for s, v in self.losses.items() if s <= steps and v != good.losses[s]}
        assert not wrong and self.losses, f"other losses: {wrong}"

    def nothing_left(self):
        """No process with this case's folder in its environment or on its command line, whatever it calls itself."""
        left = processes(str(self.ledger)) | processes(str(self.root))
        assert not left, f"left behind: {left}"


def processes(words):
    left = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            about = [Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
        except OSError:
            continue
        if int(pid) != os.getpid() and words in "".join(about):
            left[int(pid)] = about[0].replace("\0", " ")[:160]
    return left


STEPS = 16
# What cannot be told where nothing is known of the save: an optimizer may have skipped updates.
GAPS = ("a shard of an earlier step",)


def killed_everywhere(b):
    """One run, killed in mid-step and at each point of a save."""
    case = b.case("killed", STEPS)
    faults = [
        {"kind": "kill", "step": 3, "rank": 1},
        {"kind": "shard_half", "step": 5, "rank": 1},
        {"kind": "shard_unwritten", "step": 7, "rank": 1},
        {"kind": "shard_written", "step": 8, "rank": 1},
        {"kind": "metadata_unlinked", "step": 10},
        {"kind": "shards_done", "step": 11},
        {"kind": "info_half", "step": 13, "file": "step_info.json"},
        {"kind": "info_before", "step": 14, "file": "dataloader_info.pkl"},
        {"kind": "info_empty", "step": 15, "file": "dataloader_info.pkl"},
    ]
    case.run(faults=faults, pause=1.5)
    case.right()


def controller_killed(b):
    """areal's own way: a controller that starts workers. It is killed in a save; its workers are ended, and it is brought back."""
    case = b.case("controller", 4, batch=16, gang="")
    text = case.run(faults=[{"kind": "shards_done", "step": 3}], command=("python3", HERE / "areal_faulty.py", "scheduler.type=local"))
    assert stage.step_of(case.root) == 4 and "2 attempts" in text, text[-3000:]
    assert not list((case.root / "names").rglob("ENTRY")), "records of workers stay"


def damaged_before(b):
    """What lies there before the first launch is not launched from when it is hurt, and is when it is whole."""
    good, kept = b.straight(STEPS, batch=4, schedule="constant")
    damage = {
        "whole": lambda live: None,
        "a counter cut": lambda live: os.truncate(live / "recover_info/step_info.json", 3),
        "a counter empty": lambda live: os.truncate(live / "recover_info/saver_info.json", 0),
        "no counters": lambda live: shutil.rmtree(live / "recover_info"),
        "the place in the data cut": lambda live: os.truncate(live / "recover_info/dataloader_info.pkl", 60),
        "a shard cut": lambda live: os.truncate(live / "default/recover_checkpoint/__1_0.distcp", 20_000),
        "a shard missing": lambda live: (live / "default/recover_checkpoint/__0_0.distcp").unlink(),
        "a flipped byte": lambda live: flip(live / "default/recover_checkpoint/__0_0.distcp"),
        "a shard of an earlier step": lambda live: other(kept, live, "default/recover_checkpoint/__1_0.distcp"),
        "counters of an earlier step": lambda live: other(kept, live, "recover_info"),
        "the checkpoint of a later step": lambda live: other(kept, live, "default/recover_checkpoint", step=7),
    }
    for number, (what, hurt) in enumerate(damage.items()):
        case = b.case(f"damaged-{number}", STEPS)
        live = stage.trial(case.root)
        live.parent.mkdir(parents=True)
        shutil.copytree(kept / "6", live)
        hurt(live)
        text = case.plan(code=None)
        launches = "would resume from live" in text
        print(f"  {what}: {'launches' if launches else 'does not launch'}", flush=True)
        assert launches == (what == "whole" or what in GAPS) and "\nwould start from nothing" not in text, f"{what}: {text[:3000]}"
    case = b.case("ranks", STEPS)
    live = stage.trial(case.root)
    live.parent.mkdir(parents=True)
    shutil.copytree(kept / "6", live)
    case.yaml.write_text(case.yaml.read_text().replace("fsdp:d2", "fsdp:d4").replace("n_gpus_per_node: 2", "n_gpus_per_node: 4"))
    text = case.plan(code=None)
    assert "\nwould refuse to start" in text and "2 processes wrote" in text, text[:3000]


def announced(b):
    """Where a resume cannot be exact, it is said before the first launch and before the resume."""
    case = b.case("announced", STEPS, batch=16, schedule="cosine")
    text = case.plan()
    assert "[schedule_replayed]" in text and "[data_order]" in text, text
    _, kept = b.straight(STEPS, batch=16, schedule="cosine")
    live = stage.trial(case.root)
    live.parent.mkdir(parents=True)
    shutil.copytree(kept / "15", live)
    text = case.plan()
    assert "would resume from live" in text and "data order" in text, text
    text = case.run()
    assert "do not save the learning-rate schedule" in text and "NOT restored: data order" in text, text[-4000:]
    assert stage.step_of(case.root) == STEPS
    again = case.plan()
    assert "finished" in again or "nothing to do" in again or "would resume" in again, again


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 | 3] ^= 0x02
    path.write_bytes(data)


def other(kept, live, name, step=4):
    """Another step's file or folder, with the times that it has."""
    source, target = kept / str(step) / name, live / name
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    cases = [damaged_before, announced, killed_everywhere, controller_killed]
    todo = [c for c in cases if not args.only or c.__name__ in args.only]
    failed = []
    with tempfile.TemporaryDirectory(prefix="areal-recovery-") as work:
        bench = Bench(args.programs.resolve(), (args.work or Path(work)).resolve())
        for case in todo:
            began = time.monotonic()
            try:
                case(bench)
            except Exception:
                failed.append(case.__name__)
                print(f"FAILED {case.__name__}\n{traceback.format_exc()}", flush=True)
            print(f"{case.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(todo) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
