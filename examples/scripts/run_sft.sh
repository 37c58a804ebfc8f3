#!/usr/bin/env bash
# Supervised fine-tuning with verl under torchrun:
#
#   supervise run -- bash examples/scripts/run_sft.sh
#
# torchrun's own restarts are switched off at each launch (--max-restarts=0): they would resume from an unproven step.
set -xeuo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
DATA=${DATA:-$HOME/data/gsm8k}
ROOT=${ROOT:-$PWD/checkpoints/gsm8k-sft}

if [ -n "${VENV:-}" ]; then
    source "$VENV/bin/activate"
fi

torchrun --standalone --nnodes=1 --nproc_per_node="${GPUS:-8}" --max-restarts=3 \
    -m verl.trainer.sft_trainer \
    data.train_files="$DATA/train.parquet" \
    data.train_batch_size="${BATCH:-64}" \
    data.micro_batch_size_per_gpu=4 \
    data.max_length="${LENGTH:-2048}" \
    data.truncation=right \
    model.path="$MODEL" \
    engine.strategy=fsdp2 \
    trainer.logger='["console"]' \
    trainer.project_name=gsm8k-sft \
    trainer.experiment_name="sft-$(date +%Y%m%d)" \
    trainer.default_local_dir="$ROOT" \
    trainer.save_freq="${SAVE_FREQ:-50}" \
    trainer.max_ckpt_to_keep=3 \
    trainer.total_epochs="${EPOCHS:-4}" "$@"
