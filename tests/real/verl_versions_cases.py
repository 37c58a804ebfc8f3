"""Configurations of verl 0.9.1 as users write them: title, tree, the user's files, module and command line."""

PPO = "verl.trainer.main_ppo"
SFT = "verl.trainer.sft_trainer"
GRPO = "algorithm.adv_estimator=grpo"
FREQ = "trainer.save_freq=5"
SEARCH = "hydra:\n  searchpath:\n    - pkg://verl.trainer.config\n"
SMALL = "trainer: {save_freq: 20, project_name: p, nnodes: 2}\nalgorithm: {adv_estimator: grpo}\n"


def my(text, **more):
    """The user's YAML, with the files beside it."""
    return {"my.yaml": text, **{name.replace("__", "/") + ".yaml": content for name, content in more.items()}}


CASES = [
    ("a command alone", "ppo", {}, [PPO, FREQ]),
    ("Megatron by group", "ppo_megatron", {}, [PPO, FREQ, "model_engine=megatron"]),
    ("Megatron by name", "ppo_megatron", {}, [PPO, "--config-name=ppo_megatron_trainer", FREQ, GRPO]),
    ("FSDP2", "ppo", {}, [PPO, FREQ, "actor_rollout_ref.actor.strategy=fsdp2", "critic.strategy=fsdp2"]),
    ("contents, quoted in the list", "ppo", {}, [PPO, FREQ, GRPO, "actor_rollout_ref.actor.checkpoint.save_contents=['model', 'optimizer', \"extra\"]"]),
    ("contents and what follows them", "ppo", {}, [PPO, FREQ, "critic.checkpoint.save_contents=[model,optimizer,extra,hf_model]"]),
    ("added, forced and deleted", "ppo", {}, [PPO, "++trainer.save_freq=7", "+trainer.new={a:1}", "~trainer.esi_redundant_time", GRPO]),
    ("twice, the later wins", "ppo", {}, [PPO, "trainer.save_freq=1", "trainer.save_freq=2", "trainer.nnodes=2", "trainer.nnodes=3"]),
    ("interpolations", "ppo", {}, [PPO, FREQ, "trainer.experiment_name='${trainer.project_name}-${algorithm.adv_estimator}'", "trainer.project_name=p"]),
    ("a root full of marks", "ppo", {}, [PPO, FREQ, "trainer.default_local_dir='/a b/c,d=(e)/\\'f\\''"]),
    ("one logger, and a list of them", "ppo", {}, [PPO, FREQ, "trainer.logger=console", "trainer.logger=[console,file]"]),
    ("a critic without GAE", "ppo", {}, [PPO, FREQ, GRPO, "critic.enable=true", "trainer.critic_warmup=3"]),
    ("numbers to keep", "ppo", {}, [PPO, FREQ, "trainer.max_actor_ckpt_to_keep=3", "trainer.max_critic_ckpt_to_keep=2"]),
    ("asynchronous saves", "ppo", {}, [PPO, FREQ, GRPO, "actor_rollout_ref.actor.checkpoint.async_save=True"]),
    ("Megatron's switches", "ppo_megatron", {}, [
        PPO, FREQ, GRPO, "model_engine=megatron", "actor_rollout_ref.actor.megatron.use_dist_checkpointing=True",
        "actor_rollout_ref.actor.megatron.dist_ckpt_optim_fully_reshardable=True", "actor_rollout_ref.actor.optim.use_checkpoint_opt_param_scheduler=True"]),
    ("the older trainer", "ppo", {}, [PPO, FREQ, "trainer.use_v1=False", "trainer.val_before_train=False"]),
    ("one-step-off", "ppo", {}, ["verl.experimental.one_step_off_policy.main_ppo", FREQ, GRPO, "rollout.nnodes=1"]),
    ("fully asynchronous", "ppo", {}, ["verl.experimental.fully_async_policy.fully_async_main", FREQ, GRPO, "rollout.total_rollout_steps=64"]),
    ("SFT", "sft", {}, [SFT, FREQ, "trainer.total_training_steps=9"]),
    ("SFT by epoch", "sft", {}, [SFT, "trainer.save_freq=after_each_epoch", "engine.strategy=fsdp2", "trainer.max_ckpt_to_keep=4"]),
    ("SFT with Megatron", "sft_megatron", {}, [SFT, FREQ, "engine=megatron", "optim=megatron", "engine.use_dist_checkpointing=True"]),
    ("SFT over Ray", "sft", {}, ["verl.trainer.sft_trainer_ray", FREQ, "trainer.n_gpus_per_node=2", "+checkpoint.async_save=True"]),
    ("a YAML that says little", "ppo", my(SMALL), [PPO]),
    ("a YAML and a command over it", "ppo", my(SMALL), [PPO, "trainer.save_freq=3", "trainer.nnodes=1"]),
    ("a YAML of odd scalars", "ppo", my("trainer: {save_freq: 010, experiment_name: 1e-5, project_name: 'on', val_before_train: off}\n"), [PPO]),
    ("a YAML with interpolations", "ppo", my("trainer:\n  save_freq: 4\n  project_name: p\n  experiment_name: ${.project_name}-x\n  default_local_dir: /r/${trainer.experiment_name}\n"), [PPO]),
    ("a YAML that chooses Megatron", "ppo_megatron", my("model_engine: megatron\n" + SMALL), [PPO]),
    ("a defaults list", "ppo", my("defaults:\n  - ppo_trainer\n  - _self_\n" + SMALL), [PPO]),
    ("a defaults list and a search path", "ppo", my(SEARCH + "defaults:\n  - ppo_trainer\n  - _self_\n" + SMALL), [PPO, "trainer.nnodes=4"]),
    ("its own values first", "ppo", my(SEARCH + "defaults:\n  - _self_\n  - ppo_trainer\n" + SMALL), [PPO, FREQ]),
    ("Megatron's configuration beneath", "ppo_megatron", my("defaults:\n  - ppo_megatron_trainer\n  - _self_\n" + SMALL), [PPO]),
    ("an engine overridden in the list", "ppo_megatron", my("defaults:\n  - ppo_trainer\n  - override model_engine: megatron\n  - _self_\n" + SMALL), [PPO]),
    ("a chain of files", "ppo", my("defaults:\n  - base\n  - _self_\ntrainer: {nnodes: 3}\n", base="defaults:\n  - ppo_trainer\n  - _self_\n" + SMALL), [PPO]),
    ("groups of one's own", "ppo", my(
        "defaults:\n  - ppo_trainer\n  - size: small\n  - _self_\ntrainer: {project_name: g}\n",
        size__small="# @package _global_\ntrainer: {save_freq: 2, nnodes: 1}\n",
        size__large="# @package _global_\ntrainer: {save_freq: 50, nnodes: 8}\n"), [PPO, "size=large"]),
    ("an SFT YAML", "sft", my("defaults:\n  - sft_trainer_engine\n  - _self_\ntrainer: {save_freq: 6, project_name: s}\n"), [SFT]),
    ("a small SFT YAML", "sft", my("trainer: {save_freq: 6}\ndata: {train_batch_size: 4}\ncheckpoint: {save_contents: [model, optimizer, extra]}\n"), [SFT, "trainer.seed=2"]),
]
