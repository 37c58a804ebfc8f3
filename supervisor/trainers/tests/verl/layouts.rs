//! Steps as older releases of verl leave them.

use crate::tree::{Tree, codes, run, why};
use camino::Utf8Path;
use supervise_core::checkpoint::{Resumability, StateKind, Verdict};
use supervise_trainers::verl::Layouts;
use supervise_trainers::{AdapterPayload, ExpectedLayout};

/// A role as verl 0.4.0 writes it: configuration and tokenizer beside the shards, no word on the number of ranks.
fn role_0_4_0(tree: &mut Tree, dir: &str, world: u32, kinds: &[&str]) {
    for rank in 0..world {
        for kind in kinds {
            tree.file(format!("{dir}/{kind}_world_size_{world}_rank_{rank}.pt"), 400_000);
        }
    }
    for (name, size) in [
        ("config.json", 900),
        ("generation_config.json", 150),
        ("tokenizer.json", 9000),
    ] {
        tree.file(format!("{dir}/{name}"), size);
    }
}

const ALL: &[&str] = &["model", "optim", "extra_state"];

#[test]
fn a_step_of_verl_0_4_0_is_whole_without_fsdp_config() {
    let mut tree = Tree::new().with("global_step_10/data.pt", 1500);
    role_0_4_0(&mut tree, "global_step_10/actor", 4, ALL);
    let seen = tree.judge(&run(false, 4, &["actor"]), 10);
    assert_eq!(
        (seen.verdict, seen.world),
        (Verdict::Whole, Some(4)),
        "{:?}",
        seen.findings
    );
    assert_eq!(seen.resume, Resumability::Exact);
    // Shards of another number of ranks, and nothing that says which of them counts.
    let mut torn = Tree::new().with("global_step_10/data.pt", 1500);
    role_0_4_0(&mut torn, "global_step_10/actor", 4, ALL);
    torn.file("global_step_10/actor/model_world_size_5_rank_4.pt", 400_000);
    let mixed = torn.judge(&run(false, 4, &["actor"]), 10);
    assert_eq!(why(&mixed), "world_sizes_mixed");
}

/// A step as `fsdp_sft_trainer` of 0.5 to 0.7.0 leaves it: everything in the step, one state of the dataloader.
fn older_sft() -> Tree {
    Tree::new().sft(10, 2, 0).with("global_step_10/data.pt", 1500)
}

#[test]
fn a_step_of_the_older_sft_trainer_has_one_state_of_the_dataloader() {
    let reads = |one_data_file| ExpectedLayout {
        own: AdapterPayload::new(Layouts {
            sft: Some(true),
            one_data_file,
        }),
        ..run(true, 2, &[""])
    };
    for known in [None, Some(true)] {
        let seen = older_sft().judge(&reads(known), 10);
        assert_eq!(seen.layout, "verl_fsdp_sft");
        assert_eq!((seen.verdict, &seen.resume), (Verdict::Whole, &Resumability::Exact));
    }
    let lost = Resumability::Degraded {
        lost: vec![StateKind::DataOrder],
    };
    // The newer trainer looks for one file per rank, the older one for a single one.
    let newer = older_sft().judge(&reads(Some(false)), 10);
    assert_eq!((newer.verdict, codes(&newer)), (Verdict::Whole, vec!["no_data_state"]));
    assert_eq!(newer.resume, lost);
    let older = Tree::new().sft(10, 2, 2).judge(&reads(Some(true)), 10);
    assert_eq!((older.verdict, older.resume), (Verdict::Whole, lost));
}

#[test]
fn without_a_configuration_the_older_sft_trainers_step_is_no_ppo_step() {
    let seen = older_sft().judge(&ExpectedLayout::default(), 10);
    assert_eq!((seen.layout.as_ref(), seen.verdict), ("verl_fsdp_sft", Verdict::Whole));
    assert_eq!(seen.resume, Resumability::Exact);
}

#[test]
fn weights_that_were_only_exported_are_no_step_to_resume_from() {
    let dir = Utf8Path::new("global_step_10");
    let mut tree = Tree::new();
    tree.dir(dir);
    for (name, size) in [
        ("config.json", 900),
        ("model.safetensors", 400_000),
        ("tokenizer.json", 9000),
    ] {
        tree.file(dir.join(name), size);
    }
    let seen = tree.judge(&run(true, 2, &[""]), 10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Unknown, "layout_unknown"));
    assert!(seen.why().unwrap().detail.contains("verl 0.4"));
}
