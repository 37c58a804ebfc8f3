#!/usr/bin/env bash
# A script that starts the trainer by its interpreter's full path. `supervise` cannot add its overrides to such a call. So the script passes
# on "$@", and {overrides} in the command says where they go:
#
#   supervise run -- bash examples/scripts/run_overrides.sh {overrides}
#
# Without {overrides}, or without "$@" below, the run ends with exit code 78 before the first save.
set -euo pipefail

PYTHON=${PYTHON:-/usr/bin/python3}
DATA=${DATA:-$HOME/data/gsm8k}

exec "$PYTHON" -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/test.parquet" \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
    actor_rollout_ref.rollout.name=vllm \
    trainer.project_name=grpo_gsm8k \
    trainer.experiment_name=by_path \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    trainer.nnodes=1 \
    trainer.save_freq=20 \
    "$@"
