"""Tiny models for merge_formats_writers.py: as Hugging Face builds them, and the same weights as Megatron keeps them.

The way from the one to the other is written down here a second time, and independently of what `supervise merge` does: where a
model can run on the CPU in both libraries, its logits have to agree.
"""

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCABULARY, PADDED, LAYERS, HEADS, GROUPS, HIDDEN, FEED = 99, 112, 2, 4, 2, 32, 24
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=HIDDEN,
    intermediate_size=FEED,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=GROUPS,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
MOE = dict(moe_intermediate_size=12, num_experts_per_tok=2)
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**{**SIZES, "tie_word_embeddings": True}),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen2_moe": Qwen2MoeConfig(**SIZES, **MOE, num_experts=4, shared_expert_intermediate_size=20),
    "qwen3_moe": Qwen3MoeConfig(**SIZES, **MOE, num_experts=4, head_dim=16, mlp_only_layers=[0], norm_topk_prob=True),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
    "deepseek_v3": DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": HEADS},
        **MOE,
        n_routed_experts=4,
        n_shared_experts=2,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        q_lora_rank=10,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=6,
    ),
}


def hugging_face(name, directory):
    """Writes the model; gives its tensors as they stand in the files."""
    from safetensors.torch import load_file

    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(MODELS[name], dtype=torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    for key, buffer in model.named_buffers():
        if "e_score_correction_bias" in key:
            torch.nn.init.normal_(buffer)
    model.tie_weights()
    model.save_pretrained(directory)
    return model.eval(), load_file(directory / "model.safetensors")


def predicting(hf, config):
    """The same with one layer more, which predicts one token more: transformers knows it by name only."""
    torch.manual_seed(4)
    last, out = f"model.layers.{config.num_hidden_layers - 1}.", dict(hf)
    for key, tensor in hf.items():
        if key.startswith(last):
            out[f"model.layers.{config.num_hidden_layers}.{key.removeprefix(last)}"] = torch.randn_like(tensor)
    of = f"model.layers.{config.num_hidden_layers}."
    for key, shape in {"enorm": (HIDDEN,), "hnorm": (HIDDEN,), "eh_proj": (HIDDEN, 2 * HIDDEN), "shared_head.norm": (HIDDEN,)}.items():
        out[f"{of}{key}.weight"] = torch.randn(shape)
    out[f"{of}embed_tokens.weight"] = hf["model.embed_tokens.weight"]
    out[f"{of}shared_head.head.weight"] = hf["lm_head.weight"]
    return out


def experts(config):
    return next((getattr(config, k) for k in ("num_experts", "num_local_experts", "n_routed_experts") if hasattr(config, k)), 0)


def is_sparse(config, layer):
    if config.model_type == "deepseek_v3":
        return layer >= config.first_k_dense_replace
    return bool(experts(config)) and layer not in (getattr(config, "mlp_only_layers", None) or [])


def padded(tensor):
    """Rows that are no tokens, with numbers that must not come out."""
    return torch.cat([tensor, torch.full((PADDED - len(tensor), tensor.shape[1]), 7.0)])


def joined_qkv(q, k, v, groups):
    """Each group of heads: its queries, its key, its value."""
    return torch.cat([part for group in zip(q.chunk(groups), k.chunk(groups), v.chunk(groups)) for part in group])


def megatron(config, hf):
    """The parameters of a Megatron model without any parallelism, by the names of its modules."""
    out = {
        "embedding.word_embeddings.weight": padded(hf["model.embed_tokens.weight"]),
        "decoder.final_layernorm.weight": hf["model.norm.weight"],
    }
    if not config.tie_word_embeddings:
        out["output_layer.weight"] = padded(hf["lm_head.weight"])
    places = {n: f"decoder.layers.{n}." for n in range(config.num_hidden_layers)}
    further = config.num_hidden_layers
    if f"model.layers.{further}.enorm.weight" in hf:
        places[further] = "mtp.layers.0.transformer_layer."
        for a, b in {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "final_layernorm": "shared_head.norm"}.items():
            out[f"mtp.layers.0.{a}.weight"] = hf[f"model.layers.{further}.{b}.weight"]
    for n, to in places.items():
        of = f"model.layers.{n}."
        attention, mlp = f"{of}self_attn.", f"{of}mlp."
        out[f"{to}input_layernorm.weight"] = hf[f"{of}input_layernorm.weight"]
        out[f"{to}pre_mlp_layernorm.weight"] = hf[f"{of}post_attention_layernorm.weight"]
        out[f"{to}self_attention.linear_proj.weight"] = hf[f"{attention}o_proj.weight"]
        if config.model_type == "deepseek_v3":
            for a, b in {
                "linear_q_down_proj": "q_a_proj",
                "linear_q_up_proj": "q_b_proj",
                "linear_kv_down_proj": "kv_a_proj_with_mqa",
                "linear_kv_up_proj": "kv_b_proj",
                "q_layernorm": "q_a_layernorm",
                "kv_layernorm": "kv_a_layernorm",
            }.items():
                out[f"{to}self_attention.{a}.weight"] = hf[f"{attention}{b}.weight"]
        else:
            for kind in ("weight", "bias"):
                parts = [hf.get(f"{attention}{x}_proj.{kind}") for x in "qkv"]
                if parts[0] is not None:
                    out[f"{to}self_attention.linear_qkv.{kind}"] = joined_qkv(*parts, config.num_key_value_heads)
            for x in "qk":
                if f"{attention}{x}_norm.weight" in hf:
                    out[f"{to}self_attention.{x}_layernorm.weight"] = hf[f"{attention}{x}_norm.weight"]
        if not is_sparse(config, n):
            feed(out, f"{to}mlp.", hf, [f"{mlp}{x}_proj.weight" for x in ("gate", "up", "down")])
            continue
        block, words = (f"{of}block_sparse_moe.", ("w1", "w3", "w2")) if config.model_type == "mixtral" else (mlp, None)
        out[f"{to}mlp.router.weight"] = hf[f"{block}gate.weight"]
        for e in range(experts(config)):
            each = words or ("gate_proj", "up_proj", "down_proj")
            feed(out, f"{to}mlp.experts.local_experts.{e}.", hf, [f"{block}experts.{e}.{x}.weight" for x in each])
        if f"{mlp}gate.e_score_correction_bias" in hf:
            out[f"{to}mlp.router.expert_bias"] = hf[f"{mlp}gate.e_score_correction_bias"]
        for shared in (f"{mlp}shared_expert.", f"{mlp}shared_experts."):
            if f"{shared}up_proj.weight" in hf:
                feed(out, f"{to}mlp.shared_experts.", hf, [f"{shared}{x}_proj.weight" for x in ("gate", "up", "down")])
        if f"{mlp}shared_expert_gate.weight" in hf:
            out[f"{to}mlp.shared_experts.gate_weight"] = hf[f"{mlp}shared_expert_gate.weight"]
    return out


def feed(out, to, hf, names):
    gate, up, down = (hf[name] for name in names)
    out[f"{to}linear_fc1.weight"] = torch.cat([gate, up])
    out[f"{to}linear_fc2.weight"] = down


def of_rank(name, tensor, rank, ranks):
    """What one tensor-parallel rank holds of it."""
    if ranks == 1 or "norm" in name or "router" in name or "gate_weight" in name:
        return tensor
    if name.endswith(("linear_proj.weight", "linear_fc2.weight")):
        return tensor.chunk(ranks, dim=1)[rank]
    if name.endswith("linear_fc1.weight"):
        return torch.cat([half.chunk(ranks)[rank] for half in tensor.chunk(2)])
    return tensor.chunk(ranks)[rank]
