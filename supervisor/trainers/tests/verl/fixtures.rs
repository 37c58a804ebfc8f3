//! Genuine checkpoints of verl, read from disk, inspected and judged.

use crate::tree::{codes, run, why};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use supervise_checkpoint::{FileReport, InspectLimits, SweepOptions, inspect, inspect_described, judge_file, sweep};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Resumability, Verdict};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;
use supervise_trainers::{ExpectedLayout, StepTracker, adapter};

/// Files of a fixture by path relative to its root, with their bytes.
pub(crate) type Files = BTreeMap<Utf8PathBuf, Vec<u8>>;

#[expect(clippy::disallowed_methods, reason = "a fixture")]
pub(crate) fn files(set: &str) -> (Files, Vec<FileFact>) {
    let root = Utf8PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(set);
    let (mut files, mut facts) = (Files::new(), Vec::new());
    let mut waiting = vec![root.clone()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = Utf8PathBuf::from_path_buf(entry.unwrap().path()).unwrap();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let rel = path.strip_prefix(&root).unwrap().to_owned();
            let kind = if meta.is_dir() { EntryKind::Dir } else { EntryKind::File };
            // A checkout gives files the time of the checkout, in any order.
            facts.push(FileFact {
                path: rel.clone(),
                kind,
                size: meta.size(),
                mtime: 0,
                ctime: 0,
                dev: meta.dev(),
                ino: meta.ino(),
                uid: 0,
            });
            if meta.is_dir() {
                waiting.push(path);
            } else {
                files.insert(rel, std::fs::read(&path).unwrap());
            }
        }
    }
    (files, facts)
}

/// Looks into all files that a step needs: those that describe others come first.
pub(crate) fn prove(
    files: &Files,
    tracker: &dyn StepTracker,
    ckpt: &CkptId,
    depth: Depth,
) -> BTreeMap<Utf8PathBuf, FileReport> {
    let mut reports: BTreeMap<Utf8PathBuf, FileReport> = BTreeMap::new();
    for need in tracker.needs(ckpt, depth) {
        let (source, limits) = (files[&need.path].as_slice(), InspectLimits::default());
        let described = need
            .described_by
            .as_ref()
            .and_then(|other| reports.get(other)?.description.clone());
        let inspected = match described {
            Some(by) => {
                let name = need.path.strip_prefix(need.described_by.unwrap().parent().unwrap());
                inspect_described(need.kind, &source, &by, name.unwrap().as_str(), &limits)
            }
            None => inspect(need.kind, &source, &limits),
        };
        let report = match depth {
            Depth::Structure => judge_file(&inspected, &[]),
            Depth::Full => {
                let go_on = &mut |_| ControlFlow::Continue(());
                let results = sweep(&source, &inspected.plan, SweepOptions::default(), go_on).unwrap();
                judge_file(&inspected, &results)
            }
        };
        reports.insert(need.path, report);
    }
    reports
}

pub(crate) fn judge(files: &Files, facts: &[FileFact], expect: &ExpectedLayout) -> Vec<CheckpointSummary> {
    let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(expect);
    facts.iter().for_each(|f| tracker.note(f));
    let steps = tracker.steps();
    let mut out = Vec::new();
    for (ckpt, _) in steps {
        let reports = prove(files, &*tracker, &ckpt, Depth::Structure);
        out.push(tracker.judge(&ckpt, Depth::Structure, &reports));
    }
    out
}

#[test]
fn genuine_steps_are_whole_proven_and_exact() {
    for (set, expect, layout, count) in [
        ("verl_ppo_fsdp2_w2", run(false, 2, &["actor"]), "verl_fsdp_ppo", 13),
        ("verl_ppo_fsdp1_w2", run(false, 2, &["actor"]), "verl_fsdp_ppo", 13),
        ("verl_ppo_0_4_0_w2", run(false, 2, &["actor"]), "verl_fsdp_ppo", 12),
        ("verl_sft_fsdp2_w2", run(true, 2, &[""]), "verl_fsdp_sft", 14),
    ] {
        let (files, facts) = files(set);
        for expect in [expect, ExpectedLayout::default()] {
            let seen = judge(&files, &facts, &expect);
            assert_eq!(seen.iter().map(|s| s.step.0).collect::<Vec<_>>(), [2, 1], "{set}");
            for step in seen {
                assert_eq!(
                    (step.verdict, step.proven),
                    (Verdict::Whole, Some(Depth::Structure)),
                    "{set}: {:?}",
                    step.findings
                );
                assert_eq!((step.layout.as_ref(), step.world), (layout, Some(2)));
                assert_eq!(step.resume, Resumability::Exact);
                assert_eq!(step.files, count, "{set}");
            }
        }
        let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(&ExpectedLayout::default());
        let name = tracker.tracker_file();
        let pointer = files.get(Utf8Path::new(name)).map(Vec::as_slice);
        assert_eq!(tracker.read_tracker(pointer), TrackerState::Step(Step(2)));
    }
}

#[test]
fn every_cut_of_a_genuine_file_condemns_the_step() {
    for set in ["verl_ppo_fsdp2_w2", "verl_sft_fsdp2_w2"] {
        let (files, facts) = files(set);
        let shards = files
            .keys()
            .filter(|p| p.starts_with("global_step_2") && p.as_str().ends_with(".pt"));
        for path in shards.cloned().collect::<Vec<_>>() {
            for keep in [0, 1, 100, files[&path].len() / 2, files[&path].len() - 1] {
                let mut cut = files.clone();
                cut.get_mut(&path).unwrap().truncate(keep);
                let seen = judge(&cut, &facts, &ExpectedLayout::default());
                assert_ne!(seen[0].verdict, Verdict::Whole, "{path} cut to {keep}");
                assert_eq!(seen[0].proven, None);
                assert_eq!(seen[1].verdict, Verdict::Whole, "the other step is untouched");
            }
        }
    }
}

#[test]
fn a_shard_of_another_rank_kind_or_step_is_noticed() {
    for (set, role) in [("verl_ppo_fsdp2_w2", "actor/"), ("verl_sft_fsdp2_w2", "")] {
        let (files, facts) = files(set);
        let at = |step: u32, name: &str| Utf8PathBuf::from(format!("global_step_{step}/{role}{name}"));
        let cases = [
            (
                at(2, "model_world_size_2_rank_0.pt"),
                at(2, "model_world_size_2_rank_1.pt"),
                "misplaced",
            ),
            (
                at(2, "optim_world_size_2_rank_0.pt"),
                at(2, "model_world_size_2_rank_0.pt"),
                "misplaced",
            ),
            (
                at(2, "optim_world_size_2_rank_1.pt"),
                at(1, "optim_world_size_2_rank_1.pt"),
                "mixed_steps",
            ),
            (
                at(2, "extra_state_world_size_2_rank_1.pt"),
                at(1, "extra_state_world_size_2_rank_1.pt"),
                "mixed_steps",
            ),
        ];
        for (target, source, code) in cases {
            let mut mixed = files.clone();
            mixed.insert(target.clone(), files[&source].clone());
            let seen = judge(&mixed, &facts, &ExpectedLayout::default());
            assert_eq!(seen[0].verdict, Verdict::Damaged, "{source} as {target}");
            assert!(
                codes(&seen[0]).contains(&code),
                "{source} as {target}: {:?}",
                seen[0].findings
            );
        }
    }
}

#[test]
fn every_missing_file_that_is_loaded_is_noticed() {
    for set in ["verl_ppo_fsdp2_w2", "verl_sft_fsdp2_w2"] {
        let (files, facts) = files(set);
        for path in files.keys().filter(|p| p.starts_with("global_step_2")) {
            let name = path.file_name().unwrap();
            let without: Vec<FileFact> = facts.iter().filter(|f| f.path != *path).cloned().collect();
            let step = &judge(&files, &without, &ExpectedLayout::default())[0];
            let loaded = name.ends_with(".pt") || name == "fsdp_config.json" || name == "config.json";
            if loaded && name != "data.pt" {
                assert_eq!(step.verdict, Verdict::Incomplete, "{path}: {:?}", codes(step));
            } else {
                assert_eq!(step.verdict, Verdict::Whole, "{path}: {} {:?}", why(step), codes(step));
                assert_eq!(step.resume == Resumability::Exact, !loaded, "{path}");
            }
        }
    }
}

/// Real shards say how they are spread: one that holds less than its part leaves a hole.
#[test]
fn shards_of_all_ranks_tile_their_tensors() {
    for set in ["verl_ppo_fsdp2_w2", "verl_ppo_fsdp1_w2"] {
        let (files, facts) = files(set);
        let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(&ExpectedLayout::default());
        facts.iter().for_each(|f| tracker.note(f));
        let ckpt = CkptId("global_step_1".into());
        let mut reports = prove(&files, &*tracker, &ckpt, Depth::Full);
        assert_eq!(tracker.judge(&ckpt, Depth::Full, &reports).verdict, Verdict::Whole);
        let shard = Utf8Path::new("global_step_1/actor/model_world_size_2_rank_1.pt");
        let torch = reports.get_mut(shard).and_then(|r| r.facts.torch.as_mut());
        let spread = torch.and_then(|t| t.spread.as_mut()).expect("spread tensors");
        spread.here -= 1;
        let seen = tracker.judge(&ckpt, Depth::Full, &reports);
        assert_eq!(seen.verdict, Verdict::Damaged, "{:?}", seen.findings);
        assert!(seen.findings.iter().any(|f| f.code == "shards_do_not_tile"));
    }
}
