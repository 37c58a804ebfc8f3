"""Loads what `supervise convert hf-to-megatron` wrote with megatron-core's own modules and its own load, on the CPU.

usage: gang.sh 2 python merge_formats_readers.py HF CONVERTED [--engine SAVED]

HF/MODEL is a model of Hugging Face, CONVERTED/MODEL-FORM what was made of it. Each is loaded without parallelism and by two ranks that
share tensors (tp2), layers (pp2) or experts (ep2), into models whose every number was something else before, in the way that verl loads such
a directory (`dist_checkpointing_path`). Each parameter has to be that of the original, by the way of merge_formats_models.py.
With --engine the layers are those of Transformer Engine, and experts are grouped: its modules are stood in for, and what they are called in
a checkpoint is megatron-core's own code. What was loaded is saved again there, in SAVED/MODEL-FORM. Rows beyond the vocabulary, which Megatron has and the checkpoint has not, have to be zeros.
"""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import transformer_engine_standins

ENGINE = "--engine" in sys.argv
if ENGINE:
    # Before megatron-core is imported.
    transformer_engine_standins.stand_in()

import merge_formats_models as models
import merge_formats_writers as writers
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoConfig
from verl_megatron_manager import CudaMeansCpu, stand_in_for_cuda

PARALLEL = {"tp1": (1, 1, 1), "tp2": (2, 1, 1), "pp2": (1, 2, 1), "ep2": (1, 1, 2)}


def numbers(model):
    named = {**dict(model.named_parameters()), **{n: b for n, b in model.named_buffers() if n.endswith("expert_bias")}}
    return {name: tensor.data for name, tensor in named.items()}


def load(source, hf_model, whole, parallel, form):
    from megatron.core import mpu

    from verl.utils.model import load_mcore_dist_weights

    sizes = PARALLEL[parallel]
    mpu.initialize_model_parallel(*sizes[:2], expert_model_parallel_size=sizes[2], expert_tensor_parallel_size=sizes[0])
    wanted, model = (writers.build(hf_model.config, *sizes, grouped=ENGINE, engine=ENGINE) for _ in range(2))
    writers.fill(wanted, whole, sizes[1])
    for tensor in numbers(model).values():
        tensor.fill_(5.0)
    metadata, of = dict(writers.FORMS[form]), model.sharded_state_dict
    # verl asks without saying how layers are to be named; these are Megatron's other ways.
    model.sharded_state_dict = lambda prefix="": of(prefix=prefix, metadata=metadata)
    load_mcore_dist_weights([model], str(source))
    want = numbers(wanted)
    odd = [name for name, tensor in numbers(model).items() if not torch.equal(tensor, want[name])]
    assert want and not odd, f"{source.name} {parallel}: {odd[:5]} differ"
    if ENGINE and parallel != "tp2":
        from megatron.core import dist_checkpointing
        from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

        saved = Path(sys.argv[4]) / source.name
        if dist.get_rank() == 0:
            saved.mkdir(parents=True)
        dist.barrier()
        dist_checkpointing.save(model.sharded_state_dict(), str(saved), TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1))
    mpu.destroy_model_parallel()


def main():
    hf, converted = map(Path, sys.argv[1:3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stand_in_for_cuda()
    if not ENGINE:
        writers.stand_in_for_kernels()
    for source in sorted(converted.iterdir()):
        name, form = source.name.rsplit("-", 1)
        default = form == writers.CASES[name][0].split("-")[1]
        if ENGINE and not default and name not in ("llama", "mixtral", "deepseek_v3_mtp"):
            continue
        config = AutoConfig.from_pretrained(hf / name)
        whole = models.megatron(config, load_file(hf / name / "model.safetensors"))
        for key in ("embedding.word_embeddings.weight", "output_layer.weight"):
            if key in whole:
                whole[key][models.VOCABULARY :] = 0.0
        sparse = models.experts(config)
        # A layer that predicts stands on the last rank, with embeddings of its own.
        cases = [p for p in PARALLEL if (p != "ep2" or sparse) and (p != "pp2" or not name.endswith("_mtp"))]
        if ENGINE:
            cases = ["tp2", cases[-1]]
        elif not default:
            # Keys that Megatron does not ask for by default: in one way.
            cases = cases[-1:]
        with CudaMeansCpu():
            for parallel in cases:
                load(source, SimpleNamespace(config=config), whole, parallel, form)
        by = " (Transformer Engine's layers)" if ENGINE else ""
        if dist.get_rank() == 0:
            print(f"{source.name}: megatron-core loads it as {', '.join(cases)}{by}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
