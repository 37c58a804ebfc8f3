"""Writes the checkpoints that merge_formats.py merges: with megatron-core's own modules and its own save, on the CPU.

usage: gang.sh 2 python merge_formats_writers.py OUT

OUT/hf/MODEL is a tiny random model of each architecture that there is a table for; OUT/MODEL-PARALLEL-FORM is the same in Megatron's
`torch_dist`, with two ranks that share tensors (tp2), layers (pp2) or experts (ep2), and in each of its ways to name things (stacked,
layers, single). OUT/fsdp2 is a model under FSDP2, saved by torch.distributed.checkpoint, OUT/trainer/checkpoint-2 the same
by accelerate. Ranks agree on each number: what is written
does not depend on them. Where Megatron runs the model on the CPU, its logits have to be those of transformers.
"""

import argparse
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import merge_formats_models as models
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from verl_megatron_manager import CudaMeansCpu, stand_in_for_cuda

FORMS = {"stacked": {}, "layers": {"non_homogeneous_layers": True}, "single": {"singleton_local_shards": True}}
# The same, with experts that Megatron keeps in one parameter each for both layers of all of them.
FORMS.update({"grouped": FORMS["stacked"], "groupedsingle": FORMS["single"]})
# What each architecture is written as; those with layers of two kinds are never stacked.
CASES = {
    "llama": ["tp2-stacked", "pp2-layers", "tp2-single"],
    "mistral": ["pp2-stacked"],
    "qwen2": ["tp2-stacked", "pp2-single"],
    "qwen3": ["tp2-stacked", "pp2-layers"],
    "qwen2_moe": ["tp2-stacked", "ep2-stacked", "ep2-single"],
    "qwen3_moe": ["ep2-layers", "tp2-single"],
    "mixtral": ["ep2-stacked", "tp2-layers", "pp2-single", "ep2-grouped", "ep2-groupedsingle"],
    "deepseek_v3": ["tp2-layers", "ep2-single"],
    "deepseek_v3_mtp": ["tp2-layers", "ep2-single"],
}

# Those with a value head too.
CRITICS = ["llama", "qwen2_moe"]


def config_of(hf, tensor, pipeline, expert, grouped, engine=False):
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    kind, sparse = hf.model_type, models.experts(hf)
    settings = dict(
        num_layers=hf.num_hidden_layers,
        hidden_size=hf.hidden_size,
        ffn_hidden_size=hf.intermediate_size,
        num_attention_heads=hf.num_attention_heads,
        num_query_groups=hf.num_key_value_heads,
        kv_channels=getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        normalization="RMSNorm",
        layernorm_epsilon=hf.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=kind in ("qwen2", "qwen2_moe"),
        qk_layernorm=kind in ("qwen3", "qwen3_moe", "deepseek_v3"),
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
    )
    if sparse:
        settings.update(
            num_moe_experts=sparse,
            moe_ffn_hidden_size=getattr(hf, "moe_intermediate_size", hf.intermediate_size),
            moe_router_topk=hf.num_experts_per_tok,
            moe_router_load_balancing_type="none",
            moe_token_dispatcher_type="allgather",
            moe_grouped_gemm=grouped,
            moe_use_legacy_grouped_gemm=grouped and not engine,
            moe_router_pre_softmax=not getattr(hf, "norm_topk_prob", True),
        )
        if kind in ("qwen3_moe", "deepseek_v3"):
            settings["moe_layer_freq"] = [int(models.is_sparse(hf, n)) for n in range(hf.num_hidden_layers)]
    if kind == "qwen2_moe":
        settings.update(moe_shared_expert_intermediate_size=hf.shared_expert_intermediate_size, moe_shared_expert_gate=True)
    if kind != "deepseek_v3":
        return TransformerConfig(**settings)
    settings.update(
        moe_shared_expert_intermediate_size=hf.moe_intermediate_size * hf.n_shared_experts,
        moe_router_enable_expert_bias=True,
        moe_router_score_function="sigmoid",
        moe_router_topk_scaling_factor=hf.routed_scaling_factor,
        q_lora_rank=hf.q_lora_rank,
        kv_lora_rank=hf.kv_lora_rank,
        qk_head_dim=hf.qk_nope_head_dim,
        qk_pos_emb_head_dim=hf.qk_rope_head_dim,
        v_head_dim=hf.v_head_dim,
        rope_type="rope",
        mtp_num_layers=getattr(hf, "num_nextn_predict_layers", None),
        multi_latent_attention=True,
    )
    return MLATransformerConfig(**settings)


class PlainAttention(torch.nn.Module):
    """Stands in for the kernel that latent attention needs and that is not there on the CPU; it has no weights."""

    def __init__(self, *args, softmax_scale=None, **kwargs):
        super().__init__()
        self.scale = softmax_scale

    def forward(self, query, key, value, attention_mask, *args, **kwargs):
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return out.permute(2, 0, 1, 3).flatten(2)


def build(hf, tensor, pipeline, expert, grouped=False, engine=False):
    from megatron.core import mpu
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec

    config = config_of(hf, tensor, pipeline, expert, grouped, engine)
    stage = mpu.get_pipeline_model_parallel_rank()
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=engine)
    if hf.model_type == "deepseek_v3" and not engine:
        for layer in spec.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = PlainAttention
    theta = hf.rope_parameters["rope_theta"]
    return GPTModel(
        config,
        spec,
        vocab_size=models.PADDED,
        max_sequence_length=64,
        pre_process=stage == 0,
        post_process=stage == pipeline - 1,
        position_embedding_type="rope",
        rotary_base=theta,
        share_embeddings_and_output_weights=hf.tie_word_embeddings,
        mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=engine) if config.mtp_num_layers else None,
    )


def fill(model, whole, pipeline):
    """Each rank takes its own part; nothing is left as it was made, and nothing over."""
    from megatron.core import mpu

    layer = mpu.get_pipeline_model_parallel_rank() * models.LAYERS // pipeline
    rank, ranks = mpu.get_tensor_model_parallel_rank(), mpu.get_tensor_model_parallel_world_size()
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("expert_bias")]
    for name, parameter in [*model.named_parameters(), *buffers]:
        words = name.split(".")
        if name.startswith("decoder.layers."):
            words[2] = str(int(words[2]) + layer)
        if "local_experts" in words:
            at = words.index("local_experts") + 1
            count = len(model.get_submodule(".".join(name.split(".")[:at])))
            words[at] = str(int(words[at]) + mpu.get_expert_model_parallel_rank() * count)
        full = own_name(".".join(words), mpu)
        if full.endswith(("experts.weight1", "experts.weight2")):
            parameter.data.copy_(grouped(full, whole, mpu).reshape(parameter.shape))
            continue
        # A pipeline's last stage keeps a copy of tied embeddings.
        if full == "output_layer.weight" and full not in whole:
            full = "embedding.word_embeddings.weight"
        mine = whole[full]
        if mine.shape != parameter.shape:
            mine = models.of_rank(full, mine, rank, ranks)
        assert mine.shape == parameter.shape, f"{name}: {tuple(mine.shape)}, wanted {tuple(parameter.shape)}"
        parameter.data.copy_(mine)


def own_name(name, mpu):
    """The name that a parameter of Transformer Engine's layers has in Megatron's own."""
    for theirs, ours in {
        "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
        "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
        "self_attention.linear_q_up_proj.layer_norm_weight": "self_attention.q_layernorm.weight",
        "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attention.kv_layernorm.weight",
    }.items():
        name = name.replace(theirs, ours)
    stem, _, number = name.rpartition(".weight")
    if ".mlp.experts.linear_fc" in name and number:
        first = mpu.get_expert_model_parallel_rank() * (4 // mpu.get_expert_model_parallel_world_size())
        return stem.replace(".experts.", f".experts.local_experts.{first + int(number)}.") + ".weight"
    return name


def grouped(name, whole, mpu):
    """The experts of this rank in one parameter: each turned around, one behind the other."""
    stem, part = name.rsplit(".weight", 1)
    every = [n for n in range(99) if f"{stem}.local_experts.{n}.linear_fc{part}.weight" in whole]
    count = len(every) // mpu.get_expert_model_parallel_world_size()
    first = mpu.get_expert_model_parallel_rank() * count
    mine = every[first : first + count]
    return torch.stack([whole[f"{stem}.local_experts.{n}.linear_fc{part}.weight"].t() for n in mine])


def same_logits(name, model, reference):
    """Megatron's forward on this rank alone agrees with transformers': the weights are where they belong."""
    tokens = torch.arange(2 * 8).reshape(2, 8) % models.VOCABULARY
    mask = torch.tril(torch.ones(1, 1, 8, 8)) < 0.5
    with torch.no_grad():
        ours = model(tokens, torch.arange(8).expand(2, 8), mask)[..., : models.VOCABULARY]
        theirs = reference(input_ids=tokens).logits
    worst = (ours - theirs).abs().max().item()
    assert worst < 1e-3, f"{name}: Megatron's logits are off by {worst}"
    return worst


def write(out, name, hf_model, whole, case):
    from megatron.core import dist_checkpointing, mpu
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    parallel, form = case.split("-")
    sizes = {"tp2": (2, 1, 1), "pp2": (1, 2, 1), "ep2": (1, 1, 2)}[parallel]
    mpu.initialize_model_parallel(*sizes[:2], expert_model_parallel_size=sizes[2], expert_tensor_parallel_size=sizes[0])
    model = build(hf_model.config, *sizes, grouped=form.startswith("grouped"))
    if whole.get("output_layer.weight") is not None and len(whole["output_layer.weight"]) == 1 and model.post_process:
        # As verl's critics have it (verl/models/mcore/bridge.py, LinearForLastLayer).
        model.output_layer = torch.nn.Linear(hf_model.config.hidden_size, 1, bias=False)
    fill(model, whole, sizes[1])
    state = model.sharded_state_dict(metadata=dict(FORMS[form]))
    target = out / f"{name}-{case}"
    if dist.get_rank() == 0:
        target.mkdir()
    dist.barrier()
    dist_checkpointing.save(state, str(target), TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1))
    mpu.destroy_model_parallel()


def logits(name, hf_model, whole):
    from megatron.core import mpu

    mpu.initialize_model_parallel(1, 1)
    model = build(hf_model.config, 1, 1, 1)
    fill(model, whole, 1)
    worst = same_logits(name, model.eval(), hf_model)
    mpu.destroy_model_parallel()
    return worst


def fsdp2(out, hf_model):
    """As torch's own examples save a model and its optimizer."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in hf_model.model.layers:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(hf_model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    model(input_ids=torch.arange(16).reshape(2, 8)).logits.sum().backward()
    optimizer.step()
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state, "step": 7}, checkpoint_id=out / "fsdp2")
    # Without its dict, the names are the model's own.
    dcp.save(weights, checkpoint_id=out / "flat")
    # As Trainer has it saved under FSDP, which on a CPU does not come to that.
    from accelerate import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin, save_fsdp_model

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    # Its log asks for that.
    PartialState(cpu=True)
    rank = dist.get_rank()
    accelerator = SimpleNamespace(
        num_processes=dist.get_world_size(), process_index=rank, is_main_process=rank == 0, wait_for_everyone=dist.barrier
    )
    save_fsdp_model(plugin, accelerator, model, str(out / "trainer" / "checkpoint-2"))


def describe(name, directory, base):
    """The model as Hugging Face's libraries keep it; of `base` with a layer more, where it is given."""
    if base is None:
        models.hugging_face(name, directory)
        return
    config = {**json.loads((base / "config.json").read_text()), "num_nextn_predict_layers": 1}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    tensors = models.predicting(load_file(base / "model.safetensors"), AutoConfig.from_pretrained(base))
    save_file({k: t.clone() for k, t in tensors.items()}, directory / "model.safetensors", metadata={"format": "pt"})


def critic(base, directory):
    """The same model with a value head; its configuration stays that of a model of tokens, as verl leaves it."""
    tensors = {k: t for k, t in load_file(base / "model.safetensors").items() if k != "lm_head.weight"}
    tensors["score.weight"] = torch.randn(1, len(tensors["model.norm.weight"]), generator=torch.Generator().manual_seed(1))
    if dist.get_rank() == 0:
        directory.mkdir()
        (directory / "config.json").write_text((base / "config.json").read_text())
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return tensors["score.weight"]


def stand_in_for_kernels():
    """Nothing is computed with them here; they are asked for where Transformer Engine is not installed, too."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import grouped_gemm_util, moe_utils

    grouped_gemm_util.assert_grouped_gemm_is_available = lambda: None
    moe_utils.te_general_gemm = None
    multi_latent_attention.TELinear = type("TELinear", (), {})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stand_in_for_cuda()
    stand_in_for_kernels()
    for name, cases in CASES.items():
        directory = args.out / "hf" / name
        further = name.endswith("_mtp")
        if dist.get_rank() == 0:
            describe(name, directory, args.out / "hf" / name.removesuffix("_mtp") if further else None)
        dist.barrier()
        if further:
            hf_model = SimpleNamespace(config=AutoConfig.from_pretrained(directory))
        else:
            hf_model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        whole = models.megatron(hf_model.config, load_file(directory / "model.safetensors"))
        with CudaMeansCpu():
            for case in cases:
                write(args.out, name, hf_model, whole, case)
            if name in CRITICS:
                head = critic(directory, args.out / "hf" / f"{name}_critic")
                for case in cases:
                    write(args.out, f"{name}_critic", hf_model, {**whole, "output_layer.weight": head}, case)
            if further:
                continue
            worst = logits(name, hf_model, whole)
            if dist.get_rank() == 0:
                print(f"{name}: Megatron's logits are those of transformers, to {worst:.1e}", flush=True)
        if name == "llama":
            fsdp2(args.out, hf_model)
    dist.destroy_process_group()


# Megatron's writer spawns processes that import this file again.
if __name__ == "__main__":
    main()
