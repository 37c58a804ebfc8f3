//! Steps of the SFT trainer.

use crate::tree::{Tree, codes, run, why};
use supervise_core::checkpoint::{Depth, Finding, Resumability, StateKind, Verdict};

#[test]
fn a_whole_step_has_its_files_in_the_step_itself() {
    let seen = Tree::new().sft(10, 4, 4).judge(&run(true, 4, &[""]), 10);
    assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
    assert_eq!(
        (seen.layout.as_ref(), &seen.resume),
        ("verl_fsdp_sft", &Resumability::Exact)
    );
    assert_eq!((seen.roles, seen.world), (vec![String::new()], Some(4)));
}

#[test]
fn parts_of_the_dataloaders_state_are_complete_or_one() {
    // How many parts of four ranks are there, and what that is.
    for (parts, verdict) in [
        (&[0, 1, 2, 3][..], Verdict::Whole),
        (&[0], Verdict::Whole),
        (&[0, 1], Verdict::Whole),
        (&[0, 1, 2], Verdict::Incomplete),
        (&[0, 2, 3], Verdict::Incomplete),
        (&[1], Verdict::Incomplete),
        (&[0, 1, 2, 3, 4], Verdict::Incomplete),
    ] {
        let mut tree = Tree::new().sft(10, 4, 0);
        for part in parts {
            tree.file(format!("global_step_10/data_{part}.pt"), 1500);
        }
        let seen = tree.judge(&run(true, 4, &[""]), 10);
        assert_eq!(seen.verdict, verdict, "{parts:?}");
    }
}

#[test]
fn fewer_parts_than_the_runs_other_steps_have_is_a_killed_save() {
    let tree = Tree::new().sft(8, 4, 4).sft(10, 4, 2);
    let seen = tree.judge(&run(true, 4, &[""]), 10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "data_state_missing"));
    assert_eq!(
        seen.why().unwrap().file.as_deref().map(|f| f.as_str()),
        Some("data_2.pt")
    );
    let ray = Tree::new().sft(8, 4, 1).sft(10, 4, 1);
    assert_eq!(ray.judge(&run(true, 4, &[""]), 10).verdict, Verdict::Whole);
}

#[test]
fn without_any_part_the_data_order_is_lost() {
    let seen = Tree::new().sft(10, 2, 0).judge(&run(true, 2, &[""]), 10);
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Whole, vec!["no_data_state"]));
    assert_eq!(
        seen.resume,
        Resumability::Degraded {
            lost: vec![StateKind::DataOrder]
        }
    );
}

#[test]
fn a_save_that_was_killed_is_incomplete() {
    // As a rank killed inside its optimizer's shard leaves it: no later file of any rank, no marker.
    let tree = Tree::new()
        .sft(2, 2, 2)
        .sft(3, 2, 0)
        .without("global_step_3/fsdp_config.json")
        .without("global_step_3/huggingface")
        .without("global_step_3/extra_state_world_size_2_rank_1.pt")
        .finds(
            "global_step_3/optim_world_size_2_rank_1.pt",
            Finding::error("zip_truncated", Verdict::Incomplete, "cut"),
        );
    let seen = tree.judge(&run(true, 2, &[""]), 3);
    assert_eq!(seen.verdict, Verdict::Incomplete);
    for code in ["fsdp_config_missing", "shards_missing", "zip_truncated"] {
        assert!(codes(&seen).contains(&code), "{code} in {:?}", codes(&seen));
    }
    assert_eq!(tree.judge(&run(true, 2, &[""]), 2).verdict, Verdict::Whole);
}

#[test]
fn only_data_is_left_is_not_taken_for_a_ppo_husk() {
    let mut tree = Tree::new();
    tree.dir("global_step_4");
    tree.file("global_step_4/data_0.pt", 9);
    let seen = tree.judge(&run(true, 1, &[""]), 4);
    assert_eq!(
        (seen.verdict, why(&seen), seen.husk),
        (Verdict::Incomplete, "role_missing", false)
    );
}

#[test]
fn a_ppo_step_does_not_fit() {
    let seen = Tree::new().ppo(10, 2, &["actor"]).judge(&run(true, 2, &[""]), 10);
    assert_eq!(seen.verdict, Verdict::Whole);
    assert!(matches!(&seen.resume, Resumability::Not { why } if why.contains("PPO")));
}

/// Ranks that share a sequence share a dataloader: other groups of them read other samples.
#[test]
fn another_division_by_sequences_is_not_exact() {
    let run = |sequence: u32| {
        let mut expect = run(true, 4, &[""]);
        expect.roles.as_mut().unwrap()[0].sequence = Some(sequence);
        expect
    };
    for (parts, sequence, exact) in [
        (4, 1, true),
        (2, 2, true),
        (1, 4, true),
        (4, 2, false),
        (2, 1, false),
        (1, 2, false),
    ] {
        let seen = Tree::new().sft(2, 4, parts).judge(&run(sequence), 2);
        assert_eq!(seen.verdict, Verdict::Whole, "{parts} {sequence}");
        let lost = Resumability::Degraded {
            lost: vec![StateKind::DataOrder],
        };
        let wanted = if exact { Resumability::Exact } else { lost };
        assert_eq!(seen.resume, wanted, "{parts} {sequence}");
        assert_eq!(codes(&seen).contains(&"data_ranks_differ"), !exact);
    }
}
