"""Stands in for Transformer Engine's modules on the CPU, for megatron-core's layers that are made of them.

Nothing is computed: each module has the parameters, by their names and shapes, and the state that Transformer Engine 2 gives it. What
checkpoints call them is up to megatron-core, whose own classes are used unchanged.
"""

import sys
import types

import torch


class Module(torch.nn.Module):
    """Every module of it has a state, which holds nothing where numbers are not quantised."""

    def __init__(self):
        super().__init__()
        self.fp8 = self.fp8_calibration = False
        self.fp8_meta = {"fp8_checkpoint": False}

    def get_extra_state(self):
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state):
        assert state is None or not isinstance(state, torch.Tensor) or state.numel() == 0

    def forward(self, *args, **kwargs):
        raise NotImplementedError("nothing is computed here")


def parameter(*shape):
    return torch.nn.Parameter(torch.empty(*shape))


class Linear(Module):
    def __init__(self, in_features, out_features, tp_size=1, bias=True, parallel_mode=None, **more):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.parallel_mode, self.use_bias = parallel_mode, bias
        self.weight = parameter(out_features, in_features)
        self.register_parameter("bias", parameter(out_features) if bias else None)


class LayerNormLinear(Linear):
    def __init__(self, in_features, out_features, **more):
        super().__init__(in_features, out_features, **more)
        self.layer_norm_weight = parameter(in_features)


class GroupedLinear(Module):
    def __init__(self, num_gemms, in_features, out_features, tp_size=1, bias=True, parallel_mode=None, **more):
        super().__init__()
        assert not bias
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.num_gemms, self.use_bias = num_gemms, bias
        for n in range(num_gemms):
            self.register_parameter(f"weight{n}", parameter(out_features, in_features))


class RMSNorm(Module):
    def __init__(self, hidden_size, **more):
        super().__init__()
        self.weight = parameter(hidden_size)


class LayerNorm(RMSNorm):
    pass


class DotProductAttention(Module):
    def __init__(
        self, num_attention_heads, kv_channels, num_gqa_groups=None, attention_dropout=0.0, qkv_format="sbhd", attn_mask_type="causal",
        window_size=None, sequence_parallel=False, tp_size=1, get_rng_state_tracker=None, tp_group=None, layer_number=None,
        attention_type="self", cp_group=None, cp_global_ranks=None, cp_stream=None, cp_comm_type="p2p", softmax_scale=None, softmax_type="vanilla",
    ):  # fmt: skip
        super().__init__()


def stand_in():
    """Puts them where megatron-core looks for them; before it is imported."""
    names = ["transformer_engine", *(f"transformer_engine.pytorch{below}" for below in ("", ".fp8", ".tensor"))]
    engine, pytorch, fp8, tensor = (types.ModuleType(name) for name in names)
    engine.__version__, engine.__path__, pytorch.__path__ = "2.5.0", [], []
    engine.pytorch, pytorch.fp8 = pytorch, fp8
    for one in (Linear, LayerNormLinear, GroupedLinear, RMSNorm, LayerNorm, DotProductAttention):
        setattr(pytorch, one.__name__, one)
    # Named only, and never made.
    engine.common = types.SimpleNamespace(recipe=types.SimpleNamespace(DelayedScaling=object))
    pytorch.ops = types.SimpleNamespace(Sequential=object, FusibleOperation=object)
    pytorch.distributed = types.SimpleNamespace(CudaRNGStatesTracker=object)
    fp8.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
    fp8.fp8_autocast = None
    # No tensor here is one of these.
    tensor.QuantizedTensor = type("QuantizedTensor", (), {})
    sys.modules.update(zip(names, (engine, pytorch, fp8, tensor)))
