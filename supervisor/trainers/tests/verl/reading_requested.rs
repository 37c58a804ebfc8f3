//! Wishes of users: where to resume, what to load, how much to keep.

use super::reading::{Case, command};
use supervise_core::id::Step;
use supervise_core::spec::ResumeIntent;
use supervise_trainers::verl::VerlFacts;

#[test]
fn resume_wishes_are_read() {
    let path = |path: &str, step| ResumeIntent::Path {
        path: path.into(),
        step: Step(step),
    };
    let ppo = "python3 -m verl.trainer.main_ppo trainer.save_freq=1 trainer.default_local_dir=/r ";
    let sft = "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.default_local_dir=/r ";
    for (prefix, more, wanted) in [
        (ppo, "", ResumeIntent::Auto),
        (ppo, "trainer.resume_mode=disable", ResumeIntent::Disabled),
        (
            ppo,
            "trainer.resume_mode=resume_path trainer.resume_from_path=x/global_step_12",
            path("/data/x/global_step_12", 12),
        ),
        (ppo, "trainer.resume_from_path=/x/global_step_12", ResumeIntent::Auto),
        (
            sft,
            "trainer.resume_from_path=/x/global_step_12",
            path("/x/global_step_12", 12),
        ),
        (
            sft,
            "trainer.resume_mode=disable trainer.resume_from_path=/x/global_step_12",
            ResumeIntent::Disabled,
        ),
    ] {
        let line: &'static str = Box::leak(format!("{prefix}{more}").into_boxed_str());
        assert_eq!(command(line).good().resume, wanted, "{line}");
    }
}

#[test]
fn a_load_wish_is_one_that_was_said() {
    let text = "python3 -m verl.trainer.main_ppo trainer.save_freq=1 algorithm.adv_estimator=grpo trainer.default_local_dir=/r actor_rollout_ref.actor.checkpoint.";
    let role = |more: &str| {
        let line: &'static str = Box::leak(format!("{text}{more}").into_boxed_str());
        command(line).good().roles[0].clone()
    };
    let said = role("load_contents=[model]");
    assert_eq!((said.load_contents, said.load_wish), (vec!["model".to_owned()], true));
    let follows = role("save_contents=[model,extra]");
    assert_eq!(
        (follows.load_contents, follows.load_wish),
        (vec!["model".to_owned(), "extra".to_owned()], false)
    );
}

#[test]
fn the_number_to_keep_counts_where_every_role_has_one() {
    let text = "python3 -m verl.trainer.main_ppo trainer.save_freq=1 trainer.default_local_dir=/r trainer.max_actor_ckpt_to_keep=2 ";
    let keep = |more: &str| {
        let line: &'static str = Box::leak(format!("{text}{more}").into_boxed_str());
        let read = command(line).good();
        let roles: Vec<Option<u32>> = read.roles.iter().map(|role| role.keep).collect();
        (read.keep, read.facts.keep.len(), roles)
    };
    assert_eq!(keep("algorithm.adv_estimator=grpo"), (Some(2), 1, vec![None]));
    assert_eq!(keep("trainer.max_critic_ckpt_to_keep=2"), (Some(2), 2, vec![None; 2]));
    assert_eq!(
        keep("trainer.max_critic_ckpt_to_keep=5"),
        (Some(5), 2, vec![Some(2), Some(5)])
    );
    // The critic of every step is kept; verl deletes actors all the same, so their number is raised.
    assert_eq!(keep(""), (None, 1, vec![Some(2), None]));
    assert_eq!(
        keep("algorithm.adv_estimator=grpo trainer.max_actor_ckpt_to_keep=0"),
        (None, 0, vec![None])
    );
}

#[test]
fn async_saves_and_file_logs_are_noticed() {
    let read = command("python3 -m verl.trainer.main_ppo trainer.save_freq=1 trainer.logger=[console,file] actor_rollout_ref.actor.checkpoint.async_save=True").good();
    assert_eq!(
        VerlFacts::of(&read.facts).async_save,
        ["actor_rollout_ref.actor.checkpoint.async_save"]
    );
    assert!(VerlFacts::of(&read.facts).file_logger);
    assert!(read.findings.iter().any(|f| f.code == "async_save"));
}

#[test]
fn attempts_that_log_into_one_run_of_mlflow_resume_by_the_tracker() {
    let resume = |loggers: &str, env: &'static [(&'static str, &'static str)]| {
        let line = format!(
            "python3 -m verl.trainer.main_ppo trainer.save_freq=1 trainer.default_local_dir=/r trainer.logger={loggers}"
        );
        let case = Case {
            command: line.leak(),
            env,
            ..Case::default()
        };
        case.good().resume
    };
    let named = &[("MLFLOW_RUN_ID", "abc")];
    assert_eq!(resume("[console,mlflow]", named), ResumeIntent::Tracker);
    assert_eq!(resume("[console,mlflow]", &[]), ResumeIntent::Auto);
    assert_eq!(resume("[console,wandb]", named), ResumeIntent::Auto);
}
