//! Steps of trainers that write no `fsdp_config.json`: names and the tracker say whether a save was finished.

use crate::tree::{Tree, codes, run, why};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Resumability, Verdict};
use supervise_trainers::ExpectedLayout;

const ACTOR: &[&str] = &["actor"];

/// Steps 2 and 4 as EasyR1 saves them.
fn unmarked() -> Tree {
    Tree::new()
        .ppo(2, 2, ACTOR)
        .ppo(4, 2, ACTOR)
        .without("global_step_2/actor/fsdp_config.json")
        .without("global_step_4/actor/fsdp_config.json")
}

fn of(version: Option<&str>) -> ExpectedLayout {
    ExpectedLayout {
        version: version.map(str::to_owned),
        ..run(false, 2, ACTOR)
    }
}

/// Judges a step where the tracker holds this.
fn judged(tree: &Tree, expect: &ExpectedLayout, tracker: Option<&str>, step: u64) -> CheckpointSummary {
    let mut steps = tree.tracker(expect);
    steps.read_tracker(tracker.map(str::as_bytes));
    let ckpt = CkptId(format!("global_step_{step}").into());
    let reports = tree.proof(&*steps, &ckpt);
    steps.judge(&ckpt, Depth::Structure, &reports)
}

#[test]
fn a_step_that_the_tracker_names_or_an_older_one_was_finished() {
    for version in [None, Some("0.4.0"), Some("0.3.3.dev0")] {
        for (tracker, finished) in [
            (Some("4"), [2, 4].as_slice()),
            (Some("2"), &[2]),
            (None, &[]),
            (Some("x"), &[]),
        ] {
            for step in [2, 4] {
                let seen = judged(&unmarked(), &of(version), tracker, step);
                let is_whole = seen.verdict == Verdict::Whole;
                assert_eq!(is_whole, finished.contains(&step), "{version:?} {tracker:?} {step}");
                match is_whole {
                    true => {
                        assert_eq!(seen.resume, Resumability::Exact);
                        assert_eq!(seen.proven, Some(Depth::Structure));
                        assert_eq!(codes(&seen), ["fsdp_config_not_written"]);
                        let detail = &seen.findings[0].detail;
                        assert!(detail.contains("latest_checkpointed_iteration.txt"), "{detail}");
                        assert_eq!(
                            detail.contains("this is verl 0.4.0"),
                            version == Some("0.4.0"),
                            "{detail}"
                        );
                    }
                    false => assert_eq!(why(&seen), "fsdp_config_missing"),
                }
            }
        }
    }
}

#[test]
fn an_empty_tracker_was_being_written_which_comes_after_the_dataloaders_state() {
    assert_eq!(judged(&unmarked(), &of(None), Some(""), 4).verdict, Verdict::Whole);
    let killed = unmarked().without("global_step_4/data.pt");
    let seen = judged(&killed, &of(None), Some(""), 4);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "fsdp_config_missing"));
}

#[test]
fn the_file_is_required_of_a_release_that_writes_it_and_where_another_step_has_it() {
    for version in ["0.4.1", "0.5.0", "0.9.1"] {
        let seen = judged(&unmarked(), &of(Some(version)), Some("4"), 4);
        assert_eq!(
            (seen.verdict, why(&seen)),
            (Verdict::Incomplete, "fsdp_config_missing"),
            "{version}"
        );
    }
    let mixed = unmarked().ppo(6, 2, ACTOR);
    assert_eq!(judged(&mixed, &of(None), Some("6"), 4).verdict, Verdict::Incomplete);
    assert_eq!(judged(&mixed, &of(None), Some("6"), 6).verdict, Verdict::Whole);
    // Steps of a newer release stay what they are after the run went back to one that writes none.
    for step in [2, 4, 6] {
        assert_eq!(
            judged(&mixed, &of(Some("0.4.0")), Some("6"), step).verdict,
            Verdict::Whole,
            "{step}"
        );
    }
}

#[test]
fn every_rank_and_every_kind_has_to_be_there() {
    for (gone, code) in [
        ("global_step_4/actor/model_world_size_2_rank_1.pt", "shards_missing"),
        (
            "global_step_4/actor/extra_state_world_size_2_rank_0.pt",
            "shards_missing",
        ),
        ("global_step_4/actor/huggingface/config.json", "hf_config_missing"),
    ] {
        let seen = judged(&unmarked().without(gone), &of(None), Some("4"), 4);
        assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, code), "{gone}");
    }
    let without = |kinds: &[&str]| {
        let tree = kinds.iter().fold(unmarked(), |tree, kind| {
            tree.without_any(&format!("global_step_4/actor/{kind}_world"))
        });
        move |version| judged(&tree, &of(version), Some("4"), 4).verdict
    };
    assert_eq!(without(&["optim"])(None), Verdict::Incomplete);
    // EasyR1 can be told to save the model alone; verl 0.4.0 cannot.
    let alone = without(&["optim", "extra_state"]);
    assert_eq!(
        (alone(None), alone(Some("0.4.0"))),
        (Verdict::Whole, Verdict::Incomplete)
    );
    let mixed = unmarked().with("global_step_4/actor/model_world_size_3_rank_2.pt", 400_000);
    assert_eq!(why(&judged(&mixed, &of(None), Some("4"), 4)), "world_sizes_mixed");
}

#[test]
fn only_what_rests_on_the_tracker_is_judged_again_when_it_changes() {
    let rests = |tree: &Tree, step: u64| {
        tree.tracker(&of(None))
            .rests_on_tracker(&CkptId(format!("global_step_{step}").into()))
    };
    assert!(rests(&unmarked(), 4));
    let mixed = unmarked().ppo(6, 2, ACTOR);
    assert!(!rests(&mixed, 6));
}
