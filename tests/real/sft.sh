#!/bin/bash
# verl's own SFT trainer as a gang of CPU ranks, launched by hand.
#
# usage: sft.sh VENV MODEL OUT [hydra overrides...]     (RANKS, STRATEGY, and gang.sh's variables)
# MODEL is a directory made by make_tiny_model.py; checkpoints go to OUT.
set -eu
venv=$1 model=$2 out=$3; shift 3
here=$(cd "$(dirname "$0")" && pwd)
ranks=${RANKS:-2}
exec "$here/gang.sh" "$ranks" "$venv/bin/python" -m verl.trainer.sft_trainer \
  data.train_files="$model/train.parquet" data.train_batch_size=16 data.micro_batch_size_per_gpu=4 \
  data.use_dynamic_bsz=False data.max_length=128 data.truncation=right data.num_workers=0 \
  data.ignore_input_ids_mismatch=True \
  model.path="$model" model.use_remove_padding=False model.enable_gradient_checkpointing=False \
  +model.override_config.attn_implementation=sdpa \
  engine.strategy="${STRATEGY:-fsdp2}" engine.use_torch_compile=False engine.dtype=float32 \
  trainer.device=cpu trainer.logger='[console]' trainer.total_epochs=2 trainer.save_freq=1 trainer.test_freq=-1 \
  trainer.default_local_dir="$out" trainer.project_name=real trainer.experiment_name=sft \
  trainer.nnodes=1 trainer.n_gpus_per_node="$ranks" hydra.run.dir="$out.hydra" "$@"
