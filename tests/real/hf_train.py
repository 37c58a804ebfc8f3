"""A tiny training on Hugging Face's Trainer, or on TRL's SFTTrainer, that can be told to die.

usage: hf_train.py FLAGS OF TrainingArguments          as most scripts are: HfArgumentParser, resumes where --resume_from_checkpoint says
       hf_train.py --code OUT trainer|own|seq2seq      as many scripts are: everything in the code, and `train()` is given nothing
       hf_train.py --sft OUT STEPS                     TRL, with everything in the code: resumes from what get_last_checkpoint finds

FAULTS and FAULT_LEDGER are those of fault_hooks.py, of which these kinds are known here: `kill`: SIGKILL when step N begins; `hold`: it waits there; and those of
hf_faults.py. HF_DEAF=1: the script takes --resume_from_checkpoint and does nothing with it, and each step lasts a second.
HF_RISES=1: the loss of each evaluation is higher than the one before. HF_EARLY=N: EarlyStoppingCallback with that patience. HF_TAIL=FILE: fails after the training
if FILE is not there, and makes it; then saves the model.
With --deepspeed FILE, DeepSpeed has to be on PYTHONPATH. Without --use_cpu it trains on a GPU: see on_gpu.py.
"""

import importlib
import os
import signal
import sys
import time

import torch
from transformers import EarlyStoppingCallback, HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import fault_hooks
import on_gpu
from hf_faults import FAULTS

DEAF = os.environ.get("HF_DEAF") == "1"
TAIL = os.environ.get("HF_TAIL")
ON_CPU = any(word in sys.argv for word in ("--use_cpu", "--sft", "--code"))
WORDS = 64


class Faults(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        if DEAF:
            time.sleep(1)
        step = state.global_step + 1
        if FAULTS and FAULTS.take(("kill",), step):
            fault_hooks.die(signal.SIGKILL)
        if FAULTS and FAULTS.take(("hold",), step):
            FAULTS.hold(step)


if "--deepspeed" in sys.argv:
    # It would be compiled. As an attribute of its package the module is hidden by torch itself.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


load = torch.load
if ON_CPU:
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


class Rising(Trainer):
    def evaluation_loop(self, *args, **more):
        out = super().evaluation_loop(*args, **more)
        out.metrics["eval_loss"] = 1.0 + self.state.global_step
        return out


def by_flags():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    held = None if ON_CPU else on_gpu.prepare()
    rises, patience = os.environ.get("HF_RISES"), int(os.environ.get("HF_EARLY", "0"))
    callbacks = [Faults(), *([EarlyStoppingCallback(early_stopping_patience=patience)] if patience else [])]
    trainer = (Rising if rises else Trainer)(
        model=model(), args=args, train_dataset=Data(), eval_dataset=Data() if rises else None, callbacks=callbacks)
    wish = args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=None if DEAF else True if wish == "True" else wish)
    if TAIL and not os.path.exists(TAIL):
        open(TAIL, "w").close()
        raise RuntimeError("the tokenizer has no name")
    if TAIL:
        trainer.save_model()


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


def by_code(out, kind):
    """Everything in the code, and nothing of resuming: `Trainer`, a subclass of it, `Seq2SeqTrainer`."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    class Own(Trainer):
        def train(self, *args, **more):
            return super().train(*args, **more)

    kinds = {"trainer": (Trainer, TrainingArguments), "own": (Own, TrainingArguments), "seq2seq": (Seq2SeqTrainer, Seq2SeqTrainingArguments)}
    trainer, arguments = kinds[kind]
    args = arguments(output_dir=out, max_steps=6, save_steps=2, logging_steps=1, per_device_train_batch_size=4, use_cpu=True, report_to="none")
    trainer(model=model(), args=args, train_dataset=Data(), callbacks=[Faults()]).train()


if sys.argv[1:2] == ["--sft"]:
    by_itself(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1:2] == ["--code"]:
    by_code(sys.argv[2], sys.argv[3])
else:
    by_flags()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
    # Gloo's threads live on all the same, and one that lets go of a tensor while the interpreter is taken down ends by SIGABRT.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
