"""Programs on Hugging Face's Trainer under `supervise`, on the CPU, each killed inside a save or a step and brought back, and compared with a run in one go.

usage: hf_programs.py PROGRAMS DEEPSPEED [--llamafactory FOLDER] [--only NAME]

PROGRAMS is the folder with the built `supervise`, DEEPSPEED what install_deepspeed.sh makes, FOLDER what install_llamafactory.sh makes; without it LLaMA-Factory is left out.
Run it with the interpreter of the environment that install.sh makes. Ends with `N passed, M failed`.
"""

import argparse
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from hf_recovery import HERE, OURS, TORCHRUN, TRAIN, Bench, flags, run_cases
from safetensors.torch import load_file

ZERO = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}
# It is called in each step, and knows which.
REWARDS = """
import os
import signal


def length(completions, trainer_state, **more):
    mark = os.environ.get("GRPO_MARK")
    if mark and trainer_state.global_step == 3 and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(len(text) % 7) for text in completions]
"""
# LLaMA-Factory imports torchaudio, and needs it for sound alone.
TORCHAUDIO = f"""
import sys

sys.path.append({str(HERE)!r})
import hf_faults
"""


def same(one, other):
    """Weights, and the losses of all steps."""
    tensors, wanted = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert tensors.keys() == wanted.keys()
    lost = [name for name in tensors if not torch.equal(tensors[name], wanted[name])]
    logs = [json.loads((step / "trainer_state.json").read_text())["log_history"] for step in (one, other)]
    losses, others = ([(e["step"], e["loss"]) for e in log if "loss" in e] for log in logs)
    assert not lost and losses == others, (lost, losses, others)


def storages(file):
    """The tensors of a file that torch.save wrote, as bytes: loading it would need DeepSpeed."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if "/data/" in name}


def tells(said, *all_words):
    for words in all_words:
        assert words in said, f"{words}:\n{said}"


def zero_2_is_killed_while_a_rank_saves_its_part(b):
    """The other rank has written `latest` and its own part by then."""
    (b.work / "zero.json").write_text(json.dumps(ZERO))
    more = ["--deepspeed", b.work / "zero.json"]
    env = {"PYTHONPATH": str(b.deepspeed), "DS_ACCELERATOR": "cpu"}
    straight, out = b.work / "zero_straight", b.work / "zero"
    first = b.start([*TORCHRUN, *flags(straight), *more], env=env)
    faults = [{"kind": "torn", "step": 4, "rank": 1, "file": "optimizer"}]
    said = b.run("zero", faults, [*TORCHRUN, *flags(out), *more], env=env)
    b.end(first, 0)
    tells(said, "resume from checkpoint-2", "moved aside: checkpoint-4", "finished: step 6 is proven")
    same(out / "checkpoint-6", straight / "checkpoint-6")
    for rank in (0, 1):
        part = f"checkpoint-6/global_step6/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        assert storages(out / part) == storages(straight / part), f"rank {rank} has another optimizer"
    b.call([b.programs / "supervise", "verify", out, "--depth", "full"])
    # DeepSpeed would end with ZeRORuntimeException.
    alone = [*TORCHRUN[:-1], "--nproc-per-node=1", *flags(out, steps=8), *more]
    said = b.call([b.programs / "supervise", "plan", "--", *alone], code=3, env=env)
    tells(said, "2 ranks saved it with DeepSpeed", "the run has 1")


def trl_grpo_is_killed_in_a_step(b):
    rewards, data, mark = b.work / "rewards.py", b.work / "prompts", b.work / "grpo.mark"
    rewards.write_text(REWARDS)
    data.mkdir()
    lines = [json.dumps({"prompt": f"What is {n} + {n}?"}) for n in range(32)]
    (data / "train.jsonl").write_text("\n".join(lines))
    env = {"PYTHONPATH": str(Path(sys.prefix) / "trl"), "PATH": f"{Path(sys.prefix) / 'trl/bin'}:{os.environ['PATH']}", "HF_HOME": str(b.work / "hf")}

    def command(out):
        return ["trl", "grpo", "--model_name_or_path", b.model(), "--dataset_name", data, "--reward_funcs", "rewards.length", "--output_dir", out,
                "--max_steps", 6, "--save_steps", 2, "--logging_steps", 1, "--per_device_train_batch_size", 4, "--num_generations", 4,
                "--max_completion_length", 8, "--use_cpu", "true", "--bf16", "false", "--report_to", "none", "--num_processes", 1]

    straight, out = b.work / "grpo_straight", b.work / "grpo"
    first = b.start(command(straight), env=env)
    said = b.call([b.programs / "supervise", "run", *OURS, "--", *command(out)], env={**env, "GRPO_MARK": str(mark)})
    b.end(first, 0)
    assert mark.is_file(), said
    tells(said, "was killed by SIGKILL", "resume from checkpoint-2", "the trainer resumed from 2", "finished: step 6 is proven")
    same(out / "checkpoint-6", straight / "checkpoint-6")


def llamafactory_resumes_with_a_yaml_and_with_flags(b):
    stubs, data = b.work / "stubs", b.work / "factory"
    stubs.mkdir()
    (stubs / "torchaudio.py").write_text(TORCHAUDIO)
    data.mkdir()
    (data / "dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))
    sums = [{"instruction": f"What is {n} + {n}?", "input": "", "output": str(2 * n)} for n in range(64)]
    (data / "sums.json").write_text(json.dumps(sums))
    said = {"model_name_or_path": str(b.model()), "stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "sums", "dataset_dir": str(data),
            "template": "qwen", "cutoff_len": 64, "logging_steps": 1, "save_steps": 2, "max_steps": 6, "per_device_train_batch_size": 4,
            "learning_rate": 1e-4, "report_to": "none", "use_cpu": True}
    env = {"PYTHONPATH": f"{stubs}:{b.llamafactory}", "PATH": f"{b.llamafactory}/bin:{os.environ['PATH']}", "HF_HOME": str(b.work / "hf")}

    def by_yaml(out):
        file = b.work / f"{out.name}.yaml"
        file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in {**said, "output_dir": str(out)}.items()))
        return ["llamafactory-cli", "train", file]

    def by_flags(out):
        return ["llamafactory-cli", "train", *[word for key, value in {**said, "output_dir": out}.items() for word in (f"--{key}", value)]]

    straight = b.work / "lf_straight"
    b.call(by_yaml(straight), env=env)
    for name, command in (("lf_yaml", by_yaml), ("lf_flags", by_flags)):
        out = b.work / name
        told = b.run(name, [{"kind": "torn", "step": 4}], command(out), env=env)
        tells(told, "resume from checkpoint-2", "moved aside: checkpoint-4", "the trainer resumed from 2", "finished: step 6 is proven")
        same(out / "checkpoint-6", straight / "checkpoint-6")


class Programs(Bench):
    def __init__(self, programs, work, deepspeed, llamafactory):
        super().__init__(programs, work)
        self.deepspeed, self.llamafactory = deepspeed, llamafactory

    def model(self):
        """A tiny model with a tokenizer."""
        made = self.work / "model"
        if not made.is_dir():
            self.call([sys.executable, HERE / "make_tiny_model.py", made, "--hidden", 16, "--layers", 1, "--vocab", 300, "--rows", 16])
        return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("deepspeed", type=Path)
    parser.add_argument("--llamafactory", type=Path)
    parser.add_argument("--only")
    args = parser.parse_args()
    cases = [zero_2_is_killed_while_a_rank_saves_its_part, trl_grpo_is_killed_in_a_step]
    if args.llamafactory:
        cases.append(llamafactory_resumes_with_a_yaml_and_with_flags)
    cases = [case for case in cases if args.only in (None, case.__name__)]
    with tempfile.TemporaryDirectory() as work:
        bench = Programs(args.programs.resolve(), Path(work).resolve(), args.deepspeed.resolve(), args.llamafactory and args.llamafactory.resolve())
        return run_cases(cases, bench)


if __name__ == "__main__":
    sys.exit(main())
