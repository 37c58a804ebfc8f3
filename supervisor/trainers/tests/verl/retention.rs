//! What retention leaves of a step where the roles are kept in different numbers.

use crate::tree::{Tree, run, why};
use supervise_core::checkpoint::Verdict;

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
