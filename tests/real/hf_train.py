"""A tiny training on Hugging Face's Trainer, or on TRL's SFTTrainer, that can be told to die.

usage: hf_train.py FLAGS OF TrainingArguments          as most scripts are: HfArgumentParser, resumes where --resume_from_checkpoint says
       hf_train.py --sft OUT STEPS                     TRL, with everything in the code: resumes from what get_last_checkpoint finds

HF_FAULTS is a JSON list of {"kind": "kill"|"torn", "step": N, "rank": R}; each happens once, HF_LEDGER is the folder that remembers it.
`kill`: SIGKILL when step N begins. `torn`: SIGKILL when half of trainer_state.json of step N is written. HF_DEAF=1: the script takes --resume_from_checkpoint and does
nothing with it, and each step lasts a second.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

DEAF = os.environ.get("HF_DEAF") == "1"
RANK = int(os.environ.get("RANK", 0))
WORDS = 64


def fault(kind, step):
    """Whether one of this kind is due here and now; it is not due again."""
    for n, wish in enumerate(json.loads(os.environ.get("HF_FAULTS", "[]"))):
        done = Path(os.environ.get("HF_LEDGER", ".")) / f"{n}"
        if (wish["kind"], wish["step"], wish["rank"]) == (kind, step, RANK) and not done.exists():
            done.parent.mkdir(parents=True, exist_ok=True)
            done.touch()
            return True
    return False


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Faults(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        if DEAF:
            time.sleep(1)
        if fault("kill", state.global_step + 1):
            die()


whole = TrainerState.save_to_json


def torn(self, path):
    if not fault("torn", self.global_step):
        return whole(self, path)
    whole(self, path)
    os.truncate(path, os.path.getsize(path) // 2)
    die()


TrainerState.save_to_json = torn


load = torch.load
# Trainer asks for the device `cpu:0` where there is more than one rank, and torch knows only `cpu`.
torch.load = lambda *files, map_location=None, **more: load(*files, map_location="cpu", **more)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, n):
        ids = torch.randint(3, WORDS, (16,), generator=torch.Generator().manual_seed(n))
        return {"input_ids": ids, "labels": ids.clone()}


def model():
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=32, attention_dropout=0.1, bos_token_id=0, eos_token_id=1, pad_token_id=2))


def by_flags():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    trainer = Trainer(model=model(), args=args, train_dataset=Data(), callbacks=[Faults()])
    wish = args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=None if DEAF else True if wish == "True" else wish)


def by_itself(out, steps):
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    # It stands beside the environment, in which verl would look at it.
    sys.path.insert(0, os.path.join(sys.prefix, "trl"))
    from trl import SFTConfig, SFTTrainer

    names = {"<s>": 0, "</s>": 1, "<pad>": 2} | {f"w{n}": n for n in range(3, WORDS)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="<pad>")), bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    data = Dataset.from_list([{"input_ids": Data()[n]["input_ids"].tolist()} for n in range(64)])
    args = SFTConfig(output_dir=out, max_steps=steps, save_steps=2, logging_steps=1, per_device_train_batch_size=4, use_cpu=True,
                     bf16=False, report_to="none", max_length=16, gradient_checkpointing=False)
    trainer = SFTTrainer(model=model(), args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Faults()])
    trainer.train(resume_from_checkpoint=os.path.isdir(out) and get_last_checkpoint(out) or None)


if sys.argv[1:2] == ["--sft"]:
    by_itself(sys.argv[2], int(sys.argv[3]))
else:
    by_flags()
if torch.distributed.is_initialized():
    # Without it torch's threads are not joined, and now and then a rank that has done everything ends by SIGABRT.
    torch.distributed.destroy_process_group()
