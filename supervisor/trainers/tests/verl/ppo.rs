//! PPO steps, whole and in trouble.

use crate::tree::{Tree, codes, run, why};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, EntryKind, Finding, FindingLevel, Resumability, StateKind, Verdict};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

const ACTOR: &[&str] = &["actor"];
const BOTH: &[&str] = &["actor", "critic"];

fn lost(resume: &Resumability) -> &[StateKind] {
    match resume {
        Resumability::Degraded { lost } => lost,
        other => panic!("expected a degraded resume, not {other:?}"),
    }
}

fn not(resume: &Resumability) -> &str {
    match resume {
        Resumability::Not { why } => why,
        other => panic!("expected no resume, not {other:?}"),
    }
}

#[test]
fn a_whole_step_is_whole_and_exact() {
    for (roles, world) in [(ACTOR, 4), (BOTH, 2), (ACTOR, 1)] {
        let seen = Tree::new().ppo(10, world, roles).judge(&run(false, world, roles), 10);
        assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
        assert_eq!(seen.resume, Resumability::Exact);
        assert_eq!(seen.layout, "verl_fsdp_ppo");
        assert_eq!(seen.roles, roles);
        assert_eq!(seen.world, Some(world));
        assert_eq!(seen.contents, ["model", "optimizer", "extra"]);
        assert!(seen.findings.is_empty(), "{:?}", seen.findings);
        assert_eq!(seen.files as usize, roles.len() * (world as usize * 3 + 3) + 1);
    }
}

#[test]
fn names_alone_prove_nothing() {
    let tree = Tree::new().ppo(10, 2, ACTOR);
    let mut tracker = tree.tracker(&run(false, 2, ACTOR));
    let ckpt = CkptId("global_step_10".into());
    let seen = tracker.judge(&ckpt, Depth::Full, &BTreeMap::new());
    assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, None));
    let mut reports = tree.proof(&*tracker, &ckpt);
    reports.remove(camino::Utf8Path::new(
        "global_step_10/actor/optim_world_size_2_rank_1.pt",
    ));
    assert_eq!(tracker.judge(&ckpt, Depth::Full, &reports).proven, None);
}

#[test]
fn a_step_is_proven_as_deep_as_its_least_proven_file() {
    let tree = Tree::new().ppo(10, 2, ACTOR);
    let mut tracker = tree.tracker(&run(false, 2, ACTOR));
    let ckpt = CkptId("global_step_10".into());
    let mut reports = tree.proof(&*tracker, &ckpt);
    assert_eq!(
        tracker.judge(&ckpt, Depth::Full, &reports).proven,
        Some(Depth::Structure)
    );
    reports.values_mut().for_each(|r| r.proven = Depth::Full);
    assert_eq!(tracker.judge(&ckpt, Depth::Full, &reports).proven, Some(Depth::Full));
    assert_eq!(
        tracker.judge(&ckpt, Depth::Structure, &reports).proven,
        Some(Depth::Structure)
    );
}

#[test]
fn a_missing_part_makes_a_step_incomplete_and_is_named() {
    let whole = || Tree::new().ppo(10, 4, BOTH);
    for (gone, code, file) in [
        (
            "global_step_10/actor/optim_world_size_4_rank_3.pt",
            "shards_missing",
            "actor/optim_world_size_4_rank_3.pt",
        ),
        (
            "global_step_10/critic/model_world_size_4_rank_0.pt",
            "shards_missing",
            "critic/model_world_size_4_rank_0.pt",
        ),
        (
            "global_step_10/actor/fsdp_config.json",
            "fsdp_config_missing",
            "actor/fsdp_config.json",
        ),
        (
            "global_step_10/actor/huggingface/config.json",
            "hf_config_missing",
            "actor/huggingface/config.json",
        ),
        ("global_step_10/critic", "role_missing", ""),
        ("global_step_10/actor", "role_missing", ""),
    ] {
        let seen = whole().without(gone).judge(&run(false, 4, BOTH), 10);
        assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, code), "{gone}");
        assert_eq!(seen.proven, None);
        let named = seen.why().unwrap().file.as_ref().map_or("", |f| f.as_str());
        assert_eq!(named, file);
    }
}

#[test]
fn missing_ranks_are_told_as_ranges_with_role_and_rank() {
    let seen = Tree::new()
        .ppo(5, 8, ACTOR)
        .without("global_step_5/actor/extra_state_world_size_8_rank_2.pt")
        .without("global_step_5/actor/extra_state_world_size_8_rank_5.pt")
        .without("global_step_5/actor/extra_state_world_size_8_rank_6.pt")
        .verify(5);
    let finding = seen.why().unwrap();
    assert_eq!(finding.detail, "extra shards of 3 of 8 ranks are missing: 2, 5-6");
    assert_eq!((finding.rank, finding.role.as_deref()), (Some(2), Some("actor")));
    assert_eq!(seen.contents, ["model", "optimizer"]);
}

#[test]
fn the_marker_of_rank_0_proves_nothing_about_other_ranks() {
    let seen = Tree::new()
        .ppo(10, 4, ACTOR)
        .without("global_step_10/actor/extra_state_world_size_4_rank_1.pt")
        .without("global_step_10/actor/extra_state_world_size_4_rank_3.pt")
        .without("global_step_10/data.pt")
        .verify(10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "shards_missing"));
}

#[test]
fn what_a_proof_finds_reaches_the_step_with_file_rank_and_role() {
    let shard = "global_step_10/critic/model_world_size_2_rank_1.pt";
    for (finding, verdict) in [
        (
            Finding::error("zip_truncated", Verdict::Damaged, "cut"),
            Verdict::Damaged,
        ),
        (
            Finding::error("danger", Verdict::Unsafe, "calls os.system"),
            Verdict::Unsafe,
        ),
        (Finding::error("io", Verdict::Unreadable, "EIO"), Verdict::Unreadable),
        (
            Finding::error("empty_file", Verdict::Incomplete, "empty"),
            Verdict::Incomplete,
        ),
        (Finding::warning("non_finite", "nan"), Verdict::Whole),
    ] {
        let seen = Tree::new().ppo(10, 2, BOTH).finds(shard, finding.clone()).verify(10);
        assert_eq!(seen.verdict, verdict);
        let told = seen.findings.iter().find(|f| f.code == finding.code).unwrap();
        assert_eq!(
            told.file.as_deref().map(|f| f.as_str()),
            Some("critic/model_world_size_2_rank_1.pt")
        );
        assert_eq!((told.rank, told.role.as_deref()), (Some(1), Some("critic")));
    }
    let seen = Tree::new()
        .ppo(10, 2, ACTOR)
        .finds(
            "global_step_10/data.pt",
            Finding::error("zip_truncated", Verdict::Damaged, "cut"),
        )
        .verify(10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Damaged, "zip_truncated"));
    let broken = "global_step_10/actor/huggingface/config.json";
    let seen = Tree::new()
        .ppo(10, 2, ACTOR)
        .finds(broken, Finding::error("json_truncated", Verdict::Incomplete, "cut"))
        .verify(10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "json_truncated"));
}

#[test]
fn without_data_pt_a_step_is_whole_and_the_data_order_is_lost() {
    let seen = Tree::new()
        .ppo(10, 2, ACTOR)
        .without("global_step_10/data.pt")
        .judge(&run(false, 2, ACTOR), 10);
    assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
    assert_eq!(codes(&seen), ["no_data_state"]);
    assert_eq!(seen.findings[0].level, FindingLevel::Warning);
    assert_eq!(lost(&seen.resume), [StateKind::DataOrder]);
}

#[test]
fn a_husk_is_no_checkpoint_and_no_damage() {
    let mut tree = Tree::new().ppo(10, 2, ACTOR);
    tree.dir("global_step_8");
    tree.file("global_step_8/data.pt", 1500);
    let seen = tree.verify(8);
    assert!(seen.husk);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "husk"));
    assert!(!tree.verify(10).husk);
    // A save that begins in a husk.
    tree.dir("global_step_8/actor");
    let seen = tree.verify(8);
    assert_eq!((seen.husk, why(&seen)), (false, "role_missing"));
}

#[test]
fn a_step_without_marks_is_incomplete_and_strange_files_are_unknown() {
    let mut tree = Tree::new();
    tree.dir("global_step_1");
    tree.dir("global_step_2");
    tree.dir("global_step_2/actor");
    tree.dir("global_step_3");
    tree.file("global_step_3/notes.md", 12);
    tree.dir("global_step_4");
    tree.dir("global_step_4/actor");
    tree.dir("global_step_4/actor/mp_rank_00");
    tree.file("global_step_4/actor/mp_rank_00/model.pt", 12);
    tree.dir("global_step_5");
    tree.file("global_step_5/step-5/.metadata", 12);
    for (step, verdict, code) in [
        (1, Verdict::Incomplete, "nothing_saved"),
        (2, Verdict::Incomplete, "nothing_saved"),
        (3, Verdict::Unknown, "layout_unknown"),
        (4, Verdict::Unknown, "layout_unknown"),
        (5, Verdict::Unknown, "layout_unknown"),
    ] {
        let seen = tree.judge(&run(false, 2, ACTOR), step);
        assert_eq!((seen.verdict, why(&seen)), (verdict, code), "step {step}");
        assert_eq!((seen.layout.as_ref(), seen.proven), ("unknown", None));
    }
}

#[test]
fn a_save_without_some_contents_is_whole_but_not_exact() {
    let model_only = || {
        Tree::new()
            .ppo(10, 2, ACTOR)
            .without_any("/optim_")
            .without_any("/extra_state_")
    };
    let seen = model_only().judge(&run(false, 2, ACTOR), 10);
    assert_eq!(seen.verdict, Verdict::Whole);
    assert_eq!(seen.contents, ["model"]);
    assert_eq!(
        lost(&seen.resume),
        [StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng]
    );

    // A run that itself saves no more loses nothing by it.
    let mut expect = run(false, 2, ACTOR);
    expect.roles.as_mut().unwrap()[0].save_contents = vec!["model".into()];
    assert_eq!(model_only().judge(&expect, 10).resume, Resumability::Exact);

    let seen = Tree::new()
        .ppo(10, 2, ACTOR)
        .without_any("/model_world")
        .judge(&run(false, 2, ACTOR), 10);
    assert_eq!(seen.verdict, Verdict::Whole);
    assert!(not(&seen.resume).contains("no complete set of model shards"));
}

#[test]
fn exported_weights_are_checked_but_never_resumed_from() {
    let mut tree = Tree::new().ppo(10, 2, ACTOR).without_any("_world_size_");
    tree.file("global_step_10/actor/huggingface/model.safetensors", 900);
    let seen = tree.verify(10);
    assert_eq!(seen.verdict, Verdict::Whole, "{:?}", seen.findings);
    assert_eq!(seen.contents, ["hf_model"]);
    assert!(not(&seen.resume).contains("hf_model"));

    let mut tree = Tree::new().ppo(10, 2, ACTOR);
    tree.file("global_step_10/actor/huggingface/model-00001-of-00003.safetensors", 900);
    tree.file("global_step_10/actor/huggingface/model-00003-of-00003.safetensors", 900);
    assert_eq!(why(&tree.verify(10)), "hf_weights_missing");
    tree.file("global_step_10/actor/huggingface/model-00002-of-00003.safetensors", 900);
    assert_eq!(why(&tree.verify(10)), "hf_index_missing");
    tree.file("global_step_10/actor/huggingface/model.safetensors.index.json", 900);
    assert_eq!(tree.verify(10).verdict, Verdict::Whole);

    let mut expect = run(false, 2, ACTOR);
    expect.roles.as_mut().unwrap()[0].save_contents.push("hf_model".into());
    let killed = Tree::new()
        .ppo(10, 2, ACTOR)
        .without("global_step_10/data.pt")
        .judge(&expect, 10);
    assert_eq!(
        (killed.verdict, why(&killed)),
        (Verdict::Incomplete, "hf_model_missing")
    );
    assert_eq!(Tree::new().ppo(10, 2, ACTOR).judge(&expect, 10).verdict, Verdict::Whole);
}

#[test]
fn the_old_layout_has_its_configuration_in_the_role_and_no_marker() {
    let old = || {
        let tree = Tree::new().ppo(10, 4, ACTOR);
        tree.without("global_step_10/actor/fsdp_config.json")
            .without("global_step_10/actor/huggingface")
            .with("global_step_10/actor/config.json", 700)
    };
    let seen = old().verify(10);
    assert_eq!(
        (seen.verdict, seen.world),
        (Verdict::Whole, Some(4)),
        "{:?}",
        seen.findings
    );
    let seen = old()
        .without("global_step_10/actor/model_world_size_4_rank_3.pt")
        .verify(10);
    assert_eq!(why(&seen), "shards_missing");
    let seen = old()
        .with("global_step_10/actor/model_world_size_2_rank_0.pt", 9)
        .verify(10);
    assert_eq!(why(&seen), "world_sizes_mixed");
}

#[test]
fn mixed_world_sizes_are_told_apart_by_the_marker() {
    let mut tree = Tree::new().ppo(10, 2, ACTOR);
    for rank in 0..4 {
        tree.file(format!("global_step_10/actor/model_world_size_4_rank_{rank}.pt"), 9);
    }
    let seen = tree.verify(10);
    assert_eq!((seen.verdict, seen.world), (Verdict::Whole, Some(2)));
    assert_eq!(codes(&seen), ["other_world_sizes"]);

    let seen = tree.says_world("global_step_10/actor/fsdp_config.json", 8).verify(10);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "shards_missing"));
}

#[test]
fn another_world_size_is_whole_and_cannot_be_resumed() {
    let seen = Tree::new().ppo(10, 4, ACTOR).judge(&run(false, 2, ACTOR), 10);
    assert_eq!(seen.verdict, Verdict::Whole);
    let why = not(&seen.resume);
    assert!(
        why.contains("written by 4 ranks") && why.contains("this run has 2"),
        "{why}"
    );
}

#[test]
fn the_critic_is_required_where_the_run_or_a_finished_neighbour_has_one() {
    let tree = Tree::new().ppo(5, 2, BOTH).ppo(10, 2, ACTOR);
    assert_eq!(why(&tree.verify(10)), "role_missing");
    assert_eq!(tree.judge(&run(false, 2, ACTOR), 10).verdict, Verdict::Whole);
    let seen = tree.judge(&run(false, 2, ACTOR), 5);
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Whole, vec!["role_not_used"]));
    assert_eq!(Tree::new().ppo(10, 2, ACTOR).verify(10).verdict, Verdict::Whole);
    assert_eq!(
        why(&Tree::new().ppo(10, 2, ACTOR).judge(&run(false, 2, BOTH), 10)),
        "role_missing"
    );
}

#[test]
fn one_machines_own_disk_is_told_from_a_killed_save() {
    let mut tree = Tree::new().ppo(10, 8, ACTOR);
    for rank in 4..8 {
        tree = tree.without_any(&format!("_rank_{rank}.pt"));
    }
    let seen = tree.verify(10);
    assert_eq!(seen.verdict, Verdict::Incomplete);
    assert!(codes(&seen).contains(&"not_a_shared_file_system"), "{:?}", codes(&seen));

    // The other machine: no rank 0, so no marker and no data.pt.
    let mut tree = Tree::new().ppo(10, 8, ACTOR).without("global_step_10/data.pt");
    tree = tree
        .without("global_step_10/actor/fsdp_config.json")
        .without("global_step_10/actor/huggingface");
    for rank in 0..4 {
        tree = tree.without_any(&format!("_rank_{rank}.pt"));
    }
    assert!(codes(&tree.verify(10)).contains(&"not_a_shared_file_system"));

    let killed = Tree::new()
        .ppo(10, 8, ACTOR)
        .without("global_step_10/actor/extra_state_world_size_8_rank_7.pt");
    assert!(!codes(&killed.verify(10)).contains(&"not_a_shared_file_system"));
}

#[test]
fn doubts_do_not_condemn() {
    let newer = Tree::new()
        .ppo(10, 2, ACTOR)
        .change("global_step_10/actor/model_world_size_2_rank_1.pt", |f| {
            f.mtime += 60_000_000_000
        });
    let seen = newer.verify(10);
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Whole, vec!["order_of_times"]));
    let soon = Tree::new()
        .ppo(10, 2, ACTOR)
        .change("global_step_10/actor/model_world_size_2_rank_1.pt", |f| {
            f.mtime += 1_900_000_000
        });
    assert!(soon.verify(10).findings.is_empty());

    let small = Tree::new()
        .ppo(10, 4, ACTOR)
        .change("global_step_10/actor/optim_world_size_4_rank_3.pt", |f| f.size = 9);
    let seen = small.verify(10);
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Whole, vec!["shard_size"]));
    assert_eq!(seen.findings[0].rank, Some(3));
}

#[test]
fn symbolic_links_are_not_followed() {
    let mut tree = Tree::new().ppo(10, 2, ACTOR).ppo(11, 2, ACTOR).ppo(12, 2, ACTOR);
    tree.put("global_step_9".into(), EntryKind::Symlink, 0);
    tree.put(
        "global_step_10/actor/model_world_size_2_rank_0.pt".into(),
        EntryKind::Symlink,
        0,
    );
    tree.put(
        "global_step_11/actor/huggingface/tokenizer.json".into(),
        EntryKind::Symlink,
        0,
    );
    tree = tree.without("global_step_12/actor");
    tree.put("global_step_12/actor".into(), EntryKind::Symlink, 0);
    assert_eq!(
        (tree.verify(9).verdict, why(&tree.verify(9))),
        (Verdict::Unknown, "symlink")
    );
    let seen = tree.verify(10);
    assert!(codes(&seen).contains(&"symlink") && codes(&seen).contains(&"shards_missing"));
    assert_ne!(seen.verdict, Verdict::Whole);
    let seen = tree.verify(11);
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Whole, vec!["symlink"]));
    assert_ne!(tree.verify(12).verdict, Verdict::Whole);
    assert!(!tree.verify(12).husk, "a link in place of the actor is no retention");
}

#[test]
fn a_transfer_queue_counts_where_it_was_saved() {
    let with = |names: &[&str]| {
        let mut tree = Tree::new().ppo(10, 2, ACTOR);
        for name in names {
            tree.file(format!("global_step_10/transfer_queue/{name}"), 9);
        }
        tree
    };
    assert_eq!(
        with(&["metadata.json", "controller_state.pkl", "storage_0.pkl"])
            .verify(10)
            .verdict,
        Verdict::Whole
    );
    assert_eq!(why(&with(&["metadata.json"]).verify(10)), "transfer_queue_missing");
    let mut tree = with(&[]);
    tree.dir("global_step_10/transfer_queue.tmp");
    let seen = tree.judge(&run(false, 2, ACTOR), 10);
    assert_eq!(seen.verdict, Verdict::Whole);
    assert_eq!(lost(&seen.resume), [StateKind::Rollout]);
}

#[test]
fn names_that_only_look_like_steps_are_remarks() {
    let mut tree = Tree::new().ppo(10, 2, ACTOR).ppo(9, 2, ACTOR);
    for name in ["global_steps_12", "global_step_0010", "global_step_11.bak"] {
        tree.dir(name);
        tree.file(format!("{name}/data.pt"), 9);
    }
    tree.file("latest_checkpointed_iteration.txt.tmp", 0);
    tree.file("latest_checkpointed_iteration.txt", 2);
    tree.file(".supervise/journal/1.jsonl", 2);
    let mut tracker = tree.tracker(&run(false, 2, ACTOR));
    let steps: Vec<u64> = tracker.steps().iter().map(|(_, s)| s.0).collect();
    assert_eq!(steps, [10, 9]);
    let remarks = tracker.remarks().join("\n");
    for name in ["global_steps_12", "global_step_0010", "global_step_11.bak", "txt.tmp"] {
        assert!(remarks.contains(name), "{name} in {remarks}");
    }
    assert_eq!(tracker.remarks().len(), 4);
    assert_eq!(tracker.tracker_file(), "latest_checkpointed_iteration.txt");
    assert_eq!(tracker.read_tracker(Some(b"10")), TrackerState::Step(Step(10)));

    tracker.forget(&CkptId("global_step_10".into()));
    assert_eq!(tracker.steps().len(), 1);
    let gone = tracker.judge(&CkptId("global_step_10".into()), Depth::Structure, &BTreeMap::new());
    assert_eq!((gone.verdict, gone.proven), (Verdict::Unknown, None));
}

#[test]
fn the_other_trainers_layout_is_whole_and_does_not_fit() {
    let seen = Tree::new().sft(10, 2, 2).judge(&run(false, 2, ACTOR), 10);
    assert_eq!((seen.verdict, seen.layout.as_ref()), (Verdict::Whole, "verl_fsdp_sft"));
    assert!(not(&seen.resume).contains("SFT"));
}
