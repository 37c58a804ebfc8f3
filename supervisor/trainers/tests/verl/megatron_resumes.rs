//! Steps of Megatron that fit a run, and how it goes on from them.

use crate::fixtures::{Files, files, judge};
use crate::launch::{FULL, PPO, arrange, from_step, spec};
use crate::megatron_runs::ppo;
use crate::tree::run;
use camino::Utf8Path;
use supervise_core::checkpoint::{FileFact, Resumability, StateKind, Verdict};
use supervise_core::spec::{MegatronSpec, ParallelSizes};
use supervise_trainers::{ExpectedLayout, TrainerFacts};

/// A run of Megatron on two ranks, as the genuine steps were written: tensor parallel 2, Megatron's own writer.
fn two_ranks() -> MegatronSpec {
    MegatronSpec {
        parallel: ParallelSizes {
            tensor: 2,
            pipeline: 1,
            context: 1,
            expert: 1,
        },
        bridge: true,
        dist: true,
        adapters: false,
        any_parallel: false,
        schedule: false,
    }
}

fn expect(world: u32, megatron: MegatronSpec) -> ExpectedLayout {
    let mut expect = run(false, world, &["actor"]);
    for role in expect.roles.iter_mut().flatten() {
        role.megatron = Some(megatron);
    }
    expect
}

/// What can be resumed of the newest step of a set; it is whole whatever the run is.
fn resume(set: &str, expect: &ExpectedLayout) -> Resumability {
    let (files, facts) = files(set);
    resume_of(&files, &facts, expect)
}

fn resume_of(files: &Files, facts: &[FileFact], expect: &ExpectedLayout) -> Resumability {
    let seen = judge(files, facts, expect).remove(0);
    assert_eq!(seen.verdict, Verdict::Whole, "{:?}", seen.findings);
    seen.resume
}

#[track_caller]
fn refused(resume: &Resumability, parts: &[&str]) {
    let Resumability::Not { why } = resume else {
        panic!("{resume:?}")
    };
    for part in parts {
        assert!(why.contains(part), "{part} in {why}");
    }
}

/// The scripts of these sets write no `data.pt`.
fn only_data() -> Resumability {
    Resumability::Degraded {
        lost: vec![StateKind::DataOrder],
    }
}

#[test]
fn a_run_goes_on_from_its_own_steps() {
    assert_eq!(resume("verl_megatron_v2_tp2", &expect(2, two_ranks())), only_data());
    let restored = MegatronSpec {
        schedule: true,
        ..two_ranks()
    };
    assert_eq!(resume("verl_megatron_v2_tp2", &expect(2, restored)), only_data());
    let bridged = MegatronSpec {
        dist: false,
        ..two_ranks()
    };
    assert_eq!(resume("verl_megatron_v2_hf", &expect(2, bridged)), Resumability::Exact);
}

#[test]
fn weights_are_looked_for_where_the_switches_say() {
    let bridged = MegatronSpec {
        dist: false,
        ..two_ranks()
    };
    let key = "actor_rollout_ref.actor.megatron.use_dist_checkpointing";
    refused(
        &resume("verl_megatron_v2_tp2", &expect(2, bridged)),
        &[&format!("{key}=True"), "model/dist_ckpt"],
    );
    refused(
        &resume("verl_megatron_v2_hf", &expect(2, two_ranks())),
        &[&format!("{key}=False"), "model/huggingface"],
    );
    let adapters = MegatronSpec {
        adapters: true,
        ..two_ranks()
    };
    refused(
        &resume("verl_megatron_v2_tp2", &expect(2, adapters)),
        &["actor_rollout_ref.model.lora.rank"],
    );
}

#[test]
fn the_number_of_copies_may_change_and_the_division_of_the_model_may_not() {
    // Twice as many ranks with the same two halves of the model.
    assert_eq!(resume("verl_megatron_v2_tp2", &expect(4, two_ranks())), only_data());
    let mut whole = two_ranks();
    whole.parallel.tensor = 1;
    refused(
        &resume("verl_megatron_v2_tp2", &expect(2, whole)),
        &["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 (it is 1)"],
    );
    whole.parallel.pipeline = 2;
    refused(
        &resume("verl_megatron_v2_tp2", &expect(2, whole)),
        &[
            "tensor_model_parallel_size=2",
            "pipeline_model_parallel_size=1 (it is 2)",
        ],
    );
    // An optimizer that any division can load; the random states are those of other places in the model.
    whole.any_parallel = true;
    assert_eq!(
        resume("verl_megatron_v2_tp2", &expect(2, whole)),
        Resumability::Degraded {
            lost: vec![StateKind::Rng, StateKind::DataOrder]
        }
    );
}

#[test]
fn the_step_itself_says_how_its_optimizer_was_divided() {
    // Both were saved by two copies of a whole model.
    let run = |tensor, any_parallel| {
        let mut run = MegatronSpec {
            any_parallel,
            ..two_ranks()
        };
        run.parallel.tensor = tensor;
        expect(2, run)
    };
    let key = "actor_rollout_ref.actor.megatron.dist_ckpt_optim_fully_reshardable=True";
    for (set, saved) in [
        ("verl_megatron_v2_dp_reshardable", false),
        ("verl_megatron_v2_fully_reshardable", true),
    ] {
        for switch in [false, true] {
            assert_eq!(resume(set, &run(1, switch)), only_data(), "{set} as it was saved");
        }
        let without = resume(set, &run(2, false));
        refused(&without, &["tensor_model_parallel_size=1 (it is 2)"]);
        assert_eq!(
            matches!(&without, Resumability::Not { why } if why.contains(key)),
            saved,
            "{without:?}"
        );
        let with = resume(set, &run(2, true));
        if saved {
            let lost = vec![StateKind::Rng, StateKind::DataOrder];
            assert_eq!(with, Resumability::Degraded { lost });
        } else {
            refused(&with, &["tensor_model_parallel_size=1 (it is 2)"]);
        }
    }
}

#[test]
fn sft_keeps_its_data_for_each_copy_of_the_model() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    let flat = |path: &Utf8Path| path.as_str().replace("/actor", "").into();
    let files: Files = files.iter().map(|(path, bytes)| (flat(path), bytes.clone())).collect();
    let facts: Vec<FileFact> = facts
        .into_iter()
        .map(|fact| FileFact {
            path: flat(&fact.path),
            ..fact
        })
        .collect();
    let expect = |world| {
        let mut expect = run(true, world, &[""]);
        expect
            .roles
            .iter_mut()
            .flatten()
            .for_each(|role| role.megatron = Some(two_ranks()));
        expect
    };
    assert_eq!(resume_of(&files, &facts, &expect(2)), only_data());
    refused(&resume_of(&files, &facts, &expect(4)), &["give the run 2 ranks"]);
}

#[test]
fn a_schedule_that_was_not_saved_cannot_be_restored() {
    let (mut files, facts) = files("verl_megatron_v2_tp2");
    let manifest = files
        .get_mut(Utf8Path::new("global_step_2/actor/ckpt_contents.json"))
        .unwrap();
    let text = String::from_utf8(manifest.clone()).unwrap();
    *manifest = text.replace("\"lr_scheduler\": {", "\"other\": {").into_bytes();
    assert_eq!(resume_of(&files, &facts, &expect(2, two_ranks())), only_data());
    let restored = MegatronSpec {
        schedule: true,
        ..two_ranks()
    };
    assert!(
        matches!(resume_of(&files, &facts, &expect(2, restored)), Resumability::Degraded { lost } if lost.contains(&StateKind::LrSchedule))
    );
}

#[test]
fn a_run_of_megatron_cannot_go_on_from_shards_of_fsdp() {
    refused(
        &resume("verl_ppo_fsdp2_w2", &expect(2, two_ranks())),
        &["shards of FSDP", "loads it with Megatron"],
    );
}

#[test]
fn a_relaunch_says_what_each_role_loads() {
    let mut spec = spec(supervise_trainers::verl::PPO, PPO);
    spec.roles[0].megatron = Some(two_ranks());
    let lists = |lost: &[StateKind]| {
        let mut order = from_step(120, FULL);
        order.lost = lost.to_vec();
        let plan = arrange(&spec, &order, TrainerFacts::default());
        assert_eq!(plan.overrides[0], "trainer.resume_mode=resume_path");
        assert!(plan.overrides[1].starts_with("trainer.resume_from_path="));
        plan.overrides[2..4].to_vec()
    };
    let all = "['model','optimizer','extra']";
    assert_eq!(
        lists(&[]),
        [
            format!("actor_rollout_ref.actor.checkpoint.load_contents={all}"),
            format!("critic.checkpoint.load_contents={all}"),
        ]
    );
    // Random states that do not fit are left out for Megatron, which would fail on them; the critic is FSDP's.
    assert_eq!(
        lists(&[StateKind::Rng]),
        [
            "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer']".to_owned(),
            format!("critic.checkpoint.load_contents={all}"),
        ]
    );
}

#[test]
fn a_wish_for_exported_weights_is_one_for_the_weights() {
    let read = ppo(
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,hf_model,optimizer,extra] \
                    actor_rollout_ref.actor.checkpoint.load_contents=[hf_model]",
    )
    .good();
    let role = &read.roles[0];
    assert_eq!(
        (role.load_contents.as_slice(), role.load_wish),
        (&["model".to_owned()][..], true)
    );
}

#[test]
fn each_role_is_fitted_by_its_own_strategy() {
    let (mut all, mut facts) = files("verl_megatron_v2_tp2");
    let (shards, more) = files("verl_ppo_fsdp2_w2");
    let as_critic = |path: &Utf8Path| path.as_str().replacen("/actor", "/critic", 1).into();
    all.extend(shards.iter().map(|(path, bytes)| (as_critic(path), bytes.clone())));
    facts.extend(more.into_iter().map(|fact| FileFact {
        path: as_critic(&fact.path),
        ..fact
    }));
    let mut expect = run(false, 2, &["actor", "critic"]);
    let roles = expect.roles.as_mut().unwrap();
    roles[0].megatron = Some(two_ranks());
    assert_eq!(resume_of(&all, &facts, &expect), Resumability::Exact);
    // FSDP's shards fit only their own number of ranks.
    expect.world = Some(4);
    refused(
        &resume_of(&all, &facts, &expect),
        &["the shards of `critic`", "this run has 4"],
    );
    expect.world = Some(2);
    let roles = expect.roles.as_mut().unwrap();
    (roles[0].megatron, roles[1].megatron) = (None, Some(two_ranks()));
    refused(
        &resume_of(&all, &facts, &expect),
        &["`actor` was written by Megatron's manager"],
    );
}

#[test]
fn weights_that_are_only_exported_are_loaded_by_their_own_name() {
    let read = ppo("actor_rollout_ref.actor.megatron.use_dist_checkpointing=True \
         actor_rollout_ref.actor.checkpoint.save_contents=[hf_model,optimizer,extra]")
    .good();
    // A step of this run holds no shards of the model.
    assert!(read.roles[0].megatron.is_some_and(|m| !m.dist));
    let mut spec = spec(supervise_trainers::verl::PPO, PPO);
    spec.roles.clone_from(&read.roles);
    let plan = arrange(&spec, &from_step(2, FULL), TrainerFacts::default());
    let wanted = "actor_rollout_ref.actor.checkpoint.load_contents=['hf_model','optimizer','extra']";
    assert!(plan.overrides.iter().any(|o| o == wanted), "{:?}", plan.overrides);
}
