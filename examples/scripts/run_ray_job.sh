#!/usr/bin/env bash
# The trainer as a job of a running Ray cluster:
#
#   RAY_ADDRESS=http://head:8265 supervise run -- bash examples/scripts/run_ray_job.sh
#
# The overrides are appended to what follows `--`. `--no-wait` is removed, because the supervisor must see the driver end.
# A job runs in a temporary directory, so trainer.default_local_dir must be an absolute path on a disk that all nodes share.
set -euo pipefail

DATA=${DATA:-/shared/data/gsm8k}
ROOT=${ROOT:-/shared/checkpoints/grpo_gsm8k}

ray job submit --address="${RAY_ADDRESS:-http://127.0.0.1:8265}" --no-wait \
    -- python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/test.parquet" \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
    actor_rollout_ref.rollout.name=vllm \
    trainer.default_local_dir="$ROOT" \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    trainer.nnodes="${NODES:-1}" \
    trainer.save_freq=20 \
    "$@"
