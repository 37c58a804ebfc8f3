//! A relaunch tried in advance, beside the first attempt.

use super::ways::{KILLED, Stage, run_words};
use supervise_tests::harness::wait_for;

/// A trainer that is called directly, and holds before its fifth step.
const DIRECT: [&str; 6] = [
    "python3",
    "-m",
    "verl.trainer.main_ppo",
    "trainer.n_gpus_per_node=1",
    "algorithm.adv_estimator=grpo",
    "++demo.hold_at=5",
];

#[test]
fn a_relaunch_that_would_fail_is_told_while_the_first_attempt_runs() {
    let mut stage = Stage::new("shared");
    let root = format!("trainer.default_local_dir={}", stage.scene.root().display());
    let more = [root.as_str()];
    let words = run_words(&DIRECT, &more);
    stage.scene.env("REFUSED", "trainer.resume_from_path");
    let run = stage.scene.start_with(&words);
    let why = "this release does not take an override of trainer.resume_from_path";
    wait_for("it is told", || run.text().contains(why));
    let told = &stage.scene.status()["rehearsal"]["refused"]["what"];
    assert!(told[0].as_str().unwrap().contains(why), "{told}");
    let root = stage.scene.root();
    stage
        .scene
        .ask(&["status", root.to_str().unwrap()])
        .expect(0)
        .says("WARNING");
    // Only words: the training goes on.
    stage.scene.go();
    run.wait().expect(0);
    assert_eq!((stage.scene.attempts(), stage.calls().len()), (1, 1));
    stage
        .scene
        .ask(&["explain", "--verbose", root.to_str().unwrap()])
        .expect(0)
        .says(why);
    let plan = [&["plan", "--rehearse"], &words[1..]].concat();
    stage.scene.ask(&plan).expect(78).says(why);
    stage.scene.assert_alone();
}

#[test]
fn a_relaunch_that_would_succeed_is_told_once() {
    let stage = Stage::new("shared");
    let root = format!("trainer.default_local_dir={}", stage.scene.root().display());
    let run = stage.scene.start_with(&run_words(&DIRECT, &[&root, KILLED]));
    let said = "the trainer takes all that it would be given";
    wait_for("it is told", || run.text().contains(said));
    stage.scene.go();
    let ended = run.wait();
    assert_eq!(ended.expect(0).text.matches(said).count(), 1);
    assert_eq!(stage.scene.attempts(), 2);
}

#[test]
fn a_rehearsal_ends_with_the_supervisor() {
    let mut stage = Stage::new("shared");
    let root = format!("trainer.default_local_dir={}", stage.scene.root().display());
    stage.scene.env("HELD", "1");
    let tries = |stage: &Stage| {
        stage
            .scene
            .living()
            .iter()
            .any(|(_, words)| words.contains("--cfg job"))
    };
    for killed in [false, true] {
        let run = stage.scene.start_with(&run_words(&DIRECT, &[&root]));
        wait_for("it is tried", || {
            tries(&stage) && stage.calls().len() == 1 + usize::from(killed)
        });
        if killed {
            run.kill();
            wait_for("it is ended", || !tries(&stage));
        } else {
            run.signal(15);
            run.wait().expect(143);
            stage.scene.assert_alone();
        }
    }
}
