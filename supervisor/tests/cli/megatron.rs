//! Runs that train with Megatron, as far as they can be seen without one: what `plan` says of them.

use crate::world::{World, copy_fixture};
use std::fs;
use std::path::Path;

const EXAMPLE: &str = "examples/configs/verl_megatron_ppo.yaml";

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(EXAMPLE);
    // There is no Python in this world; what is planned does not depend on it.
    fs::read_to_string(path)
        .unwrap()
        .replace("[python3, -m,", "[/bin/true, -m,")
        .replace("supervisor:\n", "supervisor:\n  trainer_version: \"0.9.1\"\n")
}

#[test]
fn the_example_is_planned_with_what_it_restores() {
    let world = World::new();
    world.write("ppo.yaml", &example());
    let said = world.run(&["plan", "ppo.yaml"]);
    said.tells(
        0,
        &[
            "would start from scratch",
            "model_engine='megatron'",
            "++critic.megatron.tensor_model_parallel_size=2",
            "[resharding]",
        ],
    );
    // This release writes what its steps are proven by.
    assert!(!said.out.contains("[megatron_layout]"), "{said:#?}");
    assert!(!said.out.contains("schedule_restarts"), "{said:#?}");
}

#[test]
fn a_switch_that_verl_refuses_ends_with_the_code_of_a_wrong_configuration() {
    let world = World::new();
    let broken = example().replace("use_mbridge: true", "use_mbridge: false").replace(
        "save_contents: [model, optimizer, extra]",
        "save_contents: [hf_model, optimizer, extra]",
    );
    world.write("ppo.yaml", &broken);
    for command in ["plan", "run"] {
        world.run(&[command, "ppo.yaml"]).refuses(
            78,
            &[
                "ppo.yaml:",
                "actor_rollout_ref.actor.checkpoint.save_contents",
                "use_mbridge=True",
            ],
        );
    }
}

const GRPO: &str = "\
model_engine: megatron
algorithm: {adv_estimator: grpo}
actor_rollout_ref: {actor: {megatron: {tensor_model_parallel_size: 2}}}
trainer: {default_local_dir: ckpt, save_freq: 1, n_gpus_per_node: 2}
supervisor: {trainer: verl, trainer_version: '0.9.1', command: [/bin/true, '{overrides}']}
";

#[test]
fn a_step_of_megatron_is_resumed_from_and_one_that_does_not_fit_says_what_would() {
    let world = World::new();
    copy_fixture("verl_megatron_v2_hf", &world.path("ckpt"));
    world.write("ppo.yaml", GRPO);
    world.run(&["plan", "ppo.yaml"]).tells(
        0,
        &[
            "global_step_2",
            "trainer.resume_mode=resume_path",
            "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']",
            "learning-rate schedule",
        ],
    );
    world.write("ppo.yaml", &GRPO.replace("parallel_size: 2", "parallel_size: 1"));
    let said = world.run(&["plan", "ppo.yaml"]);
    assert!(
        format!("{}{}", said.out, said.err).contains("tensor_model_parallel_size=2 (it is 1)"),
        "{said:#?}"
    );
    assert!(!said.out.contains("would start from scratch"), "{said:#?}");
}

/// Saves two genuine steps, one in each attempt; the first attempt fails.
const TRAINER: &str = r#"
echo "asked with: $*"
for n in 1 2; do
  [ -d ckpt/global_step_$n ] && continue
  cp -r steps/global_step_$n ckpt/.part && mv ckpt/.part ckpt/global_step_$n
  printf %s $n > ckpt/latest_checkpointed_iteration.txt
  echo "step:$n - train/loss:0.5"
  [ $n = 1 ] && exit 1
done
exit 0
"#;

#[test]
fn a_run_that_fails_goes_on_from_its_proven_step() {
    let world = World::new();
    copy_fixture("verl_megatron_v2_tp2", &world.path("steps"));
    world.write("trainer.sh", TRAINER);
    let yaml = GRPO
        .replace("parallel_size: 2", "parallel_size: 2, use_dist_checkpointing: true")
        .replace("n_gpus_per_node: 2", "n_gpus_per_node: 2, total_training_steps: 2")
        .replace("[/bin/true, ", "[/bin/sh, trainer.sh, ")
        .replace(
            "'{overrides}']",
            "'{overrides}'], backoff: {initial: 10ms, max: 20ms}, scan_interval: 50ms",
        );
    world.write("ppo.yaml", &yaml);
    let said = world.run(&["run", "ppo.yaml"]);
    said.tells(
        0,
        &["start from scratch", "step 1 is proven", "finished: step 2 is proven"],
    );
    let view = world.run(&["status", "--json"]).json()[0].clone();
    assert_eq!(
        (view["outcome"]["word"].as_str(), view["mark"].as_u64()),
        (Some("finished"), Some(2))
    );
    let logs = world.run(&["logs", "ppo.yaml"]);
    assert!(logs.out.contains("trainer.resume_mode=resume_path"), "{logs:#?}");
    assert!(
        logs.out
            .contains("actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']"),
        "{logs:#?}"
    );
}
