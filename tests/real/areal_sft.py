"""Trains a tiny model with areal's own SFTTrainer (SPMD mode), so that its checkpoints are on disk.

usage: AREAL_SPMD_MODE=1 gang.sh 2 python areal_sft.py MODEL ROOT [--steps 3] [--export 2] [--earlier FOLDER]
       AREAL_SPMD_MODE=1 gang.sh 2 python areal_sft.py --config FILE.yaml [key=value ...]

MODEL is a directory made by make_tiny_model.py. Below ROOT/checkpoints/USER/real/t0 areal leaves recover_info and
default/recover_checkpoint after every step (always the last one only), and a Hugging Face export after every
`--export`th. Run again with more steps, it goes on from there. With --earlier, a copy of the last step but one is left
in FOLDER: areal itself overwrites it. With --config, areal's own loader reads everything from the file and the overrides,
as in a user's script; tokenizer_path is then the model.
"""

import argparse
import getpass
import os
import shutil
import sys
from pathlib import Path

from areal.api.cli_args import (
    ClusterSpecConfig,
    EvaluatorConfig,
    NameResolveConfig,
    OptimizerConfig,
    RecoverConfig,
    SaverConfig,
    SFTConfig,
    StatsLoggerConfig,
    TrainDatasetConfig,
    TrainEngineConfig,
    load_expr_config,
)
from areal.trainer.sft_trainer import SFTTrainer
from datasets import Dataset
from transformers import AutoTokenizer


def samples(model):
    """Sums and their answers; only the answer counts."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = []
    for i in range(64):
        question = tokenizer(f"What is {i} + {i}?")["input_ids"]
        answer = tokenizer(f" {i} + {i} = {2 * i}.")["input_ids"]
        rows.append({"input_ids": question + answer, "loss_mask": [0] * len(question) + [1] * len(answer)})
    return Dataset.from_list(rows)


def config(model, root, steps, export):
    names = {"experiment_name": "real", "trial_name": "t0"}
    where = {**names, "fileroot": root}
    return SFTConfig(
        **names,
        total_train_epochs=4,
        total_train_steps=steps,
        tokenizer_path=model,
        cluster=ClusterSpecConfig(
            fileroot=root,
            n_nodes=1,
            n_gpus_per_node=2,
            name_resolve=NameResolveConfig(type="nfs", nfs_record_root=f"{root}/names"),
        ),
        train_dataset=TrainDatasetConfig(path="-", type="sft", batch_size=16, shuffle=True),
        valid_dataset=None,
        saver=SaverConfig(**where, freq_steps=export, mode="sync"),
        evaluator=EvaluatorConfig(**where),
        recover=RecoverConfig(**where, mode="auto", freq_steps=1),
        stats_logger=StatsLoggerConfig(**where),
        actor=TrainEngineConfig(
            **names,
            path=model,
            backend="fsdp:d2",
            dtype="float32",
            attn_impl="sdpa",
            gradient_checkpointing=False,
            pad_to_maximum=True,
            optimizer=OptimizerConfig(lr=1e-3, warmup_steps_proportion=0.0),
        ),
    )


def keep_step(handler, step, trial, folder):
    """Copies the trial once `step` is saved; nobody overwrites it while rank 0, whom the next save waits for, copies."""
    dump = handler.dump

    def dump_and_copy(engine, step_info, *args, **kwargs):
        dump(engine, step_info, *args, **kwargs)
        if step_info.global_step == step and os.environ["RANK"] == "0":
            shutil.copytree(trial, folder)

    handler.dump = dump_and_copy


def train(config, prepare=lambda trainer: None):
    with SFTTrainer(config, train_dataset=samples(config.tokenizer_path)) as trainer:
        print("resumed from", trainer.recover_info and trainer.recover_info.last_step_info, flush=True)
        prepare(trainer)
        trainer.train()


def main(argv=None):
    """areal's launcher on Ray calls this with the arguments behind the script."""
    argv = sys.argv[1:] if argv is None else argv
    if any(word.startswith("--config") for word in argv):
        return train(load_expr_config(argv, SFTConfig)[0])
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("root")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--export", type=int, default=2)
    parser.add_argument("--earlier", type=Path)
    args = parser.parse_args(argv)

    def prepare(trainer):
        if args.earlier:
            trial = Path(args.root, "checkpoints", getpass.getuser(), "real", "t0")
            keep_step(trainer.recover_handler, args.steps - 2, trial, args.earlier)

    train(config(args.model, args.root, args.steps, args.export), prepare)


if __name__ == "__main__":
    main()
