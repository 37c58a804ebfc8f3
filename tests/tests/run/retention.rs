//! A critic beside the actor, and the numbers of steps in which each is kept.

use super::scene;
use serde_json::{Value, json};
use supervise_tests::harness::{Ended, Scene, names};

/// The demo trainer with a critic, whose managers delete as verl's do.
fn with_critic(actor: u64, critic: Option<u64>) -> Scene {
    let mut scene = scene();
    scene
        .set("critic.enable", json!(true))
        .set("algorithm.adv_estimator", json!("gae"))
        .set("trainer.max_actor_ckpt_to_keep", json!(actor))
        .set("trainer.max_critic_ckpt_to_keep", json!(critic));
    scene
}

/// Steps that hold this role, and whatever else is left of a step.
fn holding(scene: &Scene, role: &str) -> Vec<u64> {
    let step = |name: &String| name.strip_prefix("global_step_")?.parse::<u64>().ok();
    let mut steps: Vec<u64> = names(&scene.root()).iter().filter_map(step).collect();
    steps.retain(|step| scene.step(*step).join(role).exists());
    steps.sort_unstable();
    steps
}

fn plan(scene: &Scene, more: &[&str]) -> Ended {
    let config = scene.write_config();
    let ended = scene.ask(&[&["plan", config.to_str().unwrap()], more].concat());
    ended.expect(0);
    ended
}

#[test]
fn a_step_goes_when_both_of_its_roles_are_above_their_numbers() {
    let mut scene = with_critic(1, Some(3));
    scene.fault("kill_rank", 7, false);
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(6));
    assert_eq!(holding(&scene, "actor"), [10, 12]);
    assert_eq!(holding(&scene, "critic"), [8, 10, 12]);
    // Nothing else is left of the older ones.
    assert_eq!(holding(&scene, ""), [8, 10, 12]);
}

#[test]
fn critics_of_steps_whose_actor_the_trainer_deleted_go_at_their_own_number() {
    let mut scene = with_critic(2, Some(4));
    scene
        .set("supervisor.retention", json!({"raise_by": 0}))
        .fault("kill_rank", 9, false);
    let view: Value = serde_json::from_str(&plan(&scene, &["--json"]).text).unwrap();
    assert!(view["overrides"].is_array(), "{view:#}");
    assert!(!view["overrides"].to_string().contains("to_keep"), "{view:#}");
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
    assert_eq!(holding(&scene, "actor"), [10, 12]);
    assert_eq!(holding(&scene, "critic"), [6, 8, 10, 12]);
    assert_eq!(holding(&scene, ""), [6, 8, 10, 12]);
}
