"""Damages steps that a run has recorded, and asks `supervise verify --scrub` to find every single change.

usage: proof_records.py PROGRAMS OUT [--each 20] [--seed 1]       (OUT as make_checkpoints.py left it)

A supervised run with nothing left to do proves the steps it finds and records them. Then a recorded file is damaged in --each
ways, times put back, also in ways that leave each file as valid as it was: another step's file, weights without a checksum.
The scrub must not call any of it whole, and must call the step whole again once the damage is undone. In the end each file is
deleted, cut and replaced by the other step's in turn, and has to be named. Ends with 1 else.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from proof_mutations import Mutation, choose
from verify_view import codes, holders, stands_in, verify

YAML = """\
{engine}
trainer:
  device: cpu
  total_training_steps: 2
  save_freq: 1
  default_local_dir: {root}
  project_name: real
  experiment_name: records
  nnodes: 1
  n_gpus_per_node: 2
"""
# Name to what the configuration says of the engine, and the trainer.
MEGATRON = """\
model_engine: megatron
algorithm: {adv_estimator: grpo}
actor_rollout_ref: {actor: {megatron: {tensor_model_parallel_size: 2, use_mbridge: true, use_dist_checkpointing: true}}}"""
RUNS = {
    "verl_megatron/tp2": (MEGATRON, "verl.trainer.main_ppo"),
    "verl_sft": ("engine: {strategy: fsdp2}", "verl.trainer.sft_trainer"),
    "verl_fsdp1": ("actor_rollout_ref: {actor: {strategy: fsdp}}", "verl.trainer.main_ppo"),
    "verl_fsdp2": ("actor_rollout_ref: {actor: {strategy: fsdp2}}", "verl.trainer.main_ppo"),
}


def record(program, source, work, engine, trainer):
    """A copy of the checkpoints in which a run has recorded each step."""
    root = work / "checkpoints"
    shutil.copytree(source, root)
    config = work / "run.yaml"
    config.write_text(YAML.format(engine=engine, root=root))
    command = [program, "run", config, "--", "/bin/true", "-m", trainer]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    records = sorted(path.name for path in root.glob(".supervise/verified/*"))
    if done.returncode or len(records) != 2:
        raise SystemExit(f"{source}: no run recorded its two steps ({records}):\n{done.stdout}")
    return root


def recorded(root):
    """The files of the first step that stand in its record: what a resume needs."""
    lines = (root / ".supervise/verified/global_step_1.jsonl").read_text().splitlines()
    return [root / "global_step_1" / entry["f"][0] for entry in map(json.loads, lines) if "f" in entry]


def scrub(program, step):
    """Exit code, and the codes of all findings."""
    code, view, said = verify(program, "--scrub", step)
    return code, sorted(codes(view)) if view else [said]


def unnamed(program, step, other, files):
    """Files of which a loss, a cut or an exchange is not told by name; times stay as they are."""
    for path in files:
        content, theirs = path.read_bytes(), (other / path.relative_to(step)).read_bytes()
        for how, damaged in (("deleted", None), ("cut", content[: len(content) // 2]), ("exchanged", theirs)):
            if damaged == content:
                continue
            with stands_in(path, damaged):
                code, view, _ = verify(program, "--scrub", step)
            if code not in (20, 21, 22, 23) or path.name not in told(view):
                yield f"{path.relative_to(step)} {how}: {code} without its name"


def told(view):
    """The text of all findings with their files, and of the files that are not whole."""
    words = []
    for holder in holders(view):
        if holder["findings"]:
            words += [str(holder.get("path", "")), json.dumps(holder["findings"])]
    return " ".join(words)


def check(program, name, root, args):
    """Counts by kind of damage, and what was not found."""
    files = recorded(root)
    step, other, missed, counts = root / "global_step_1", root / "global_step_2", [], Counter()
    code, found = scrub(program, step)
    if code:
        missed.append(f"{name}: the untouched step: {code} {found}")
    for index in range(args.each):
        seed = f"{args.seed}:{name}:{index}"
        rng = random.Random(seed)
        mutation = Mutation(step, other, choose(step, rng), rng, files)
        if not mutation.changes_anything():
            continue
        with mutation.apply():
            code, found = scrub(program, step)
        counts[mutation.kind] += 1
        if code not in (20, 21, 22, 23) or not found:
            missed.append(f"{name}, seed {seed}, {mutation.kind} of {mutation.path.relative_to(root)}: {code} {found}")
    missed += [f"{name}: {words}" for words in unnamed(program, step, other, files)]
    code, found = scrub(program, step)
    if code:
        missed.append(f"{name}: the step after all damage was undone: {code} {found}")
    return counts, missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    program, counts, missed = args.programs.resolve() / "supervise", Counter(), []
    for name, (engine, trainer) in RUNS.items():
        with tempfile.TemporaryDirectory(prefix="records-") as work:
            root = record(program, args.out / name, Path(work), engine, trainer)
            more, wrong = check(program, name, root, args)
            counts, missed = counts + more, missed + wrong
    print(f"{sum(counts.values())} recorded steps damaged, {len(missed)} not found: {dict(sorted(counts.items()))}")
    for words in missed:
        print(f"VIOLATION {words}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
