//! What retention leaves of a step where the roles are kept in different numbers.

use crate::tree::{Tree, run, why};
use supervise_core::checkpoint::Verdict;
use supervise_trainers::ExpectedLayout;

const BOTH: &[&str] = &["actor", "critic"];

fn steps() -> Tree {
    Tree::new().ppo(2, 2, BOTH).ppo(4, 2, BOTH)
}

#[test]
fn a_role_that_a_newer_step_has_was_deleted_by_retention() {
    for role in BOTH {
        let tree = steps().without(&format!("global_step_2/{role}"));
        let seen = tree.judge(&run(false, 2, BOTH), 2);
        assert_eq!(
            (seen.verdict, why(&seen), seen.husk),
            (Verdict::Incomplete, "role_missing", true)
        );
        let left: Vec<&str> = BOTH.iter().copied().filter(|other| other != role).collect();
        assert_eq!(seen.roles, left);
        assert!(!tree.judge(&run(false, 2, BOTH), 4).husk);
    }
}

#[test]
fn a_role_that_is_missing_for_another_reason_is_damage() {
    // The newest step; one whose save was killed; an empty directory; more than that is wrong.
    let newest = steps().without("global_step_4/actor");
    assert!(!newest.judge(&run(false, 2, BOTH), 4).husk);
    let killed = steps().without("global_step_2/critic").without("global_step_2/data.pt");
    assert!(!killed.judge(&run(false, 2, BOTH), 2).husk);
    let mut empty = steps().without("global_step_2/actor");
    empty.dir("global_step_2/actor");
    assert!(!empty.judge(&run(false, 2, BOTH), 2).husk);
    let torn = steps()
        .without("global_step_2/actor")
        .without("global_step_2/critic/model_world_size_2_rank_1.pt");
    assert!(!torn.judge(&run(false, 2, BOTH), 2).husk);
}

#[test]
fn a_step_that_another_trainer_saved_is_no_remnant() {
    let policy = "global_step_8/policy/model_world_size_2_rank_0.pt";
    let tree = Tree::new().ppo(10, 2, BOTH).with("global_step_8/data.pt", 1500);
    assert!(tree.judge(&run(false, 2, BOTH), 8).husk);
    for strange in [policy, "global_step_8/trainer_state.pt"] {
        let tree = Tree::new()
            .ppo(10, 2, BOTH)
            .with("global_step_8/data.pt", 1500)
            .with(strange, 4000);
        for expect in [run(false, 2, BOTH), ExpectedLayout::default()] {
            let seen = tree.judge(&expect, 8);
            assert_eq!(
                (seen.verdict, why(&seen), seen.husk),
                (Verdict::Unknown, "layout_unknown", false)
            );
            assert_eq!(seen.layout, "unknown");
            assert!(strange.ends_with(seen.why().unwrap().detail.split('`').nth(1).unwrap()));
        }
    }
}

#[test]
fn what_lies_beside_a_role_changes_nothing() {
    let tree = steps().with("global_step_4/eval/scores.pt", 10);
    assert_eq!(tree.judge(&run(false, 2, BOTH), 4).verdict, Verdict::Whole);
    // The queue of a step whose roles retention deleted.
    let queue = Tree::new()
        .ppo(10, 2, BOTH)
        .with("global_step_8/data.pt", 1500)
        .with("global_step_8/transfer_queue/metadata.json", 20);
    assert!(queue.judge(&run(false, 2, BOTH), 8).husk);
}
