//! Defaults of each release of verl, and the reading of one that is not known.

use super::launch::{FULL, PPO, arrange, from_step, spec};
use super::reading::{Case, text};
use supervise_core::spec::RunSpec;
use supervise_trainers::AdapterPayload;
use supervise_trainers::TrainerFacts;
use supervise_trainers::verl::VerlFacts;

fn ppo(version: Option<&'static str>, command: &'static str) -> Case {
    Case {
        command,
        version,
        ..Case::default()
    }
}

const GRPO: &str = "python -m verl.trainer.main_ppo trainer.save_freq=5 algorithm.adv_estimator=grpo";

#[test]
fn defaults_are_those_of_the_release_that_runs() {
    for version in [
        "0.4.0", "0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1", "0.9.7",
    ] {
        let read = ppo(Some(version), GRPO).good();
        assert_eq!(read.roles.len(), 1, "{version}");
        assert_eq!(
            read.roles[0].save_contents,
            ["model", "optimizer", "extra"],
            "{version}"
        );
        assert!(read.findings.iter().all(|f| f.code != "version_unknown"), "{version}");
        let origin = read.tree.get("trainer.resume_mode").unwrap().origin.to_string();
        assert_eq!(origin, format!("default of verl {}", &version[..3]));
    }
}

#[test]
fn a_release_that_is_not_known_is_said_and_only_shared_defaults_count() {
    for (version, word) in [
        (None, "verl version unknown"),
        (Some("0.10.0"), "verl 0.10.0 is not known"),
    ] {
        let read = ppo(version, GRPO).good();
        let said = read.findings.iter().find(|f| f.code == "version_unknown").unwrap();
        assert!(said.detail.contains(word), "{}", said.detail);
        assert_eq!(read.cadence.every, Some(5));
        assert_eq!(read.root.unwrap(), "/data/checkpoints/verl_examples/gsm8k");
        let origin = read.tree.get("trainer.resume_mode").unwrap().origin.to_string();
        assert_eq!(origin, "default of every verl from 0.4 to 0.9");
        // What is loaded follows what is saved.
        let two = "python -m verl.trainer.main_ppo trainer.save_freq=5 critic.enable=False \
                   actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer]";
        assert_eq!(ppo(version, two).good().roles[0].load_contents, ["model", "optimizer"]);
    }
    let watched = Case {
        no_recovery: true,
        ..ppo(None, GRPO)
    };
    assert!(watched.good().findings.iter().all(|f| f.code != "version_unknown"));
}

#[test]
fn a_default_that_differs_between_releases_has_to_be_said() {
    let megatron =
        "python -m verl.trainer.main_ppo model_engine=megatron trainer.save_freq=5 algorithm.adv_estimator=grpo";
    let problem = ppo(None, megatron).problem();
    assert!(
        problem.contains("actor_rollout_ref.actor.megatron.use_mbridge"),
        "{problem}"
    );
    assert!(
        problem.contains("set it (up to 0.6 it is False, since 0.7 it is True)"),
        "{problem}"
    );
    let said = Case {
        set: &["++actor_rollout_ref.actor.megatron.use_mbridge=True"],
        ..ppo(None, megatron)
    };
    assert!(said.good().roles[0].megatron.unwrap().bridge);
}

#[test]
fn megatron_writes_where_its_release_writes() {
    for (version, bridge, dist, reshards) in [
        ("0.4.1", false, true, false),
        ("0.5.0", false, true, false),
        ("0.6.1", false, true, false),
        ("0.7.0", true, false, false),
        ("0.7.1", true, false, true),
        ("0.8.0", true, false, false),
        ("0.9.1", true, false, false),
    ] {
        let command = "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer trainer.save_freq=5";
        let read = ppo(Some(version), command).good();
        let actor = read.roles[0].megatron.unwrap();
        assert_eq!(
            (actor.bridge, actor.dist, actor.any_parallel),
            (bridge, dist, reshards),
            "{version}"
        );
        // A critic could not go through the first bridge.
        let critic = read.roles[1].megatron.unwrap();
        assert_eq!(critic.dist, version != "0.9.1", "{version}");
        let layout = read.findings.iter().find(|f| f.code == "megatron_layout");
        assert_eq!(layout.is_some(), version != "0.9.1", "{version}");
    }
    let group = ppo(
        Some("0.7.0"),
        "python -m verl.trainer.main_ppo model_engine=megatron trainer.save_freq=5",
    )
    .problem();
    assert!(group.contains("--config-name=ppo_megatron_trainer"), "{group}");
}

#[test]
fn the_critic_is_what_its_release_makes_it() {
    let off = "python -m verl.trainer.main_ppo trainer.save_freq=5 +critic.enable=False";
    // 0.5 does not look at the key.
    for (version, roles) in [("0.5.0", 2), ("0.6.1", 1), ("0.9.1", 1)] {
        assert_eq!(ppo(Some(version), off).good().roles.len(), roles, "{version}");
    }
}

#[test]
fn verl_0_4_0_has_one_list_of_contents() {
    let command = "python -m verl.trainer.main_ppo trainer.save_freq=5 algorithm.adv_estimator=grpo \
                   actor_rollout_ref.actor.checkpoint.contents=";
    let with = |list: &str| {
        let text: &'static str = format!("{command}{list}").leak();
        ppo(Some("0.4.0"), text)
    };
    let read = with("[model,optimizer,extra,hf_model]").good();
    assert_eq!(read.roles[0].save_contents, ["model", "optimizer", "extra", "hf_model"]);
    assert_eq!(read.roles[0].load_contents, read.roles[0].save_contents);
    assert!(with("[model]").problem().contains("verl 0.4.0 refuses to start"));
}

#[test]
fn the_older_sft_trainer_has_keys_of_its_own() {
    let command = "torchrun --nproc_per_node=2 -m verl.trainer.fsdp_sft_trainer trainer.save_freq=5 \
                   trainer.checkpoint.save_contents=[model,extra]";
    let read = ppo(Some("0.6.1"), command).good();
    assert_eq!((read.kind, read.world), (supervise_trainers::verl::SFT, Some(2)));
    assert_eq!(read.roles[0].save_contents, ["model", "extra"]);
    assert_eq!(read.roles[0].load_contents, ["model", "extra"]);
    assert!(VerlFacts::of(&read.facts).older_sft);

    let cannot = ppo(
        Some("0.4.1"),
        "torchrun --nproc_per_node=2 -m verl.trainer.fsdp_sft_trainer trainer.save_freq=5",
    );
    assert!(cannot.problem().contains("cannot resume"));
    let watched = Case {
        no_recovery: true,
        ..cannot
    };
    assert!(watched.good().findings.iter().any(|f| f.code == "cannot_resume"));

    // A release that has no other is started with it.
    let yaml = Case {
        yaml: Some("trainer: {save_freq: 5}\ndata: {train_batch_size: 8}\n"),
        version: Some("0.5.0"),
        ..Case::default()
    };
    assert!(yaml.good().command.iter().any(|w| w == "verl.trainer.fsdp_sft_trainer"));
}

#[test]
fn relatives_of_ppo_are_read_as_what_they_inherit() {
    let one_step = "python -m verl.experimental.one_step_off_policy.main_ppo trainer.save_freq=5 trainer.project_name=p \
                    trainer.total_training_steps=9 rollout.nnodes=1";
    let read = ppo(Some("0.9.1"), one_step).good();
    assert_eq!(
        (read.kind, read.world, read.last_step.map(|s| s.0)),
        (supervise_trainers::verl::PPO, Some(8), Some(9))
    );

    let nowhere = ppo(Some("0.6.1"), "python -m recipe.dapo.main_dapo trainer.save_freq=5").problem();
    assert!(nowhere.contains("say where"), "{nowhere}");

    let fully = "python -m verl.experimental.fully_async_policy.fully_async_main trainer.save_freq=5 \
                 trainer.total_training_steps=9 rollout.total_rollout_steps=64";
    let read = ppo(Some("0.9.1"), fully).good();
    assert_eq!(read.last_step, None);
    assert!(read.findings.iter().any(|f| f.code == "steps_are_versions"));

    // All of them fail at a resume where such a directory is set.
    for command in [one_step, fully] {
        let with = Case {
            set: &["trainer.default_hdfs_dir=/h"],
            ..ppo(Some("0.9.1"), command)
        };
        let problem = text(&with.read().unwrap_err());
        assert!(problem.contains("load from hdfs is not implemented yet"), "{problem}");
    }
}

#[test]
fn the_upload_directory_is_judged_by_the_trainer_that_runs() {
    let command = "python -m verl.trainer.main_ppo trainer.save_freq=5 trainer.default_hdfs_dir=/h";
    assert!(
        ppo(Some("0.9.1"), command)
            .good()
            .findings
            .iter()
            .any(|f| f.code == "hdfs_ignored")
    );
    for version in [Some("0.4.1"), Some("0.8.0"), None] {
        assert!(
            ppo(version, command).problem().contains("default_hdfs_dir"),
            "{version:?}"
        );
    }
}

fn with_version(version: Option<&str>) -> RunSpec {
    RunSpec {
        trainer_version: version.map(str::to_owned),
        ..spec(supervise_trainers::verl::PPO, PPO)
    }
}

fn loads(spec: &RunSpec, older_sft: bool) -> Vec<String> {
    let facts = TrainerFacts {
        own: AdapterPayload::new(VerlFacts {
            older_sft,
            ..VerlFacts::default()
        }),
        ..TrainerFacts::default()
    };
    let plan = arrange(spec, &from_step(120, FULL), facts);
    let load = plan.overrides.into_iter();
    load.filter(|o| o.contains("load_contents")).collect()
}

#[test]
fn no_key_is_given_that_the_release_does_not_know() {
    let key = "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']";
    assert_eq!(loads(&with_version(Some("0.9.1")), false)[0], key);
    assert_eq!(loads(&with_version(Some("0.4.1")), false)[0], key);
    assert!(loads(&with_version(Some("0.4.0")), false).is_empty());
    // Where it is not known, a form that cannot fail.
    assert_eq!(loads(&with_version(None), false)[0], format!("++{key}"));

    let mut sft = with_version(Some("0.6.1"));
    sft.trainer = supervise_trainers::verl::SFT;
    sft.roles.truncate(1);
    sft.roles[0].name = String::new();
    let list = "load_contents=['model','optimizer','extra']";
    assert_eq!(loads(&sft, true), [format!("trainer.checkpoint.{list}")]);
    assert_eq!(loads(&sft, false), [format!("checkpoint.{list}")]);
}
