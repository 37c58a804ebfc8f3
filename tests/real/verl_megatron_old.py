"""Writes checkpoints in Megatron's first layout with the MegatronCheckpointManager of an older verl (0.5 to 0.7).

usage: gang.sh 2 python verl_megatron_old.py OUT MODEL VERL [--only tp2,hf] [--steps 1]

VERL is a folder with that release's wheel unpacked (install_old_verl.sh). Model, training and names are those of
verl_megatron_manager.py; only the manager is the older one, with one `dist_ckpt` for everything.
"""

import os
import sys

VERL = os.path.abspath(sys.argv[3])
# Before anything imports verl: here, and in the processes that Megatron's writer spawns.
sys.path.insert(0, VERL)
for name in ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VERL_ENGINE_DEVICE"):
    os.environ.pop(name, None)


def main():
    import argparse
    from pathlib import Path
    from types import SimpleNamespace

    import torch
    import torch.distributed as dist

    # What else the managers' package imports asks for names that newer libraries do not have; nothing of it is used.
    sys.modules["verl.workers.engine"] = SimpleNamespace(BaseEngine=object)
    sys.modules["verl.utils.model"] = SimpleNamespace(normalize_model_name=None)
    sys.modules["verl.models.weight_loader_registry"] = SimpleNamespace(get_weight_saver=lambda arch: None)
    import verl_megatron_manager as writers

    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("verl")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--only", default="tp2,hf")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    writers.stand_in_for_cuda()
    with writers.CudaMeansCpu():
        for name in args.only.split(","):
            writers.write(name, args, always_described=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
