//! Steps of declared trainers, judged by their files.

use crate::declare;
use crate::root::{Root, codes};
use std::sync::Arc;
use supervise_core::checkpoint::{CkptId, Depth, EntryKind, FileFact, Resumability, StateKind, Verdict};
use supervise_core::event::TrackerState;
use supervise_trainers::StepTracker;
use supervise_trainers::declared::{preset, presets, recognize};

const POLICY: &[&str] = &["policy"];
const BOTH: &[&str] = &["policy", "critic"];

#[test]
fn a_step_with_all_its_parts_is_whole() {
    for roles in [POLICY, BOTH] {
        let root = Root::skyrl(roles);
        for step in ["global_step_2", "global_step_4"] {
            let seen = root.judge("skyrl", step);
            assert_eq!(
                (seen.verdict, seen.proven),
                (Verdict::Whole, Some(Depth::Structure)),
                "{seen:#?}"
            );
            assert_eq!(
                (seen.world, seen.layout.as_ref(), &seen.resume),
                (Some(2), "skyrl", &Resumability::Exact)
            );
            assert_eq!(seen.roles, roles);
            assert!(!seen.husk);
        }
    }
}

#[test]
fn every_missing_file_is_noticed() {
    let root = Root::skyrl(BOTH);
    for path in root.paths() {
        let step = path.iter().next().unwrap();
        let seen = root.clone().without(path.as_str()).judge("skyrl", step);
        assert_eq!(seen.verdict, Verdict::Incomplete, "{path}: {seen:#?}");
    }
}

#[test]
fn a_whole_part_or_role_that_is_missing_is_noticed() {
    for (gone, code, words) in [
        ("global_step_4/policy", "part_missing", "model of policy"),
        ("global_step_4/critic", "part_missing", "model of critic"),
        ("global_step_4/trainer_state.pt", "part_missing", "a resume would fail"),
        (
            "global_step_4/data.pt",
            "part_missing",
            "would silently reset this state",
        ),
        (
            "global_step_4/policy/model_world_size_2_rank_1.pt",
            "rank_missing",
            "1 of 2 files are missing, rank 1",
        ),
    ] {
        let seen = Root::skyrl(BOTH).without(gone).judge("skyrl", "global_step_4");
        assert!(codes(&seen).contains(&code), "{gone}: {seen:#?}");
        assert!(
            seen.findings.iter().any(|f| f.detail.contains(words)),
            "{gone}: {seen:#?}"
        );
    }
    // No step has a dataloader: none is asked for.
    let without = Root::skyrl(POLICY)
        .without("global_step_2/data.pt")
        .without("global_step_4/data.pt");
    let seen = without.judge("skyrl", "global_step_4");
    let lost = Resumability::Degraded {
        lost: vec![StateKind::DataOrder],
    };
    assert_eq!((seen.verdict, seen.resume), (Verdict::Whole, lost));
}

#[test]
fn a_million_ranks_take_no_time_and_no_memory() {
    let mut root = Root::skyrl(POLICY).without("global_step_4/policy");
    for kind in ["model", "optim", "extra_state"] {
        root.file(&format!(
            "global_step_4/policy/{kind}_world_size_18446744073709551615_rank_7.pt"
        ));
    }
    let seen = root.judge("skyrl", "global_step_4");
    assert_eq!(codes(&seen), ["rank_missing"; 3], "{seen:#?}");
    assert!(seen.findings[0].detail.contains("rank 0, 1, 2, 3, …"), "{seen:#?}");
}

#[test]
fn files_of_two_worlds_are_unknown() {
    let root = Root::skyrl(POLICY).with("global_step_4/policy/model_world_size_4_rank_0.pt");
    let seen = root.judge("skyrl", "global_step_4");
    assert_eq!(
        (seen.verdict, codes(&seen)),
        (Verdict::Unknown, vec!["world_sizes_mixed"])
    );
}

#[test]
fn a_step_above_the_tracker_is_unfinished() {
    let mut root = Root::skyrl(POLICY);
    root.pointer = Some("2");
    assert_eq!(codes(&root.judge("skyrl", "global_step_4")), ["unfinished"]);
    assert_eq!(root.judge("skyrl", "global_step_2").verdict, Verdict::Whole);
    for (pointer, remark) in [
        (
            None,
            "latest_ckpt_global_step.txt is missing: the trainer would begin at step 0",
        ),
        (Some(""), "is empty: the trainer would fail"),
        (Some("\0\0"), "which is no step"),
        (Some("6"), "names step 6, which is not there"),
    ] {
        root.pointer = pointer;
        let remarks = root.tracker(preset("skyrl").unwrap()).remarks();
        assert!(remarks.iter().any(|r| r.contains(remark)), "{pointer:?}: {remarks:?}");
        assert_eq!(root.judge("skyrl", "global_step_2").verdict, Verdict::Whole);
    }
}

#[test]
fn another_step_in_the_state_is_damage() {
    let mut root = Root::skyrl(POLICY);
    root.says("global_step_4/trainer_state.pt", "global_step", 2);
    let seen = root.judge("skyrl", "global_step_4");
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Damaged, vec!["step_differs"]));
}

#[test]
fn names_that_the_trainer_takes_for_steps_are_reported() {
    let root = Root::skyrl(POLICY)
        .with("global_step_4.aside/data.pt")
        .with("notes/a.txt");
    let remarks = root.tracker(preset("skyrl").unwrap()).remarks();
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(
        remarks[0].contains("global_step_4.aside: SkyRL takes it for a step"),
        "{remarks:?}"
    );
    let titan = Root::default().with("x-step-9/.metadata");
    let remarks = titan.tracker(preset("torchtitan").unwrap()).remarks();
    assert!(remarks[0].contains("move it out"), "{remarks:?}");
}

#[test]
fn links_are_not_followed() {
    let mut root = Root::skyrl(POLICY);
    root.put("global_step_4/policy/model_world_size_2_rank_1.pt", EntryKind::Symlink);
    let seen = root.judge("skyrl", "global_step_4");
    assert_eq!((seen.verdict, codes(&seen)), (Verdict::Unknown, vec!["symlink"]));
    let mut linked = Root::skyrl(POLICY).without("global_step_4");
    linked.put("global_step_4", EntryKind::Symlink);
    assert_eq!(codes(&linked.judge("skyrl", "global_step_4")), ["symlink"]);
}

#[test]
fn the_order_of_facts_does_not_matter_and_what_is_gone_is_forgotten() {
    let root = Root::skyrl(BOTH);
    let of = preset("skyrl").unwrap();
    let mut backwards = of.tracker();
    for fact in root.facts().iter().rev() {
        backwards.note(fact);
    }
    let forwards = root.tracker(of);
    assert_eq!(backwards.steps(), forwards.steps());
    let id = CkptId("global_step_4".into());
    assert_eq!(backwards.pins(&id), forwards.pins(&id));
    let gone = |path: &str| FileFact {
        path: path.into(),
        kind: EntryKind::Gone,
        ..root.facts()[0].clone()
    };
    backwards.note(&gone("global_step_4"));
    assert_eq!(backwards.steps().len(), 1);
    backwards.forget(&CkptId("global_step_2".into()));
    assert_eq!(backwards.steps(), []);
}

#[test]
fn a_file_that_is_overwritten_is_one_step() {
    let mut root = Root::default().with("ckpt.pt");
    root.says("ckpt.pt", "iter_num", 40);
    let seen = root.judge("nanogpt", "ckpt.pt");
    assert_eq!((seen.verdict, seen.step.0), (Verdict::Whole, 40), "{seen:#?}");
    let lost = Resumability::Degraded {
        lost: vec![StateKind::Rng, StateKind::DataOrder],
    };
    assert_eq!(seen.resume, lost);
}

#[test]
fn a_trainer_is_recognized_by_tracker_and_parts_never_by_names_of_steps() {
    let found = |root: &Root| -> Vec<String> {
        let all = recognize(presets().iter(), &root.facts());
        all.iter()
            .map(|m| format!("{} by {}", m.declaration.name(), m.by))
            .collect()
    };
    let root = Root::skyrl(POLICY);
    assert_eq!(found(&root), ["skyrl by global_step_4"]);
    let tracked = root
        .clone()
        .with("latest_ckpt_global_step.txt")
        .without("global_step_4/policy");
    assert_eq!(found(&tracked), ["skyrl by latest_ckpt_global_step.txt"]);
    let foreign = Root::default()
        .with("global_step_4/actor/model_world_size_2_rank_0.pt")
        .with("global_step_4/data.pt");
    assert_eq!(found(&foreign), Vec::<String>::new());
    assert_eq!(found(&Root::default().with("ckpt.pt")), ["nanogpt by ckpt.pt"]);
    let both = Root::default().with("step-4/.metadata").with("step-4/__0_0.distcp");
    assert_eq!(found(&both), ["torchtitan by step-4", "dcp by step-4"]);
}

#[test]
fn commands_are_known_by_their_words() {
    let called = |command: &str| -> Vec<&str> {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        presets()
            .iter()
            .filter(|d| d.is_called(&words))
            .map(|d| d.name())
            .collect()
    };
    for (command, names) in [
        (
            "python3 -m skyrl.train.entrypoints.main_base trainer.epochs=1",
            vec!["skyrl"],
        ),
        (
            "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3",
            vec!["torchtitan"],
        ),
        (
            "python3 train.py config/train_gpt2.py --init_from=scratch",
            vec!["nanogpt"],
        ),
        ("python3 train.py --out_dir=out", vec!["nanogpt"]),
        ("python3 train.py", vec![]),
        ("python3 -m http.server", vec![]),
    ] {
        assert_eq!(called(command), names, "{command}");
    }
}

#[test]
fn words_of_a_resume_name_the_step() {
    let skyrl = preset("skyrl").unwrap();
    assert_eq!(
        skyrl.resume_words("/ckpt", "global_step_4", 4),
        [
            "trainer.resume_mode=from_path",
            "trainer.resume_path=/ckpt/global_step_4"
        ]
    );
    let titan = preset("torchtitan").unwrap();
    assert_eq!(
        titan.resume_words("/ckpt", "step-4", 4),
        ["--checkpoint.load_step", "4"]
    );
    let script = preset("dcp").unwrap();
    assert_eq!(
        script.resume_words("/ckpt", "step-4", 4),
        ["env:SUPERVISE_RESUME_FROM=/ckpt/step-4"]
    );
}

#[test]
fn lines_of_a_log_are_matched() {
    let log = "Loading the checkpoint from out/checkpoint/step-4.\n\
        step:  5  loss:  7.2  grad_norm: 1\n\
        validate step: 5  loss: 8\n\
        step:  6  loss:  7.1";
    let found = preset("torchtitan").unwrap().match_lines(log.lines());
    let of = |means: &str| found.iter().find(|l| l.means == means).unwrap();
    assert_eq!((of("step").lines, of("step").step), (2, Some(5)));
    assert_eq!((of("resumed").lines, of("resumed").step), (1, Some(4)));
    assert_eq!((of("end").lines, of("end").first.as_ref()), (0, None));
}

#[test]
fn a_tracker_may_say_more_than_a_number() {
    let text = "format = 1\n[trainer]\nname = \"mine\"\n[steps]\ndir = \"it_{step:04}\"\n[[part]]\nname = \"model\"\n\
        files = \"m.pt\"\nformat = \"torch\"\n[finish]\nby = \"tracker\"\n[tracker]\nfile = \"latest\"\n\
        text = \"it_{step:04}\"\nalso = [\"release\"]\nmissing = \"highest\"\n";
    let mine = Arc::new(declare(text).unwrap());
    let mut tracker = mine.tracker();
    assert_eq!(tracker.tracker_file(), "latest");
    for (bytes, state) in [
        (&b"it_0004\n"[..], TrackerState::Step(supervise_core::id::Step(4))),
        (b"release", TrackerState::Unused),
        (b" ", TrackerState::Empty),
        (b"4", TrackerState::Garbage("4".into())),
    ] {
        assert_eq!(tracker.read_tracker(Some(bytes)), state, "{bytes:?}");
    }
    assert_eq!(tracker.read_tracker(None), TrackerState::Missing);
}
