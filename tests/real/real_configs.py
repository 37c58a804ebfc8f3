"""Configurations and tokenizers as transformers, tokenizers and megatron-core write them, each of every kind that needs no download."""

import itertools
import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"

TEXT = ["the quick brown fox jumps over the lazy dog", "Was kostet das? 12 € 50", "日本語のテキスト", "def f(x):\n\treturn x ** 2"] * 20
SPECIAL = ["<pad>", "<unk>", "<|im_end|>", "[CLS]", "[SEP]"]


def configurations(work):
    """The paths of all files that could be made."""
    makers = (models, generations, trained_tokenizers, own_tokenizers, megatron)
    return [path for make in makers for path in make(work / make.__name__)]


def attempt(make):
    """Some want to know what they are made of, or packages that are not here."""
    try:
        return list(make())
    except Exception:
        return []


def written(folder):
    return [path for path in sorted(folder.rglob("*.json"))]


def models(work):
    """The configuration of each model, as it is saved and with all its defaults."""
    from transformers import CONFIG_MAPPING

    def one(name):
        config, folder = CONFIG_MAPPING[name](), work / name
        config.save_pretrained(folder)
        (folder / "all").mkdir()
        (folder / "all/config.json").write_text(config.to_json_string(use_diff=False))
        return [folder / "config.json", folder / "all/config.json"]

    return [path for name in CONFIG_MAPPING for path in attempt(lambda name=name: one(name))]


def generations(work):
    """How to generate: by default, in many ways, and as models say."""
    from transformers import CONFIG_MAPPING, GenerationConfig

    ways = [
        {}, {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}, {"num_beams": 4, "early_stopping": True},
        {"eos_token_id": [151645, 151643], "pad_token_id": 151643, "max_new_tokens": 2048}, {"repetition_penalty": 1.05},
        {"bad_words_ids": [[1, 2], [3]], "suppress_tokens": [7]}, {"assistant_confidence_threshold": 0.4}, {"use_cache": False},
        {"cache_implementation": "static", "max_length": 20}, {"typical_p": 0.9, "min_p": 0.05, "epsilon_cutoff": 3e-4},
    ]  # fmt: skip
    for number, way in enumerate(ways):
        attempt(lambda number=number, way=way: GenerationConfig(**way).save_pretrained(work / str(number)) or [])
    for name in CONFIG_MAPPING:
        attempt(lambda name=name: GenerationConfig.from_model_config(CONFIG_MAPPING[name]()).save_pretrained(work / name) or [])
    return written(work)


def trained_tokenizers(work):
    """Each kind of model with each kind of part, as the library saves them and through transformers."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    made = {
        "bpe": (kinds.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL)),
        "bpe_pieces": (
            kinds.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>", fuse_unk=True, dropout=0.1),
            trainers.BpeTrainer(vocab_size=160, special_tokens=SPECIAL, continuing_subword_prefix="##", end_of_word_suffix="</w>"),
        ),
        "bytes": (
            kinds.BPE(byte_fallback=True, ignore_merges=True),
            trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        ),
        "wordpiece": (kinds.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL)),
        "wordlevel": (kinds.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=90, special_tokens=SPECIAL)),
        "unigram": (kinds.Unigram(), trainers.UnigramTrainer(vocab_size=80, special_tokens=SPECIAL, unk_token="<unk>")),
    }
    normal = [None, normalizers.NFKC(), normalizers.BertNormalizer(), normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Prepend("▁"), normalizers.Strip()])]
    before = [
        pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Metaspace(), pre_tokenizers.BertPreTokenizer(),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation(), pre_tokenizers.Split(" ", "merged_with_next")]),
    ]  # fmt: skip
    after = [None, processors.ByteLevel(), processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3)), processors.RobertaProcessing(("[SEP]", 4), ("[CLS]", 3)),
             processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 3), ("[SEP]", 4)])]  # fmt: skip
    back = [None, decoders.ByteLevel(), decoders.WordPiece(), decoders.Metaspace(), decoders.BPEDecoder(), decoders.CTC(),
            decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])]  # fmt: skip
    for kind, (model, trainer) in made.items():
        for n, (first, parts) in enumerate(itertools.product(before, zip(itertools.cycle(normal), itertools.cycle(after), back))):
            tokenizer = Tokenizer(model)
            tokenizer.pre_tokenizer = first
            if parts[0] is not None:
                tokenizer.normalizer = parts[0]
            tokenizer.train_from_iterator(TEXT, trainer)
            if parts[1] is not None:
                tokenizer.post_processor = parts[1]
            if parts[2] is not None:
                tokenizer.decoder = parts[2]
            tokenizer.add_tokens(["<tool>", "café"])
            if n % 3 == 0:
                tokenizer.enable_padding(pad_token="<pad>", length=16)
                tokenizer.enable_truncation(12, stride=2)
            folder = work / kind / str(n)
            folder.mkdir(parents=True)
            tokenizer.save(str(folder / "tokenizer.json"), pretty=n % 2 == 0)
            wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<|im_end|>")
            attempt(lambda wrapped=wrapped, folder=folder: wrapped.save_pretrained(folder / "saved") or [])
    return written(work)


def own_tokenizers(work):
    """What each tokenizer of transformers is without a vocabulary."""
    import transformers

    names = [name for name in dir(transformers) if name.endswith(("Tokenizer", "TokenizerFast"))]
    for name in names:
        attempt(lambda name=name: getattr(transformers, name)().save_pretrained(work / name) or [])
    return written(work)


def megatron(work):
    """Configurations of a model with each switch thrown, written as verl writes them."""
    import dataclasses

    import torch
    from megatron.core.transformer.enums import AttnBackend
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    work.mkdir()
    base = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8}
    paths = []
    for kind in (TransformerConfig, MLATransformerConfig):
        switches = [{f.name: not f.default} for f in dataclasses.fields(kind) if isinstance(f.default, bool)]
        more = [{"num_moe_experts": 8, "moe_router_load_balancing_type": way} for way in ("aux_loss", "seq_aux_loss", "sinkhorn", "none")]
        more += [{"normalization": "RMSNorm", "gated_linear_unit": True, "add_bias_linear": False, "num_query_groups": 2}]
        for number, way in enumerate([{}, *switches, *more]):
            made = attempt(lambda kind=kind, way=way: [kind(**{**base, **way})])
            for config in made:
                fields = {}
                for key, value in vars(config).items():
                    if isinstance(value, (torch.dtype, AttnBackend)):
                        fields[key] = str(value)
                    elif not callable(value):
                        fields[key] = value
                path = work / kind.__name__ / str(number) / "transformer_config.json"
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps(fields, indent=2, default=str))
                paths.append(path)
    return paths
