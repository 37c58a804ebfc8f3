//! Runs that train with Megatron: their configurations.

use crate::launch::{FULL, PPO, arrange, from_step, spec};
use crate::reading::{Case, command, text, yaml};
use supervise_core::checkpoint::StateKind;
use supervise_core::spec::ParallelSizes;
use supervise_trainers::ReadOutput;

const START: &str = "python3 -m verl.trainer.main_ppo model_engine=megatron trainer.save_freq=1 \
                     trainer.default_local_dir=/r algorithm.adv_estimator=grpo ";

pub(crate) fn ppo(more: &str) -> Case {
    command(Box::leak(format!("{START}{more}").into_boxed_str()))
}

fn codes(read: &ReadOutput) -> Vec<&str> {
    read.findings.iter().map(|f| &*f.code).collect()
}

#[test]
fn megatron_is_read_wherever_it_is_chosen() {
    let grpo = "algorithm: {adv_estimator: grpo}\ntrainer: {save_freq: 1, default_local_dir: /r}\n";
    let with = |head: &str| yaml(Box::leak(format!("{head}{grpo}").into_boxed_str()));
    for case in [
        with("defaults: [ppo_trainer, {override model_engine: megatron}, _self_]\n"),
        with("defaults: [ppo_megatron_trainer, _self_]\n"),
        with("model_engine: megatron\n"),
        ppo(""),
        command("torchrun -m verl.trainer.sft_trainer engine=megatron optim=megatron trainer.default_local_dir=/r"),
    ] {
        let read = case.good();
        let megatron = read.roles[0].megatron.unwrap();
        assert_eq!(
            megatron.parallel,
            ParallelSizes {
                tensor: 1,
                pipeline: 1,
                context: 1,
                expert: 1
            }
        );
        assert!(megatron.bridge && !megatron.dist && !megatron.adapters && !megatron.any_parallel);
        assert!(
            read.not_restored.contains(&StateKind::LrSchedule),
            "{:?}",
            read.not_restored
        );
        assert!(!read.not_restored.contains(&StateKind::Rng));
        let codes = codes(&read);
        for code in ["schedule_restarts", "resharding"] {
            assert!(codes.contains(&code), "{code} in {codes:?}");
        }
        assert!(!codes.contains(&"model_engine"), "{codes:?}");
    }
}

#[test]
fn a_short_yaml_of_sft_chooses_its_engine_by_name() {
    let read =
        yaml("engine: megatron\noptim: megatron\nmodel: {path: /m}\ntrainer: {default_local_dir: /r, save_freq: 2}\n")
            .good();
    assert_eq!(read.kind, supervise_trainers::verl::SFT);
    assert!(read.roles[0].megatron.is_some());
    for word in ["engine='megatron'", "optim='megatron'", "++model.path='/m'"] {
        assert!(read.command.iter().any(|w| w == word), "{word} in {:?}", read.command);
    }
}

#[test]
fn switches_and_sizes_are_read_for_each_role() {
    let read = ppo(
        "algorithm.adv_estimator=gae trainer.nnodes=2 actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \
         actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \
         actor_rollout_ref.actor.megatron.expert_model_parallel_size=2 \
         actor_rollout_ref.actor.megatron.use_dist_checkpointing=True \
         actor_rollout_ref.actor.megatron.dist_ckpt_optim_fully_reshardable=True \
         actor_rollout_ref.actor.optim.use_checkpoint_opt_param_scheduler=True critic.megatron.use_mbridge=False \
         critic.megatron.use_dist_checkpointing=True critic.megatron.context_parallel_size=2 \
         critic.optim.use_checkpoint_opt_param_scheduler=True",
    )
    .good();
    let actor = read.roles[0].megatron.unwrap();
    assert_eq!((actor.parallel.ranks(), actor.parallel.expert), (Some(8), 2));
    assert!(actor.bridge && actor.dist && actor.any_parallel && actor.schedule);
    let critic = read.roles[1].megatron.unwrap();
    assert_eq!((critic.parallel.ranks(), critic.parallel.context), (Some(2), 2));
    assert!(!critic.bridge && critic.dist && !critic.any_parallel && critic.schedule);
    assert_eq!(read.not_restored, [StateKind::Rollout]);
    assert!(!codes(&read).contains(&"schedule_restarts"));
}

#[test]
fn actor_and_critic_may_differ_in_strategy() {
    let read = ppo("algorithm.adv_estimator=gae critic.strategy=fsdp2").good();
    assert!(read.roles[0].megatron.is_some() && read.roles[1].megatron.is_none());
    // Without the engine's own settings verl could not start: that is said.
    let read = command(
        "python3 -m verl.trainer.main_ppo trainer.save_freq=1 trainer.default_local_dir=/r critic.strategy=megatron",
    )
    .good();
    assert!(read.roles[0].megatron.is_none() && read.roles[1].megatron.is_some());
    assert!(codes(&read).contains(&"model_engine"));
}

#[test]
fn switches_that_verl_refuses_are_refused_before_a_gpu_is_touched() {
    let engine = "actor_rollout_ref.actor.megatron.";
    let contents = "actor_rollout_ref.actor.checkpoint.";
    for (more, key, says) in [
        (
            format!(
                "{engine}use_mbridge=False {engine}use_dist_checkpointing=True {contents}save_contents=[model,hf_model]"
            ),
            "checkpoint.save_contents",
            "hf_model goes through a bridge",
        ),
        (
            format!(
                "{engine}use_mbridge=False {engine}use_dist_checkpointing=True {contents}load_contents=[model,hf_model]"
            ),
            "checkpoint.load_contents",
            "hf_model goes through a bridge",
        ),
        (
            format!("{engine}use_mbridge=False"),
            "megatron.use_mbridge",
            "set actor_rollout_ref.actor.megatron.use_dist_checkpointing=True",
        ),
        (
            format!(
                "{engine}use_mbridge=False {engine}use_dist_checkpointing=True {contents}load_contents=[hf_model,optimizer]"
            ),
            "checkpoint.load_contents",
            "hf_model goes through a bridge",
        ),
        (
            format!("{engine}vanilla_mbridge=True actor_rollout_ref.model.lora.rank=8"),
            "model.lora.rank",
            "adapters need Megatron-Bridge",
        ),
        (
            format!("{engine}use_megatron_fsdp=True"),
            "use_megatron_fsdp",
            "no run is resumed from them yet",
        ),
        (
            format!("{contents}save_contents=[optimizer]"),
            "checkpoint.save_contents",
            "no weights are saved",
        ),
        (
            format!("{contents}load_contents=[optimizer]"),
            "checkpoint.load_contents",
            "no weights would be loaded",
        ),
    ] {
        let said = ppo(&more).problem();
        assert!(
            said.contains(key) && said.contains(says) && said.contains("--no-recovery"),
            "{more}: {said}"
        );
        let watched = Case {
            no_recovery: true,
            ..ppo(&more)
        };
        assert!(!watched.good().findings.is_empty());
    }
    for (more, says) in [
        ("tensor_model_parallel_size=3", "8 ranks are no multiple of 3"),
        ("tensor_model_parallel_size=0", "must be greater than 0 (found 0)"),
    ] {
        let said = text(&ppo(&format!("{engine}{more}")).read().unwrap_err());
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn every_pair_of_writers_that_works_is_accepted() {
    let engine = "actor_rollout_ref.actor.megatron.";
    for (bridge, dist, save, adapters) in [
        (true, false, "model", false),
        (true, false, "hf_model", false),
        (true, false, "model,hf_model", false),
        (false, true, "model", false),
        (true, true, "model", false),
        (true, true, "model,hf_model", false),
        (true, true, "hf_model", false),
        (true, false, "model", true),
    ] {
        let rank = if adapters { 8 } else { 0 };
        let read = ppo(&format!(
            "{engine}use_mbridge={bridge} {engine}use_dist_checkpointing={dist} actor_rollout_ref.model.lora.rank={rank} \
             actor_rollout_ref.actor.checkpoint.save_contents=[{save},optimizer,extra]"
        ))
        .good();
        let role = &read.roles[0];
        assert_eq!(role.megatron.map(|m| m.adapters), Some(adapters));
        // Wherever the weights are, they are loaded by this name.
        assert!(role.load_contents.iter().any(|c| c == "model"), "{role:?}");
        assert!(!role.load_wish);
        assert!(!codes(&read).contains(&"loads_what_is_not_saved"));
    }
}

#[test]
fn asynchronous_saves_are_switched_off_for_megatron_too() {
    let read = ppo("actor_rollout_ref.actor.checkpoint.async_save=True").good();
    let mut spec = spec(supervise_trainers::verl::PPO, PPO);
    spec.roles = read.roles;
    let plan = arrange(&spec, &from_step(2, FULL), read.facts);
    let off = "actor_rollout_ref.actor.checkpoint.async_save=False";
    assert!(plan.overrides.iter().any(|o| o == off), "{:?}", plan.overrides);
}
