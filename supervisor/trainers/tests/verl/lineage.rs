//! Steps that hold another step's state: genuine files in the wrong directory, and counters along a lineage.

use crate::fixtures::{Files, files, prove};
use crate::tree::{Tree, codes, run, why};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::{EarlierStep, FileReport, StepCounters};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, FindingLevel, Verdict};
use supervise_core::id::Step;
use supervise_trainers::{ExpectedLayout, StepTracker, adapter};

fn step(n: u64) -> CkptId {
    CkptId(format!("global_step_{n}").into())
}

fn tracker(facts: &[FileFact]) -> Box<dyn StepTracker> {
    let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(&ExpectedLayout::default());
    facts.iter().for_each(|f| tracker.note(f));
    tracker
}

/// Replaces all files of a step whose path holds `part` by those of another step.
fn filled(files: &Files, target: u64, source: u64, part: &str) -> Files {
    let (to, from) = (format!("global_step_{target}/"), format!("global_step_{source}/"));
    let other = |path: &Utf8PathBuf| path.as_str().replacen(&to, &from, 1);
    let mut out = files.clone();
    for (path, bytes) in &mut out {
        if path.as_str().starts_with(&to) && path.as_str().contains(part) {
            bytes.clone_from(&files[Utf8Path::new(&other(path))]);
        }
    }
    out
}

/// Judges step 2 after step 1 was remembered.
fn second(files: &Files, facts: &[FileFact], depth: Depth) -> CheckpointSummary {
    let mut tracker = tracker(facts);
    let marks = tracker.marks(&step(1), &prove(files, &*tracker, &step(1), depth));
    tracker.remember(vec![EarlierStep { step: Step(1), marks }]);
    let reports = prove(files, &*tracker, &step(2), depth);
    tracker.judge(&step(2), depth, &reports)
}

#[test]
fn genuine_steps_count_up() {
    for (set, names) in [
        (
            "verl_ppo_fsdp2_w2",
            &["actor.optimizer", "actor.schedule", "data.batches"][..],
        ),
        (
            "verl_ppo_fsdp1_w2",
            &["actor.optimizer", "actor.schedule", "data.batches"],
        ),
        ("verl_sft_fsdp2_w2", &["data.batches", "optimizer", "schedule"]),
    ] {
        let (files, facts) = files(set);
        let tracker = tracker(&facts);
        let of = |n| tracker.marks(&step(n), &prove(&files, &*tracker, &step(n), Depth::Full));
        let (one, two) = (of(1), of(2));
        assert_eq!(two.counters.keys().collect::<Vec<_>>(), names, "{set}");
        for name in names {
            assert!(
                one.counters[*name] < two.counters[*name],
                "{set}: {name} of {one:?} and {two:?}"
            );
        }
        assert!(one.digest.is_some() && one.digest != two.digest);
        let shallow = prove(&files, &*tracker, &step(2), Depth::Structure);
        assert_eq!(
            tracker.marks(&step(2), &shallow).digest,
            None,
            "not every byte was read"
        );
        let seen = second(&files, &facts, Depth::Full);
        assert_eq!(seen.verdict, Verdict::Whole);
        assert!(seen.findings.is_empty(), "{set}: {:?}", seen.findings);
    }
}

#[test]
fn a_directory_filled_with_an_older_step_is_damaged() {
    for set in ["verl_ppo_fsdp2_w2", "verl_sft_fsdp2_w2"] {
        let (files, facts) = files(set);
        let copied = filled(&files, 2, 1, "");
        let seen = second(&copied, &facts, Depth::Full);
        assert_eq!((seen.verdict, seen.proven), (Verdict::Damaged, None), "{set}");
        assert_eq!(why(&seen), "copy_of_other_step", "{set}: {:?}", seen.findings);
        // Without checksums the counts alone stand still, which is doubtful.
        let seen = second(&copied, &facts, Depth::Structure);
        assert_eq!(seen.verdict, Verdict::Whole);
        assert!(
            codes(&seen).contains(&"counters_stand_still"),
            "{set}: {:?}",
            codes(&seen)
        );
    }
}

#[test]
fn an_optimizer_of_another_step_is_doubtful_where_the_schedule_moved_on() {
    let (files, facts) = files("verl_ppo_fsdp2_w2");
    let seen = second(&filled(&files, 2, 1, "optim_"), &facts, Depth::Structure);
    let told = seen.findings.iter().find(|f| f.code == "counters_stand_still").unwrap();
    assert!(told.detail.contains("optimizer of the actor"), "{told}");
    assert_eq!(told.level, FindingLevel::Warning);
}

#[test]
fn data_of_another_step_is_doubtful() {
    for (set, name) in [("verl_ppo_fsdp2_w2", "data.pt"), ("verl_sft_fsdp2_w2", "data_")] {
        let (files, facts) = files(set);
        // Within an epoch of at least three batches.
        let mut tracker = tracker(&facts);
        let mixed = filled(&files, 2, 1, name);
        let marks = tracker.marks(&step(1), &prove(&mixed, &*tracker, &step(1), Depth::Structure));
        let longest = StepCounters {
            counters: BTreeMap::from([("data.batches".to_owned(), 3)]),
            digest: None,
        };
        tracker.remember(vec![
            EarlierStep { step: Step(1), marks },
            EarlierStep {
                step: Step(9),
                marks: longest,
            },
        ]);
        let reports = prove(&mixed, &*tracker, &step(2), Depth::Structure);
        let seen = tracker.judge(&step(2), Depth::Structure, &reports);
        assert_eq!(
            (seen.verdict, codes(&seen)),
            (Verdict::Whole, vec!["data_of_other_step"]),
            "{set}"
        );
        assert_eq!(seen.findings[0].level, FindingLevel::Warning);
    }
}

#[test]
fn a_step_that_takes_several_batches_may_end_an_epoch() {
    let (files, facts) = files("verl_ppo_fsdp2_w2");
    let at = |step, batches| EarlierStep {
        step: Step(step),
        marks: StepCounters {
            counters: BTreeMap::from([("data.batches".to_owned(), batches)]),
            digest: None,
        },
    };
    // An epoch of 17 batches or more, and step 2 counts few: from 8 it is not reached by eight a step, from 11 by eleven.
    for (later, expected) in [(at(9, 17), vec!["data_of_other_step"]), (at(6, 17), vec![])] {
        let mut tracker = tracker(&facts);
        tracker.remember(vec![at(1, 17 - later.step.0), later]);
        let reports = prove(&files, &*tracker, &step(2), Depth::Structure);
        let seen = tracker.judge(&step(2), Depth::Structure, &reports);
        assert_eq!(codes(&seen), expected);
    }
}

#[test]
fn steps_that_were_judged_before_are_compared_without_records() {
    let (files, facts) = files("verl_sft_fsdp2_w2");
    let files = filled(&files, 2, 1, "");
    let mut tracker = tracker(&facts);
    let judge = |tracker: &mut Box<dyn StepTracker>, n| {
        let reports = prove(&files, &**tracker, &step(n), Depth::Full);
        tracker.judge(&step(n), Depth::Full, &reports)
    };
    // Newest first, as a scan goes: nothing is known yet.
    assert_eq!(judge(&mut tracker, 2).verdict, Verdict::Whole);
    assert_eq!(
        judge(&mut tracker, 1).verdict,
        Verdict::Whole,
        "the original is no copy"
    );
    let seen = judge(&mut tracker, 2);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Damaged, "copy_of_other_step"));
    assert_eq!(judge(&mut tracker, 1).verdict, Verdict::Whole);
    // What changed is not what was judged.
    let mut changed = facts
        .iter()
        .find(|f| f.path.as_str().ends_with("data_0.pt"))
        .unwrap()
        .clone();
    changed.path = "global_step_1/data_0.pt".into();
    changed.size += 1;
    tracker.note(&changed);
    assert_eq!(judge(&mut tracker, 2).verdict, Verdict::Whole);
}

/// Counters as they stand in a step of two roles.
fn counts(optimizer: u64, schedule: u64, batches: u64) -> StepCounters {
    let counters = [
        ("actor.optimizer", optimizer),
        ("actor.schedule", schedule),
        ("data.batches", batches),
    ];
    StepCounters {
        counters: counters.map(|(name, n)| (name.to_owned(), n)).into(),
        digest: None,
    }
}

/// A whole step 8 that counts this, judged after the others were remembered.
fn eighth(ours: &StepCounters, earlier: &[(u64, StepCounters)], expect: &ExpectedLayout) -> CheckpointSummary {
    let tree = Tree::new().ppo(8, 2, &["actor"]);
    let mut tracker = tree.tracker(expect);
    let remembered = earlier
        .iter()
        .cloned()
        .map(|(n, marks)| EarlierStep { step: Step(n), marks });
    tracker.remember(remembered.collect());
    let mut reports = tree.proof(&*tracker, &step(8));
    for (path, report) in &mut reports {
        count(path, report, ours);
    }
    assert_eq!(tracker.marks(&step(8), &reports), *ours);
    tracker.judge(&step(8), Depth::Structure, &reports)
}

fn count(path: &Utf8Path, report: &mut FileReport, ours: &StepCounters) {
    let facts = report.facts.torch.get_or_insert_default();
    let get = |name: &str| ours.counters.get(name).copied();
    match path.file_name().unwrap() {
        name if name.starts_with("optim") => facts.optimizer_steps = get("actor.optimizer").into_iter().collect(),
        name if name.starts_with("extra") => facts.scheduler_steps = get("actor.schedule"),
        "data.pt" => facts.batches = get("data.batches"),
        _ => {}
    }
}

#[test]
fn counters_along_a_lineage() {
    let all = || run(false, 2, &["actor"]);
    let mut wish = all();
    wish.roles.as_mut().unwrap()[0].load_wish = true;
    wish.roles.as_mut().unwrap()[0].load_contents = vec!["model".to_owned()];
    let mut model_only = all();
    model_only.counts_anew = true;
    let bare = || StepCounters::default();
    let (damaged, whole) = (Verdict::Damaged, Verdict::Whole);
    for (what, ours, earlier, expect, verdict, told) in [
        (
            "up",
            counts(80, 8, 8),
            vec![(4, counts(40, 4, 4)), (6, counts(60, 6, 6))],
            all(),
            whole,
            vec![],
        ),
        (
            "an older state",
            counts(40, 4, 8),
            vec![(4, counts(40, 4, 4)), (6, counts(60, 6, 6))],
            all(),
            damaged,
            vec!["counters_went_back"],
        ),
        (
            "and older data",
            counts(40, 4, 4),
            vec![(6, counts(60, 6, 6))],
            all(),
            damaged,
            vec!["counters_went_back", "data_of_other_step"],
        ),
        (
            "with the counts that it was proven with",
            counts(40, 4, 8),
            vec![(6, counts(60, 6, 6)), (8, counts(40, 4, 8))],
            all(),
            whole,
            vec!["counters_went_back"],
        ),
        (
            "proven with others",
            counts(40, 4, 8),
            vec![(6, counts(60, 6, 6)), (8, counts(80, 8, 8))],
            all(),
            damaged,
            vec!["counters_changed"],
        ),
        (
            "a later step under this number",
            counts(100, 10, 10),
            vec![(6, counts(60, 6, 6)), (8, counts(80, 8, 8))],
            all(),
            damaged,
            vec!["counters_changed"],
        ),
        (
            "only the schedule",
            counts(80, 4, 8),
            vec![(6, counts(60, 6, 6))],
            all(),
            damaged,
            vec!["counters_went_back"],
        ),
        (
            "only a later step is known",
            counts(40, 4, 4),
            vec![(10, counts(60, 6, 6))],
            all(),
            whole,
            vec![],
        ),
        (
            "its own record",
            counts(40, 4, 4),
            vec![(8, counts(80, 8, 8))],
            all(),
            damaged,
            vec!["counters_changed"],
        ),
        (
            "still",
            counts(60, 6, 8),
            vec![(6, counts(60, 6, 6))],
            all(),
            whole,
            vec!["counters_stand_still"],
        ),
        (
            "a step that skipped updates",
            counts(60, 8, 8),
            vec![(6, counts(60, 6, 6))],
            all(),
            whole,
            vec!["counters_stand_still"],
        ),
        (
            "a new epoch",
            counts(80, 8, 1),
            vec![(6, counts(60, 6, 6))],
            all(),
            whole,
            vec![],
        ),
        (
            "an epoch of two",
            counts(80, 8, 2),
            vec![(4, counts(40, 4, 2)), (6, counts(60, 6, 2))],
            all(),
            whole,
            vec![],
        ),
        (
            "counts begin anew by wish",
            counts(20, 2, 8),
            vec![(6, counts(60, 6, 6))],
            wish,
            whole,
            vec!["counters_went_back"],
        ),
        (
            "or by policy",
            counts(20, 2, 8),
            vec![(6, counts(60, 6, 6))],
            model_only,
            whole,
            vec!["counters_went_back"],
        ),
        (
            "once begun anew they go on",
            counts(40, 4, 8),
            vec![(4, counts(90, 9, 4)), (6, counts(20, 2, 6))],
            all(),
            whole,
            vec![],
        ),
        (
            "nothing counted",
            bare(),
            vec![(6, counts(60, 6, 6))],
            all(),
            whole,
            vec![],
        ),
        (
            "nothing to compare with",
            counts(80, 8, 8),
            vec![(6, bare())],
            all(),
            whole,
            vec![],
        ),
    ] {
        let seen = eighth(&ours, &earlier, &expect);
        assert_eq!(
            (seen.verdict, codes(&seen)),
            (verdict, told),
            "{what}: {:?}",
            seen.findings
        );
    }
}

#[test]
fn an_older_state_is_told_with_both_counts() {
    let seen = eighth(&counts(40, 4, 8), &[(6, counts(60, 6, 6))], &run(false, 2, &["actor"]));
    assert_eq!(
        seen.why().unwrap().detail,
        "this directory holds an older state: its optimizer of the actor counts 40 updates, step 6 counted 60"
    );
}

#[test]
fn equal_bytes_are_a_copy_of_the_lower_step() {
    let marks = |digest| StepCounters {
        digest,
        ..counts(40, 4, 4)
    };
    let tree = Tree::new().ppo(8, 1, &["actor"]);
    let mut tracker = tree.tracker(&run(false, 1, &["actor"]));
    let mut reports = tree.proof(&*tracker, &step(8));
    for (path, report) in &mut reports {
        count(path, report, &marks(None));
        report.crc = Some(7);
    }
    let ours = tracker.marks(&step(8), &reports);
    for (n, code) in [(4, "copy_of_other_step"), (10, "")] {
        tracker.remember(vec![EarlierStep {
            step: Step(n),
            marks: ours.clone(),
        }]);
        let seen = tracker.judge(&step(8), Depth::Structure, &reports);
        assert_eq!(why(&seen), code, "the same bytes as step {n}");
    }
    // One file without a checksum: no digest.
    reports.values_mut().next().unwrap().crc = None;
    assert_eq!(tracker.marks(&step(8), &reports).digest, None);
}

#[test]
fn a_schedule_that_does_not_count_the_steps_of_sft_is_doubtful() {
    let (files, facts) = files("verl_sft_fsdp2_w2");
    let moved = |path: &Utf8PathBuf| path.as_str().replacen("global_step_2", "global_step_5", 1);
    let files: Files = files.iter().map(|(p, b)| (moved(p).into(), b.clone())).collect();
    let facts: Vec<FileFact> = facts
        .iter()
        .map(|f| FileFact {
            path: moved(&f.path).into(),
            ..f.clone()
        })
        .collect();
    let seen = &crate::fixtures::judge(&files, &facts, &ExpectedLayout::default())[0];
    assert_eq!((seen.step, seen.verdict), (Step(5), Verdict::Whole));
    assert_eq!(codes(seen), ["counter_differs"]);
}

#[test]
fn ranks_that_count_other_steps_are_of_two_saves() {
    for (what, name) in [("optimizer", "optim"), ("schedule", "extra_state")] {
        let tree = Tree::new().ppo(8, 2, &["actor"]);
        let mut tracker = tree.tracker(&run(false, 2, &["actor"]));
        let mut reports = tree.proof(&*tracker, &step(8));
        for (path, report) in &mut reports {
            let other = path.as_str().contains("_rank_1");
            let n = if other && path.as_str().contains(name) { 7 } else { 8 };
            // Both counts in one file, and the schedule's must not hide the optimizer's.
            let facts = report.facts.torch.get_or_insert_default();
            if path.as_str().contains(name) {
                facts.optimizer_steps = vec![if what == "optimizer" { n } else { 8 }];
                facts.scheduler_steps = Some(if what == "schedule" { n } else { 8 });
            }
        }
        let seen = tracker.judge(&step(8), Depth::Structure, &reports);
        assert_eq!((seen.verdict, why(&seen)), (Verdict::Damaged, "mixed_steps"), "{what}");
        let told = seen.why().unwrap();
        assert!(told.detail.contains(what) && told.rank == Some(1), "{told}");
    }
}

#[test]
fn data_of_one_rank_of_another_step_is_doubtful() {
    let (files, facts) = files("verl_sft_fsdp2_w2");
    let seen = &crate::fixtures::judge(&filled(&files, 2, 1, "data_1.pt"), &facts, &ExpectedLayout::default())[0];
    assert_eq!(
        (seen.verdict, codes(seen)),
        (Verdict::Whole, vec!["data_of_other_step"])
    );
    assert_eq!(seen.findings[0].rank, Some(1));
}
