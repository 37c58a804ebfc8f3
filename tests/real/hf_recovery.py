"""Hugging Face's own Trainer and TRL's SFTTrainer, alone and under `supervise`: killed in a step, killed in a save, and brought back.

usage: hf_recovery.py PROGRAMS [--work DIR] [--only NAME]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the environment that install.sh makes. Weights, optimizer,
schedule and losses are compared with those of an uninterrupted run, bit for bit. Ends with `N passed, M failed`.
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

import torch
from safetensors.torch import load_file

from recovery import FULL

HERE = Path(__file__).resolve().parent
TRAIN = HERE / "hf_train.py"
STEPS = 6
LIMIT = 900  # seconds for one run: only a hang takes so long, on a machine however slow
ENV = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
OURS = ["--set", "supervisor.backoff.initial=200ms"]


def flags(out, steps=STEPS, each=2, device="cpu"):
    return [TRAIN, "--output_dir", out, "--max_steps", steps, "--save_steps", each, "--logging_steps", 1,
            "--per_device_train_batch_size", 4, *(["--use_cpu"] if device == "cpu" else []), "--report_to", "none"]


class Bench:
    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.straight = work / "straight"

    def prepare(self):
        self.call([*TORCHRUN, *flags(self.straight)])

    def start(self, argv, faults=None, ledger=None, env=None):
        env = dict(ENV, FAULTS=json.dumps(faults or []), FAULT_LEDGER=str(ledger or self.work / "none"), **(env or {}))
        return subprocess.Popen([str(a) for a in argv], env=env, cwd=self.work, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, process, code):
        text, _ = process.communicate(timeout=LIMIT)
        if code is not None and process.returncode != code:
            raise AssertionError(f"{process.args[:6]} ended with {process.returncode}, not {code}:\n{text[-6000:]}")
        return text

    def call(self, argv, code=0, **more):
        return self.end(self.start(argv, **more), code)

    def run(self, name, faults, command, *more, env=None):
        """A supervised run whose faults all happen: it ends well."""
        ledger = self.work / f"{name}.ledger"
        argv = [self.programs / "supervise", "run", *OURS, *more, "--", *command]
        said = self.call(argv, faults=faults, ledger=ledger, env=env)
        assert len(list(ledger.iterdir())) == len(faults), said
        return said

    def copy(self, name):
        return Path(shutil.copytree(self.straight, self.work / name))


def state(step):
    """Losses and every tensor that a resume loads."""
    logs = json.loads((step / "trainer_state.json").read_text())["log_history"]
    losses = [(e["step"], e["loss"], e["learning_rate"]) for e in logs if "loss" in e]
    kept = torch.load(step / "optimizer.pt", weights_only=True, map_location="cpu")["state"]
    tensors = {f"optimizer.{n}.{key}": value for n, values in kept.items() for key, value in values.items()}
    return losses, tensors | load_file(step / "model.safetensors")


def differs(one, other):
    (losses, tensors), (others, wanted) = state(one), state(other)
    assert tensors.keys() == wanted.keys()
    lost = [name for name in tensors if not torch.equal(tensors[name], wanted[name])]
    return lost + [f"step {a[0]}: {a} and {b}" for a, b in zip(losses, others, strict=True) if a != b]


def same(one, other):
    assert not differs(one, other), differs(one, other)


def alone_a_torn_save_ends_every_start_and_a_missing_optimizer_is_told_by_nobody(b):
    """What Trainer does by itself: why this is supervised."""
    torn, fresh = b.copy("alone_torn"), b.copy("alone_fresh")
    os.truncate(torn / "checkpoint-6/trainer_state.json", 300)
    shutil.rmtree(fresh / "checkpoint-6")
    (fresh / "checkpoint-4/optimizer.pt").unlink()
    again = ["--resume_from_checkpoint", "True"]
    first, second = (b.start([sys.executable, *flags(out), *again]) for out in (torn, fresh))
    assert "JSONDecodeError" in b.end(first, 1)
    said = b.end(second, 0)
    assert "optimizer" not in said.lower().replace("optimization", ""), said
    # One rank or two: the weights after a fresh optimizer are others anyway; what tells is the count of its steps.
    kept = torch.load(fresh / "checkpoint-6/optimizer.pt", weights_only=True)["state"]
    assert {int(values["step"]) for values in kept.values()} == {2}, "the optimizer went on from step 4"
    for root, code in ((torn, 20), (fresh / "checkpoint-4", 20)):
        shutil.rmtree(fresh / "checkpoint-6", ignore_errors=True)
        b.call([b.programs / "supervise", "verify", root], code=code)


def killed_in_a_step_and_in_a_save(b):
    out = b.work / "killed"
    faults = [{"kind": "kill", "step": 4, "rank": 1}, {"kind": "torn", "step": 6, "rank": 0}]
    said = b.run("killed", faults, [*TORCHRUN, *flags(out)])
    for words in ("resume from checkpoint-2", "resume from checkpoint-4", "moved aside: checkpoint-6", "finished: step 6 is proven"):
        assert words in said, f"{words}:\n{said}"
    same(out / "checkpoint-6", b.straight / "checkpoint-6")
    b.call([b.programs / "supervise", "verify", out, "--depth", "full"])


def a_script_that_takes_no_flags_finds_what_was_left_for_it(b):
    """TRL's SFTTrainer: a torn newest step would end every start of it."""
    straight, out = b.work / "sft_straight", b.work / "sft"
    command = [sys.executable, TRAIN, "--sft"]
    first = b.start([*command, straight, STEPS])
    faults = [{"kind": "torn", "step": 4, "rank": 0}]
    said = b.run("sft", faults, [*command, out, STEPS], "--set", "supervisor.trainer=hf", "--set", f"supervisor.root={out}")
    b.end(first, 0)
    assert "resume from checkpoint-2" in said and "moved aside: checkpoint-4" in said, said
    same(out / "checkpoint-6", straight / "checkpoint-6")


def a_script_with_everything_in_its_code_is_given_the_proven_step(b):
    """`train()` is called without a step: it is seen as it begins, by one rank or by two, and given one after each kill."""
    straight = b.work / "code_straight"
    b.call([sys.executable, TRAIN, "--code", straight, "trainer"])
    for kind in ("trainer", "own", "seq2seq") if FULL else ("trainer",):
        out = b.work / f"code_{kind}"
        faults = [{"kind": "kill", "step": 4, "rank": 0}, {"kind": "torn", "step": 6, "rank": 0}]
        said = b.run(f"code_{kind}", faults, [sys.executable, TRAIN, "--code", out, kind])
        for words in ("the trainer saves in", "resume from checkpoint-2", "resume from checkpoint-4", "moved aside: checkpoint-6",
                      "finished: step 6 is proven"):
            assert words in said, f"{words}:\n{said}"
        same(out / "checkpoint-6", straight / "checkpoint-6")
    out = b.work / "code_ranks"
    faults = [{"kind": "kill", "step": 4, "rank": 1}]
    said = b.run("code_ranks", faults, [*TORCHRUN, TRAIN, "--code", out, "trainer"])
    assert "the trainer saves in" in said and "the trainer resumed from 2" in said, said
    same(out / "checkpoint-6", b.straight / "checkpoint-6")


def a_step_without_its_optimizer_is_asked_about(b):
    out = b.copy("asked")
    for step in (4, 6):
        shutil.rmtree(out / f"checkpoint-{step}")
    (out / "checkpoint-2/optimizer.pt").unlink()
    said = b.call([b.programs / "supervise", "run", *OURS, "--", *TORCHRUN, *flags(out)], code=4)
    assert "optimizer" in said and "degraded_resume=model_only" in said, said


def a_script_that_does_not_resume_is_ended_before_it_saves(b):
    out = b.copy("deaf")
    shutil.rmtree(out / "checkpoint-6")
    before = (out / "checkpoint-2/model.safetensors").stat().st_mtime_ns
    said = b.call(["env", "HF_DEAF=1", b.programs / "supervise", "run", *OURS, "--", sys.executable, *flags(out)], code=3)
    assert "it did not resume" in said, said
    assert (out / "checkpoint-2/model.safetensors").stat().st_mtime_ns == before, "checkpoint-2 was saved again"


EVALUATED = ["--eval_strategy", "steps", "--eval_steps", 2, "--metric_for_best_model", "eval_loss", "--greater_is_better", "False"]


def early_stopping_is_an_end(b):
    """The loss rises from step 2 on, so that the callback stops the training at step 4 of 20."""
    out = b.work / "early"
    command = [sys.executable, *flags(out, steps=20), *EVALUATED]
    run = ["env", "HF_RISES=1", "HF_EARLY=1", b.programs / "supervise", "run", *OURS, "--", *command]
    said = b.call(run)
    assert "the trainer ended its training by itself at step 4 of 20" in said, said
    assert sorted(p.name for p in out.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"], said
    # A second start of a finished run starts nothing, and what it says works.
    again = b.call(run)
    assert "--from 4" in again and "attempt 2" not in again, again
    b.call([*run[:5], "--from", "4", *run[5:]])


def the_best_step_is_kept(b):
    """Step 2 is the best; two steps are kept."""
    out = b.work / "best"
    command = [sys.executable, *flags(out, steps=12), *EVALUATED, "--save_total_limit", "2"]
    said = b.call(["env", "HF_RISES=1", b.programs / "supervise", "run", *OURS, "--", *command])
    kept = sorted((p.name for p in out.glob("checkpoint-*")), key=lambda name: int(name.split("-")[1]))
    assert kept == ["checkpoint-2", "checkpoint-10", "checkpoint-12"], f"{kept}:\n{said}"
    best = json.loads((out / "checkpoint-12/trainer_state.json").read_text())["best_model_checkpoint"]
    assert Path(best).name == "checkpoint-2", best


HUB = """
import sys
from huggingface_hub import HfApi
from transformers import Trainer


LIST = HfApi._prepare_upload_folder_additions


def told(*args, **named):
    print("uploads", sorted(o.path_in_repo for o in LIST(*args, **named)), flush=True)
    sys.exit()


HfApi._prepare_upload_folder_additions = told
HfApi().upload_folder(repo_id="a/b", folder_path=sys.argv[2], ignore_patterns=["_*", "checkpoint-*"])
"""


def what_supervise_writes_is_not_uploaded(b):
    script, out = b.work / "hub.py", b.work / "hub"
    out.mkdir()
    (out / "config.json").write_text("{}")
    script.write_text(HUB)
    words = [script, "--output_dir", out, "--save_steps", 2, "--logging_steps", 1, "--push_to_hub", "true"]
    for command in ([sys.executable, *words], [*TORCHRUN[:-1], "--nproc-per-node=1", *words]):
        b.call([b.programs / "supervise", "run", *OURS, "--set", "supervisor.retries=0", "--", *command], code=None)
        logs = sorted((out / ".supervise/attempts").glob("*/worker-0.log"))
        told = [line for line in logs[-1].read_text().splitlines() if line.startswith("uploads")]
        assert told == ["uploads ['config.json']"], (command, told, logs[-1].read_text()[-3000:])
        shutil.rmtree(out / ".supervise")


def what_follows_the_last_step_is_done(b):
    out, mark = b.work / "tail", b.work / "tail.mark"
    command = [sys.executable, *flags(out)]
    said = b.call(["env", f"HF_TAIL={mark}", b.programs / "supervise", "run", *OURS, "--", *command])
    assert "failed after its last step" in said and "resume from checkpoint-6" in said, said
    assert (out / "model.safetensors").is_file(), "the model was not saved"
    never = b.work / "never"
    command = [sys.executable, *flags(never)]
    run = ["env", f"HF_TAIL={b.work}/no/such/folder", b.programs / "supervise", "run", *OURS, "--", *command]
    said = b.call(run, code=3)
    assert "failed after its last step" in said and "newest proven step: 6 of 6" in said, said
    # Trainer trains one step more each time that it is resumed at the last one: nothing is built on that.
    kept = sorted(p.name for p in never.glob("checkpoint-*"))
    assert "checkpoint-6" in kept and not {"checkpoint-8", "checkpoint-9"} & set(kept), kept


CASES = [killed_in_a_step_and_in_a_save, a_script_that_takes_no_flags_finds_what_was_left_for_it,
         a_script_with_everything_in_its_code_is_given_the_proven_step, a_step_without_its_optimizer_is_asked_about,
         a_script_that_does_not_resume_is_ended_before_it_saves, the_best_step_is_kept]
if FULL:
    CASES += [alone_a_torn_save_ends_every_start_and_a_missing_optimizer_is_told_by_nobody, what_supervise_writes_is_not_uploaded,
              early_stopping_is_an_end, what_follows_the_last_step_is_done]


def run_cases(cases, bench):
    """Runs each case, says how it went, and returns the exit code: 1 if one failed or there is none."""
    failed = 0
    for case in cases:
        began = time.monotonic()
        try:
            case(bench)
            word = "ok"
        except Exception:
            traceback.print_exc()
            failed, word = failed + 1, "FAILED"
        print(f"{word:6} {case.__name__} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(args.programs.resolve(), (args.work or Path(work)).resolve())
        bench.prepare()
        return run_cases([case for case in CASES if args.only in (None, case.__name__)], bench)


if __name__ == "__main__":
    sys.exit(main())
