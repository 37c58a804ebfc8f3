"""What the cases of areal_recovery.py and areal_launchers.py stand on: a file root with its YAML, and `supervise` run on it."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import areal_stage as stage

HERE = Path(__file__).resolve().parent
LIMIT = 2400  # seconds that a command may take: only a hang takes so long, on a machine however slow
CALM = 300  # seconds within which everything has ended, on a machine however slow
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
  scheduling_spec: [{{gpu: 0, cpu: 1, mem: 1, cmd: python -m areal.infra.rpc.rpc_server}}]
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
    def __init__(self, programs, work, steps):
        self.programs, self.work, self.steps = programs, work, steps
        self.stage = stage.Stage(work)
        self.straights = {}

    def straight(self, **knobs):
        """A run in one go without us, with a copy after each save."""
        name = "straight" + "".join(f"-{k}-{v}" for k, v in knobs.items())
        if name not in self.straights:
            done = self.stage.launch(self.work / name, self.steps, keep=self.work / f"{name}.kept", **knobs)
            assert done.code == 0, done.text[-4000:]
            self.straights[name] = done, self.work / f"{name}.kept"
        return self.straights[name]

    def case(self, name, steps, *, batch=4, schedule="constant", gang=GANG, env=None):
        """A file root with a YAML beside it, as a user has them."""
        root = self.work / name
        (root / "names").mkdir(parents=True)
        case = Case(self, root, {"batch": batch, "schedule": schedule})
        case.gang, case.more = gang, env or {}
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

    def env(self, faults, user=stage.USER):
        # Who starts the ranks says in which mode they are.
        ours = {name: value for name, value in os.environ.items() if name != "AREAL_SPMD_MODE"}
        kept = self.root / f"supervise/{user}/real/t0/protected" if faults else ""
        return ours | {"FAULTS": json.dumps(faults), "FAULT_LEDGER": str(self.ledger), "KEPT": str(kept), "LOGNAME": user,
                             "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | self.more  # fmt: skip

    def call(self, *argv, faults=(), env=None, code=0):
        began = time.monotonic()
        done = subprocess.run([str(self.bench.programs / "supervise"), *map(str, argv)], env=env or self.env(list(faults)),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)  # fmt: skip
        text = stage.COLOURS.sub("", done.stdout)
        print(f"  {argv[0]} {self.root.name}: {done.returncode}, {time.monotonic() - began:.0f} s", flush=True)
        assert code is None or done.returncode == code, f"ended with {done.returncode}, not {code}:\n{text[-8000:]}"
        return text

    def run(self, *more, faults=(), code=0, command=("python3", HERE / "areal_faulty.py"), **env):
        text = self.call("run", self.yaml, *more, "--", *command, faults=faults, code=code, **env)
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
        good, kept = self.bench.straight(**self.knobs)
        steps = steps or self.last
        there = stage.tensors(stage.dcp(self.root))
        assert there == stage.tensors(kept / str(steps) / "default/recover_checkpoint"), "other tensors"
        wrong = {s: (v, good.losses[s]) for s, v in self.losses.items() if s <= steps and v != good.losses[s]}
        assert not wrong and self.losses, f"other losses: {wrong}"

    def nothing_left(self):
        """No process with this case's folder in its environment or on its command line, whatever it calls itself."""
        until = time.monotonic() + CALM
        # A guard ends a moment after its supervisor.
        while (left := processes(str(self.ledger)) | processes(str(self.root))) and time.monotonic() < until:
            time.sleep(0.2)
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


def main(cases, steps):
    """The command line of both: PROGRAMS [--work DIR] [--only CASE]."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    todo = [c for c in cases if not args.only or any(text in c.__name__ for text in args.only)]
    if missing := [text for text in args.only if not any(text in c.__name__ for c in cases)]:
        parser.error(f"no case has {missing[0]!r} in its name: {', '.join(c.__name__ for c in cases)}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="areal-") as work:
        bench = Bench(args.programs.resolve(), (args.work or Path(work)).resolve(), steps)
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
