//! Lines of a trainer about its steps: where it resumed, whether steps that are trained twice print the same, what is no number;
//! and a failure that is answered as the user says.

use super::scene;
use serde_json::json;
use supervise_tests::harness::{Scene, eventually};

/// Fourteen steps, one save before the last, and a rank that is killed three steps after it.
fn killed_after_a_save() -> Scene {
    let mut scene = scene();
    scene
        .set("trainer.total_training_steps", json!(14))
        .set("trainer.save_freq", json!(10))
        .fault("kill_rank", 13, false);
    scene
}

#[test]
fn a_resume_is_confirmed_and_repeated_steps_are_equal() {
    let scene = killed_after_a_save();
    scene
        .run(&[])
        .expect(0)
        .says("the first training record is step 11: the trainer resumed from 10")
        .says("equivalence: equal: 2 steps after 10, trained twice, printed the same numbers");
}

#[test]
fn a_jump_is_named_and_ends_nothing() {
    let mut scene = killed_after_a_save();
    scene.set("demo.shift_resumed", json!(1000));
    scene.run(&[]).expect(0).says("equivalence: the loss of step 1");
    scene.ask(&["explain", "--verbose"]).says("jumped");
}

#[test]
fn a_jump_ends_the_run_where_the_settings_say_so() {
    let mut scene = killed_after_a_save();
    scene
        .set("demo.shift_resumed", json!(1000))
        .set("demo.hold_at", json!(14))
        .set("supervisor.resume_check", json!("stop"));
    scene.run(&[]).expect(3).says("resume_check: stop");
    scene.assert_alone();
}

#[test]
fn a_loss_that_is_no_number_is_told_and_ends_nothing() {
    let mut scene = scene();
    scene.set("demo.nan_at", json!(5));
    scene
        .run(&[])
        .expect(0)
        .says("WARNING: attempt 1: the loss is nan at step 5");
}

#[test]
fn a_failure_is_answered_as_the_user_says() {
    let mut scene = scene();
    scene
        .fault("exception", 5, false)
        .set("supervisor.policy", json!({"code.*": "stop"}));
    scene.run(&[]).expect(3).says("a restart cannot help");
    assert_eq!(scene.attempts(), 1);
}

/// Weights that are no numbers from the end of step 5 on; saves at 2, 4, 6 and 8, and a rank that waits before step 10.
fn spoilt() -> Scene {
    let mut scene = scene();
    scene
        .set("trainer.total_training_steps", json!(12))
        .set("trainer.save_freq", json!(2))
        .set("trainer.max_actor_ckpt_to_keep", json!(10))
        .set("demo.hold_at", json!(10))
        .fault("nan", 5, false);
    scene
}

#[test]
fn weights_that_are_no_numbers_are_left_for_the_newest_finite_step() {
    let mut scene = spoilt();
    let run = scene.start(&[]);
    eventually("it goes back", || (scene.attempts() == 2).then_some(()));
    scene.go();
    run.wait()
        .expect(0)
        .says("holds numbers that are not finite")
        .says("back to step 4, the newest step whose numbers are finite");
    assert_eq!((scene.attempts(), scene.resumed(2)), (2, Some(4)));
    scene.set("demo.faults", json!([])).set("demo.hold_at", json!(null));
    assert_eq!(scene.digest(), Some(scene.expected_digest()));
    scene.ask(&["explain"]).says("num.nan");
    scene.assert_alone();
}

#[test]
fn weights_that_are_no_numbers_are_no_end_where_the_policy_does_not_step_back() {
    let mut scene = spoilt();
    scene
        .set("supervisor.policy", json!({"num.nan": "relaunch"}))
        .set("demo.hold_at", json!(null));
    scene
        .run(&[])
        .expect(3)
        .says("`supervise verify --finite` looks into a step")
        .says("the newest step whose numbers are finite is 4: to go on from there, `--from 4 --again`");
    assert_eq!(scene.attempts(), 1);
    // What it says works.
    scene
        .set("demo.faults", json!([]))
        .run(&["--from", "4", "--again"])
        .expect(0);
    assert_eq!(scene.digest(), Some(scene.expected_digest()));
    scene.assert_alone();
}

/// Weights that are no numbers from the end of step 36 on, of 40; saves at every fourth step, three of which are kept.
fn spoilt_at_the_end() -> Scene {
    let mut scene = scene();
    scene
        .set("trainer.total_training_steps", json!(40))
        .set("trainer.save_freq", json!(4))
        .set("trainer.max_actor_ckpt_to_keep", json!(3))
        .set("demo.hidden", json!([32, 32]))
        .set("demo.seed", json!(1001))
        .set("supervisor.proof", json!({"depth": "full"}))
        .fault("nan", 36, false);
    scene
}

#[test]
fn a_model_of_no_numbers_is_no_finished_run() {
    for step_ms in [0, 150] {
        let mut scene = spoilt_at_the_end();
        scene.set("demo.step_ms", json!(step_ms));
        scene
            .run(&[])
            .expect(0)
            .says("holds numbers that are not finite")
            .says("back to step 32, the newest step whose numbers are finite");
        assert_eq!((scene.attempts(), scene.resumed(2)), (2, Some(32)), "{step_ms}");
        scene.set("demo.faults", json!([]));
        assert_eq!(scene.digest(), Some(scene.expected_digest()), "{step_ms}");
        scene
            .ask(&["verify", "--finite", scene.step(40).to_str().unwrap()])
            .expect(0);
        scene.assert_alone();
    }
}

#[test]
fn the_newest_finite_step_is_never_deleted() {
    let mut scene = spoilt_at_the_end();
    scene
        .set("demo.faults", json!([]))
        .fault("nan", 26, false)
        .set("demo.hold_at", json!(37))
        .set("supervisor.policy", json!({"num.nan": "relaunch"}));
    let ended = scene.run(&[]);
    ended.expect(3).says("the newest whose numbers are finite");
    let step = scene.step(24);
    scene.ask(&["verify", "--finite", step.to_str().unwrap()]).expect(0);
    scene
        .set("demo.faults", json!([]))
        .set("demo.hold_at", json!(null))
        .run(&["--from", "24", "--again"])
        .expect(0);
    assert_eq!(scene.digest(), Some(scene.expected_digest()));
    scene.assert_alone();
}

/// Nothing in the printed loss shows it, whatever the policy: the newest finite step is there, and the run does not end well.
#[test]
fn weights_that_are_lost_behind_a_finite_loss_push_out_no_finite_step() {
    for (policy, held) in [("step_back", false), ("relaunch", true)] {
        let mut scene = spoilt_at_the_end();
        scene
            .set("demo.faults", json!([]))
            .fault("nan", 26, false)
            .set("demo.hide_nan", json!(true))
            .set("demo.hold_at", if held { json!(37) } else { json!(null) })
            .set("demo.step_ms", json!(60))
            .set("supervisor.policy", json!({"num.nan": policy}));
        let ended = scene.run(&[]);
        match held {
            true => {
                ended
                    .expect(3)
                    .says("`--from 24 --again`")
                    .says("the weights in the last");
                assert!(!ended.text.contains("the loss is"), "{}", ended.text);
                scene
                    .set("demo.faults", json!([]))
                    .set("demo.hold_at", json!(null))
                    .run(&["--from", "24", "--again"])
                    .expect(0);
            }
            false => {
                ended
                    .expect(0)
                    .says("back to step 24, the newest step whose numbers are finite");
            }
        }
        scene.set("demo.faults", json!([])).set("demo.hold_at", json!(null));
        assert_eq!(scene.digest(), Some(scene.expected_digest()), "{policy}");
        scene.assert_alone();
    }
}
