#!/usr/bin/env bash
# GRPO with verl, as most people start it. It needs no change for supervise:
#
#   supervise run -- bash examples/scripts/run_grpo.sh
#   supervise plan --learn --yes -- bash examples/scripts/run_grpo.sh trainer.total_epochs=3
#
# `supervise` runs it once up to the call of python3, to learn where it saves. At each launch it adds its overrides (where to resume) to that
# call. Everything before the call runs again each time, so it must be safe to repeat.
set -xeuo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
DATA=${DATA:-$HOME/data/gsm8k}

if [ -n "${VENV:-}" ]; then
    source "$VENV/bin/activate"
fi

if [ -n "${PREPARE:-}" ] && [ ! -f "$DATA/train.parquet" ]; then
    python3 "$PREPARE" --local_save_dir "$DATA"
fi

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/test.parquet" \
    data.train_batch_size=1024 \
    data.max_prompt_length=512 \
    data.max_response_length=1024 \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=5 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 \
    trainer.logger='["console","file"]' \
    trainer.project_name=grpo_gsm8k \
    trainer.experiment_name=qwen2_5_0_5b \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    trainer.nnodes=1 \
    trainer.save_freq=20 \
    trainer.max_actor_ckpt_to_keep=3 \
    trainer.total_epochs=15 "$@" 2>&1 | tee "${LOG:-grpo.log}"
