"""Trains a tiny model with areal's own PPO trainer: a controller, two actors, and a rollout server that stands in for SGLang.

usage: areal_ppo.py --config FILE.yaml [key=value ...]      with areal_rollout.stand_in's folder and this one in PYTHONPATH

All workers are areal_worker.py. The reward is the share of digits in an answer.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUESTIONS = 32
SUPERVISOR = "supervisor:\n  backoff: {initial: 200ms}\n  scan_interval: 200ms\n"
WORKER = "[{gpu: 0, cpu: 1, mem: 1, cmd: python HERE/areal_worker.py}]".replace("HERE", str(HERE))
# A critic of the same size, after the actor.
CRITIC = """\
critic:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  path: MODEL
  backend: fsdp:d2
  is_critic: true
  dtype: float32
  attn_impl: sdpa
  gradient_checkpointing: false
  optimizer: {lr: 1e-3, warmup_steps_proportion: 0.0, lr_scheduler_type: constant}
  ppo_n_minibatches: 1
  scheduling_spec: WORKER
""".replace("WORKER", WORKER)
# root, model, steps: as in areal_bench.YAML. stale: how many versions an answer may be behind; tokens: how long it may be.
YAML = """\
experiment_name: real
trial_name: t0
seed: 1
cluster:
  fileroot: {root}
  n_nodes: 1
  n_gpus_per_node: 3
  name_resolve: {{type: nfs, nfs_record_root: {root}/names}}
total_train_epochs: 1000
total_train_steps: {steps}
tokenizer_path: {model}
scheduler: {{type: local}}
train_dataset: {{path: "-", type: rl, batch_size: 4, shuffle: true}}
gconfig: {{n_samples: 2, max_new_tokens: {tokens}, ignore_eos: true}}
sglang: {{model_path: {model}}}
rollout:
  experiment_name: ${{experiment_name}}
  trial_name: ${{trial_name}}
  backend: sglang:d1
  tokenizer_path: {model}
  max_concurrent_rollouts: 4
  consumer_batch_size: 4
  max_head_offpolicyness: {stale}
  setup_timeout: 600
  scheduling_spec: WORKER
actor:
  experiment_name: ${{experiment_name}}
  trial_name: ${{trial_name}}
  path: {model}
  backend: fsdp:d2
  dtype: float32
  attn_impl: sdpa
  gradient_checkpointing: false
  optimizer: {{lr: 1e-3, warmup_steps_proportion: 0.0, lr_scheduler_type: constant}}
  weight_update_mode: disk
  ppo_n_minibatches: 1
  kl_ctl: 0.0
  recompute_logprob: true
  use_decoupled_loss: true
  scheduling_spec: WORKER
recover: {{mode: auto, freq_steps: {freq}, experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
saver: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
evaluator: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
stats_logger: {{experiment_name: real, trial_name: t0, fileroot: "${{cluster.fileroot}}"}}
""".replace("WORKER", WORKER.replace("{", "{{").replace("}", "}}"))


def environment(work, ledger, faults=()):
    """For its controller, which hands it on."""
    import areal_rollout

    paths = [str(areal_rollout.stand_in(work / "engine")), str(HERE), os.environ.get("PYTHONPATH", "")]
    ours = {name: value for name, value in os.environ.items() if name != "AREAL_SPMD_MODE"}
    return ours | {"PYTHONPATH": ":".join(filter(None, paths)), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                   "FAULTS": json.dumps(list(faults)), "FAULT_LEDGER": str(ledger), "TORCH_COMPILE_DISABLE": "1", "OMP_NUM_THREADS": "1",
                   "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore", "LOGNAME": "trainer"}  # fmt: skip


def reward(prompt, completions, prompt_ids, completion_ids, **_):
    return sum(c.isdigit() for c in completions) / max(1, len(completions))


def main():
    from areal.api.cli_args import GRPOConfig, PPOConfig, load_expr_config
    from areal.trainer.rl_trainer import PPOTrainer
    from areal_faulty import give_time
    from datasets import Dataset

    give_time(float(os.environ.get("SLOW_START", "600")))
    has_critic = "\ncritic:" in Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
    config = load_expr_config(sys.argv[1:], PPOConfig if has_critic else GRPOConfig)[0]
    rows = [{"messages": [{"role": "user", "content": f"What is {i} + {i}?"}], "answer": str(2 * i)} for i in range(QUESTIONS)]
    workflow = {"reward_fn": "areal_ppo.reward", "gconfig": config.gconfig, "tokenizer": config.tokenizer_path}
    with PPOTrainer(config, train_dataset=Dataset.from_list(rows)) as trainer:
        print("resumed from", trainer.recover_info and trainer.recover_info.last_step_info, flush=True)
        trainer.train(workflow="areal.workflow.rlvr.RLVRWorkflow", workflow_kwargs=workflow)


if __name__ == "__main__":
    main()
