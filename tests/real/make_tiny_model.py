"""Writes a tiny random Qwen2 with a byte tokenizer of its own and data sets of sums.

usage: make_tiny_model.py OUT [--hidden 64] [--layers 2] [--vocab 512] [--rows 128] [--dtype float32]

OUT gets a Hugging Face model directory plus train.parquet and val.parquet with a
`messages` column, as verl's SFT trainer reads them, and prompts.parquet, as its PPO trainer does. Everything is
seeded: the same arguments give the same weights.
"""

import argparse
import random
from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

PAD, START, END, UNKNOWN = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unk|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chats(rows):
    """Conversations of one question and one answer each."""
    rng = random.Random(0)
    made = []
    for _ in range(rows):
        a, b = rng.randint(0, 99), rng.randint(0, 99)
        made.append(
            [
                {"role": "user", "content": f"What is {a} + {b}?"},
                {"role": "assistant", "content": f"{a} + {b} = {a + b}. #### {a + b}"},
            ]
        )
    return made


def prompt(index, conversation):
    """A question as verl's PPO trainer reads it."""
    question, answer = conversation
    return {
        "data_source": "sums",
        "prompt": [question],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer["content"].rsplit(" ", 1)[-1]},
        "extra_info": {"index": index},
    }


def make_tokenizer(conversations, vocab):
    """A BPE tokenizer over the bytes that occur: transformers takes every tokenizer of a Qwen2 for one over bytes."""
    texts = [m["content"] for c in conversations for m in c] + ["user\n", "assistant\n", "system\n"]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe = Tokenizer(models.BPE(unk_token=UNKNOWN))
    bpe.pre_tokenizer = as_bytes
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=min(vocab, 512),
            special_tokens=[PAD, START, END, UNKNOWN],
            initial_alphabet=sorted({c for t in texts for word, _ in as_bytes.pre_tokenize_str(t) for c in word}),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[START],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_config(hidden, layers, vocab, eos, pad):
    """The smallest Qwen2 shape with these sizes."""
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=hidden * 4,
        num_hidden_layers=layers,
        num_attention_heads=max(2, hidden // 64),
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=None,
        architectures=["Qwen2ForCausalLM"],
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    conversations = chats(args.rows)
    tokenizer = make_tokenizer(conversations, args.vocab)
    if len(tokenizer) > args.vocab:
        raise SystemExit(f"the tokenizer needs a vocabulary of {len(tokenizer)}")
    tokenizer.save_pretrained(args.out)

    torch.manual_seed(0)
    config = make_config(args.hidden, args.layers, args.vocab, tokenizer.eos_token_id, tokenizer.pad_token_id)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, args.dtype))
    model.save_pretrained(args.out)

    pd.DataFrame({"messages": conversations}).to_parquet(args.out / "train.parquet")
    pd.DataFrame({"messages": conversations[:16]}).to_parquet(args.out / "val.parquet")
    pd.DataFrame([prompt(n, c) for n, c in enumerate(conversations[:16])]).to_parquet(args.out / "prompts.parquet")
    print(f"{args.out}: {sum(p.numel() for p in model.parameters())} parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    main()
