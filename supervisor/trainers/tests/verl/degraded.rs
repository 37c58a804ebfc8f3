//! Remains of steps that are not whole.

use crate::fixtures::{files, judge};
use crate::tree::{Tree, run};
use camino::Utf8Path;
use supervise_core::checkpoint::{CheckpointSummary, Depth, FileFact, Finding, PartialStep, StateKind, Verdict};
use supervise_trainers::ExpectedLayout;

const BOTH: &[&str] = &["actor", "critic"];

fn torn(path: &str) -> Finding {
    Finding::error("zip_truncated", Verdict::Damaged, "the directory is missing").in_file(path)
}

fn left(seen: &CheckpointSummary) -> &PartialStep {
    assert!(seen.verdict > Verdict::Whole && seen.proven.is_none());
    seen.part
        .as_ref()
        .unwrap_or_else(|| panic!("nothing is left: {:?}", seen.findings))
}

fn ppo(change: impl FnOnce(Tree) -> Tree) -> CheckpointSummary {
    change(Tree::new().ppo(10, 2, BOTH)).judge(&run(false, 2, BOTH), 10)
}

fn finds(path: &str, finding: Finding) -> CheckpointSummary {
    ppo(|tree| tree.finds(path, finding))
}

#[test]
fn a_torn_optimizer_leaves_the_rest_by_role() {
    let seen = finds("global_step_10/critic/optim_world_size_2_rank_1.pt", torn(""));
    let part = left(&seen);
    assert_eq!(part.lost, [StateKind::Optimizer]);
    assert_eq!(part.holds["actor"], ["model", "optimizer", "extra"]);
    assert_eq!(part.holds["critic"], ["model", "extra"]);
    assert_eq!((part.proven, part.aside.len()), (Some(Depth::Structure), 0));
    assert_eq!(part.pins, seen.pins);
}

#[test]
fn what_each_part_costs() {
    use StateKind::{DataOrder, LrSchedule, Optimizer, Rng};
    let gone = |path: &str| ppo(|tree| tree.without(path));
    for (seen, lost) in [
        (
            gone("global_step_10/actor/optim_world_size_2_rank_1.pt"),
            vec![Optimizer],
        ),
        (
            finds("global_step_10/actor/extra_state_world_size_2_rank_0.pt", torn("")),
            vec![LrSchedule, Rng],
        ),
        (finds("global_step_10/data.pt", torn("")), vec![DataOrder]),
        (
            ppo(|tree| {
                tree.finds("global_step_10/data.pt", torn(""))
                    .without("global_step_10/actor/optim_world_size_2_rank_0.pt")
            }),
            vec![Optimizer, DataOrder],
        ),
    ] {
        assert_eq!(left(&seen).lost, lost);
    }
    // What is not there need not go aside, and is lost all the same.
    let seen = ppo(|tree| {
        tree.without("global_step_10/data.pt")
            .finds("global_step_10/actor/optim_world_size_2_rank_1.pt", torn(""))
    });
    assert_eq!(left(&seen).lost, [Optimizer, DataOrder]);
    assert_eq!(left(&seen).aside.len(), 0);
}

#[test]
fn a_torn_data_state_goes_aside_and_what_stays_keeps_its_pins() {
    let seen = finds("global_step_10/data.pt", torn(""));
    let part = left(&seen);
    assert_eq!(part.aside, ["data.pt"]);
    let without = Tree::new().ppo(10, 2, BOTH).without("global_step_10/data.pt");
    assert_eq!(part.pins, without.judge(&run(false, 2, BOTH), 10).pins);
    assert_ne!(part.pins, seen.pins);
    // Ranks of the SFT trainer go on together.
    let sft = Tree::new().sft(4, 2, 2).finds("global_step_4/data_1.pt", torn(""));
    let seen = sft.judge(&run(true, 2, &[""]), 4);
    let part = left(&seen);
    assert_eq!(part.aside, ["data_0.pt", "data_1.pt"]);
    assert_eq!(part.holds[""], ["model", "optimizer", "extra"]);
    assert_eq!(part.lost, [StateKind::DataOrder]);
}

#[test]
fn doubt_about_the_whole_step_leaves_nothing() {
    let optim = "global_step_10/actor/optim_world_size_2_rank_1.pt";
    let damaged = |code| Finding::error(code, Verdict::Damaged, "of another save");
    let nothing = [
        finds("global_step_10/actor/model_world_size_2_rank_1.pt", torn("")),
        ppo(|tree| tree.without("global_step_10/actor/model_world_size_2_rank_1.pt")),
        ppo(|tree| tree.without("global_step_10/actor/fsdp_config.json")),
        ppo(|tree| tree.without("global_step_10/critic")),
        finds(optim, damaged("mixed_steps")),
        finds(optim, damaged("misplaced")),
        finds(optim, damaged("rewritten")),
        finds(optim, Finding::error("danger", Verdict::Unsafe, "it calls os.system")),
        finds(optim, Finding::error("io_error", Verdict::Unreadable, "no answer")),
        ppo(|tree| {
            tree.finds(optim, torn(""))
                .finds("global_step_10/actor/fsdp_config.json", damaged("json_broken"))
        }),
        // Another world size cannot be loaded at all.
        Tree::new()
            .ppo(10, 2, BOTH)
            .finds(optim, torn(""))
            .judge(&run(false, 4, BOTH), 10),
        ppo(|tree| tree),
    ];
    for seen in nothing {
        assert_eq!(seen.part, None, "{:?}", seen.findings);
    }
}

#[test]
fn a_file_that_was_not_looked_into_proves_no_part() {
    let tree = Tree::new().ppo(10, 2, BOTH).finds("global_step_10/data.pt", torn(""));
    let mut tracker = tree.tracker(&run(false, 2, BOTH));
    let ckpt = supervise_core::checkpoint::CkptId("global_step_10".into());
    let mut reports = tree.proof(&*tracker, &ckpt);
    reports.remove(Utf8Path::new("global_step_10/actor/model_world_size_2_rank_0.pt"));
    let seen = tracker.judge(&ckpt, Depth::Full, &reports);
    assert_eq!(seen.part.map(|p| p.proven), Some(None));
}

/// Files of Megatron's own manager, of which one is cut short.
fn megatron(path: &str) -> CheckpointSummary {
    let (mut files, mut facts) = files("verl_megatron_v2_tp2");
    let path = Utf8Path::new("global_step_2/actor").join(path);
    files.get_mut(&path).unwrap().truncate(10);
    let cut = |f: &mut FileFact| {
        if f.path == path {
            f.size = 10;
        }
    };
    facts.iter_mut().for_each(cut);
    judge(&files, &facts, &ExpectedLayout::default()).remove(0)
}

#[test]
fn megatron_keeps_the_schedule_with_its_optimizer() {
    let seen = megatron("optimizer/dist_ckpt/.metadata");
    let part = left(&seen);
    assert_eq!(part.holds["actor"], ["model", "extra"]);
    assert_eq!(
        part.lost,
        [StateKind::Optimizer, StateKind::LrSchedule, StateKind::DataOrder]
    );
    let seen = megatron("extra/dist_ckpt/common.pt");
    assert_eq!(left(&seen).holds["actor"], ["model", "optimizer"]);
    for path in [
        "model/dist_ckpt/.metadata",
        "ckpt_contents.json",
        "transformer_config.json",
    ] {
        assert_eq!(megatron(path).part, None, "{path}");
    }
}
