//! PPO steps of many files, and the pins of all of them.

use crate::tree::{Tree, codes, role, run};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, Finding, Verdict};
use supervise_trainers::ExpectedLayout;

const ACTOR: &[&str] = &["actor"];

#[test]
fn findings_are_bounded_and_the_verdict_is_not() {
    let mut tree = Tree::new().ppo(10, 128, ACTOR);
    for rank in 0..128 {
        let shard = format!("global_step_10/actor/optim_world_size_128_rank_{rank}.pt");
        tree = tree.finds(&shard, Finding::error("zip_truncated", Verdict::Damaged, "cut"));
    }
    let seen = tree.verify(10);
    assert_eq!(seen.verdict, Verdict::Damaged);
    assert_eq!(seen.findings.len(), 65);
    assert!(codes(&seen).contains(&"more_findings"));
}

#[test]
fn sixteen_thousand_ranks_are_judged_in_one_go() {
    let world = 16_384;
    let tree = Tree::new().ppo(10, world, ACTOR);
    let seen = tree.judge(&run(false, world, ACTOR), 10);
    assert_eq!((seen.verdict, seen.files), (Verdict::Whole, 3 * world + 4));
    let seen = tree
        .without("global_step_10/actor/model_world_size_16384_rank_777.pt")
        .verify(10);
    assert_eq!(
        seen.why().unwrap().detail,
        "model shards of 1 of 16384 ranks are missing: 777"
    );
}

#[test]
fn pins_change_with_any_file_and_with_nothing_else() {
    let expect = ExpectedLayout {
        roles: Some(vec![role("actor")]),
        ..ExpectedLayout::default()
    };
    let pins = |tree: &Tree| tree.judge(&expect, 10).pins;
    let tree = Tree::new().ppo(10, 2, ACTOR);
    assert_eq!(pins(&tree), pins(&tree.clone()));
    let config = "global_step_10/actor/huggingface/tokenizer.json";
    for changed in [
        tree.clone().change(config, |f| f.size += 1),
        tree.clone().change(config, |f| f.mtime += 1),
        tree.clone().change(config, |f| f.ctime += 1),
        tree.clone().change(config, |f| f.ino += 1000),
        tree.clone().change(config, |f| f.dev += 1),
        tree.clone().without(config),
        tree.clone().with("global_step_10/new", 0),
    ] {
        assert_ne!(pins(&changed), pins(&tree));
    }
    let mut tracker = tree.tracker(&expect);
    let ckpt = CkptId("global_step_10".into());
    assert_eq!(tracker.pins(&ckpt), Some(pins(&tree)));
    let seen = tracker.judge(&ckpt, Depth::Structure, &BTreeMap::new());
    assert_eq!(seen.pins, pins(&tree), "a proof does not change the pins");
}
