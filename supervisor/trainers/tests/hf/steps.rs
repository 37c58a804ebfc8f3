//! Verdict on a step, and what would be lost by a resume from it.

use crate::disk::{Disk, fact, why};
use supervise_core::checkpoint::{CkptId, Depth, EntryKind, Resumability, StateKind, TrainerNote, Verdict};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;
use supervise_trainers::hf::HF;
use supervise_trainers::{ExpectedLayout, registry};

const NEWEST: &str = "checkpoint-4";

fn at(name: &str) -> String {
    format!("{NEWEST}/{name}")
}

#[test]
fn genuine_steps_are_whole_proven_and_exact() {
    let seen = Disk::genuine().judge(&ExpectedLayout::default());
    assert_eq!(seen.iter().map(|c| c.step).collect::<Vec<_>>(), [Step(4), Step(2)]);
    for c in seen {
        assert_eq!(
            (c.verdict, c.proven),
            (Verdict::Whole, Some(Depth::Structure)),
            "{:?}",
            c.findings
        );
        assert_eq!((c.layout.as_ref(), c.world, c.files), ("hf_trainer", Some(2), 9));
        assert_eq!(c.resume, Resumability::Exact);
        assert_eq!(c.contents, ["model", "optimizer", "schedule", "rng"]);
        assert_eq!((c.part, c.unfamiliar.len()), (None, 0));
    }
    // A pickle that no resume loads is not opened.
    let tracker = Disk::genuine().tracker(&ExpectedLayout::default());
    let needs = tracker.needs(&CkptId("checkpoint-4".into()), Depth::Full);
    assert!(!needs.is_empty());
    assert!(
        needs
            .iter()
            .all(|need| need.path.file_name() != Some("training_args.bin"))
    );
}

#[test]
fn the_trainer_keeps_no_pointer() {
    let mut tracker = Disk::genuine().tracker(&ExpectedLayout::default());
    assert_eq!(tracker.tracker_file(), "");
    assert_eq!(tracker.read_tracker(None), TrackerState::Unused);
}

#[test]
fn what_a_step_was_saved_with_has_to_be_there() {
    for (name, code) in [
        ("trainer_state.json", "unfinished"),
        ("model.safetensors", "weights_missing"),
        ("optimizer.pt", "optimizer_missing"),
        ("scheduler.pt", "schedule_missing"),
        // Not written yet, where another rank was faster.
        ("rng_state_1.pth", "rng_missing"),
        ("rng_state_0.pth", "rng_missing"),
    ] {
        let c = Disk::genuine().without(&at(name)).newest();
        assert_eq!(c.verdict, Verdict::Incomplete, "{name}: {:?}", c.findings);
        assert_eq!(why(&c), [code], "{name}");
        assert_eq!(c.proven, None);
    }
    // Nothing of a resume reads these.
    for name in ["training_args.bin", "generation_config.json"] {
        let c = Disk::genuine().without(&at(name)).newest();
        assert_eq!((c.verdict, c.proven.is_some()), (Verdict::Whole, true), "{name}");
    }
}

#[test]
fn what_is_torn_is_found_out() {
    let torn = |name: &str, keep: usize| {
        let cut = |mut bytes: Vec<u8>| {
            bytes.truncate(keep);
            bytes
        };
        Disk::genuine().change(&at(name), cut).newest()
    };
    for (name, keep) in [
        ("trainer_state.json", 300),
        ("trainer_state.json", 0),
        ("model.safetensors", 900),
        ("optimizer.pt", 5000),
        ("scheduler.pt", 700),
        ("rng_state_1.pth", 9000),
    ] {
        let c = torn(name, keep);
        assert!(
            matches!(c.verdict, Verdict::Incomplete | Verdict::Damaged),
            "{name}: {:?}",
            c.findings
        );
        let file = c.why().unwrap().file.clone().unwrap();
        assert_eq!(file, name);
    }
}

#[test]
fn a_file_of_another_step_or_rank_is_damage() {
    let genuine = Disk::genuine();
    let other = genuine.files[camino::Utf8Path::new("checkpoint-2/trainer_state.json")].clone();
    let c = genuine.clone().put(&at("trainer_state.json"), &other).newest();
    assert_eq!(
        (c.verdict, why(&c)),
        (Verdict::Damaged, vec!["step_differs".to_owned()])
    );
    let rank0 = genuine.files[camino::Utf8Path::new("checkpoint-4/rng_state_0.pth")].clone();
    let c = genuine.put(&at("rng_state_1.pth"), &rank0).newest();
    assert_eq!((c.verdict, why(&c)), (Verdict::Damaged, vec!["misplaced".to_owned()]));
}

#[test]
fn what_a_state_says_of_its_run_is_noted() {
    let noted = |more: &str| {
        let changed = Disk::genuine().change(&at("trainer_state.json"), |bytes| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
            let more: serde_json::Value = serde_json::from_str(more).unwrap();
            for (key, value) in more.as_object().unwrap() {
                state[key] = value.clone();
            }
            serde_json::to_vec(&state).unwrap()
        });
        let newest = changed.newest();
        assert_eq!(newest.verdict, Verdict::Whole, "{:?}", newest.findings);
        newest.trainer_note
    };
    let note = |best: Option<u64>, ends| {
        let best = best.map(Step);
        Some(TrainerNote {
            best,
            ends,
            save_every: Some(2),
            planned: Some(Step(4)),
        })
    };
    let stops = |is: bool| {
        format!(r#"{{"stateful_callbacks": {{"TrainerControl": {{"args": {{"should_training_stop": {is}}}}}}}}}"#)
    };
    assert_eq!(noted(&stops(true)), note(None, true));
    assert_eq!(noted(&stops(false)), note(None, false));
    for (state, best) in [
        (
            r#"{"best_global_step": 2, "best_model_checkpoint": "out/checkpoint-2"}"#,
            Some(2),
        ),
        (
            r#"{"best_global_step": 3, "best_model_checkpoint": "/a b/checkpoint-2/"}"#,
            Some(2),
        ),
        (r#"{"best_global_step": 2}"#, Some(2)),
        (r#"{"best_model_checkpoint": ["out/checkpoint-2"]}"#, None),
        (r#"{"best_global_step": "2", "best_model_checkpoint": null}"#, None),
    ] {
        let state = format!(r#"{{"stateful_callbacks": [], {}"#, &state[1..]);
        assert_eq!(noted(&state), note(best, false), "{state}");
    }
}

#[test]
fn what_trainer_goes_on_without_in_silence_is_a_part_that_is_asked_for() {
    let disk = Disk::genuine().change(&at("optimizer.pt"), |bytes| bytes[..5000].to_vec());
    let part = disk.newest().part.unwrap();
    assert_eq!(part.lost, [StateKind::Optimizer, StateKind::LrSchedule]);
    // Both go: with one of them there it would be loaded, or fail.
    assert_eq!(part.aside, ["optimizer.pt", "scheduler.pt"]);
    assert_eq!(part.proven, Some(Depth::Structure));
    let part = Disk::genuine().without(&at("rng_state_1.pth")).newest().part.unwrap();
    assert_eq!(part.lost, [StateKind::Rng]);
    for name in ["trainer_state.json", "model.safetensors"] {
        assert_eq!(Disk::genuine().without(&at(name)).newest().part, None, "{name}");
    }
}

#[test]
fn a_run_that_saves_weights_only_is_whole_and_loses_the_rest() {
    let mut disk = Disk::genuine();
    let kept = ["model.safetensors", "trainer_state.json", "config.json"];
    disk.files.retain(|path, _| kept.iter().any(|k| path.ends_with(k)));
    let c = disk.newest();
    assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    let lost = vec![StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng];
    assert_eq!(c.resume, Resumability::Degraded { lost });
    // Beside a step that has an optimizer it is no such save.
    let mut disk = Disk::genuine();
    disk.files
        .retain(|path, _| path.starts_with("checkpoint-2") || kept.iter().any(|k| path.ends_with(k)));
    assert_eq!(disk.newest().verdict, Verdict::Incomplete);
}

#[test]
fn another_number_of_ranks_costs_random_states_and_the_order_of_data() {
    for (world, lost) in [
        (Some(2), None),
        (None, None),
        (Some(4), Some(vec![StateKind::Rng, StateKind::DataOrder])),
    ] {
        let expect = ExpectedLayout {
            world,
            ..ExpectedLayout::default()
        };
        let c = Disk::genuine().judge(&expect).remove(0);
        assert_eq!(c.verdict, Verdict::Whole);
        let resume = lost.map_or(Resumability::Exact, |lost| Resumability::Degraded { lost });
        assert_eq!(c.resume, resume, "{world:?}");
    }
}

#[test]
fn fsdp_saves_are_judged_by_their_tables() {
    let dcp = Disk::of("torch_dcp_fsdp2_w2");
    let disk = Disk::genuine()
        .without(&at("model.safetensors"))
        .without(&at("optimizer.pt"))
        .with(&dcp, "step_2", &at("pytorch_model_fsdp_0"))
        .with(&dcp, "step_2", &at("optimizer_0"));
    let c = disk.newest();
    assert_eq!(
        (c.verdict, c.layout.as_ref()),
        (Verdict::Whole, "hf_fsdp"),
        "{:?}",
        c.findings
    );
    assert_eq!(c.proven, Some(Depth::Structure));
    for lost in ["optimizer_0/__1_0.distcp", "pytorch_model_fsdp_0/.metadata"] {
        let c = disk.clone().without(&at(lost)).newest();
        assert_eq!(c.verdict, Verdict::Incomplete, "{lost}: {:?}", c.findings);
        let named = c
            .findings
            .iter()
            .any(|f| f.file.as_ref().is_some_and(|file| file == lost));
        assert!(named, "{lost}: {:?}", c.findings);
    }
    let ranks = Disk::genuine()
        .put(&at("pytorch_model_fsdp_0_rank0.bin"), b"x")
        .newest();
    assert_eq!(ranks.verdict, Verdict::Unknown);
}

#[test]
fn deepspeed_saves_have_a_pointer_and_a_file_for_each_rank() {
    let state = |disk: Disk, name: &str| disk.put(&at(&format!("global_step4/{name}")), b"not looked into");
    let mut disk = Disk::genuine()
        .without(&at("optimizer.pt"))
        .put(&at("latest"), b"global_step4");
    disk = state(disk, "mp_rank_00_model_states.pt");
    disk = state(disk, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    let by_names = |disk: &Disk| {
        let mut tracker = disk.tracker(&ExpectedLayout::default());
        let (id, _) = tracker.steps().remove(0);
        tracker.judge(&id, Depth::Structure, &std::collections::BTreeMap::new())
    };
    let c = by_names(&disk);
    assert_eq!(
        (why(&c), c.layout.as_ref()),
        (vec!["optimizer_missing".to_owned()], "hf_deepspeed")
    );
    let disk = state(disk, "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
    let c = by_names(&disk);
    assert_eq!((c.verdict, c.proven), (Verdict::Whole, None), "{:?}", c.findings);
    for (run, fits) in [(2, true), (8, false), (1, false)] {
        let expect = ExpectedLayout {
            world: Some(run),
            ..ExpectedLayout::default()
        };
        let mut tracker = disk.tracker(&expect);
        let (id, _) = tracker.steps().remove(0);
        let judged = tracker.judge(&id, Depth::Structure, &std::collections::BTreeMap::new());
        let both = format!(
            "2 ranks saved it with DeepSpeed, which loads ZeRO's states with no other number, and the run has {run}"
        );
        match &judged.resume {
            Resumability::Not { why } => assert!(!fits && why.contains(&both), "{why}"),
            other => assert!(fits, "{run}: {other:?}"),
        }
    }
    assert_eq!(why(&by_names(&disk.clone().without(&at("latest")))), ["latest_missing"]);
    let c = by_names(&disk.without(&at("global_step4/mp_rank_00_model_states.pt")));
    assert_eq!(why(&c), ["weights_missing"]);
}

#[test]
fn a_step_that_was_just_begun_is_no_damage_and_names_alone_are_no_step() {
    let mut tracker = Disk::genuine().tracker(&ExpectedLayout::default());
    tracker.note(&fact("checkpoint-6", EntryKind::Dir, 0));
    tracker.note(&fact("checkpoint-7/notes.txt", EntryKind::File, 9));
    tracker.note(&fact("checkpoint-8", EntryKind::Symlink, 0));
    let mut verdicts = Vec::new();
    for (id, _) in tracker.steps().into_iter().take(3) {
        verdicts.push(
            tracker
                .judge(&id, Depth::Structure, &std::collections::BTreeMap::new())
                .verdict,
        );
    }
    assert_eq!(verdicts, [Verdict::Unknown, Verdict::Unknown, Verdict::Incomplete]);
    tracker.note(&fact("checkpoint-6", EntryKind::Gone, 0));
    assert_eq!(tracker.steps().len(), 4);
    tracker.note(&fact("checkpoint-4.bak/x", EntryKind::File, 0));
    let remarks = tracker.remarks().join("\n");
    assert!(remarks.contains("save_total_limit counts"), "{remarks}");
}

#[test]
fn leading_zeros_make_no_step_of_ours_and_are_said() {
    let genuine = Disk::genuine();
    let mut tracker = genuine
        .clone()
        .with(&genuine, NEWEST, "checkpoint-0004")
        .with(&genuine, NEWEST, "checkpoint-0009")
        .tracker(&ExpectedLayout::default());
    // No directory: `Trainer` passes it over too.
    tracker.note(&fact("checkpoint-0012", EntryKind::File, 3));
    let steps = tracker.steps();
    let names: Vec<&str> = steps.iter().map(|(id, _)| id.0.as_str()).collect();
    assert_eq!(names, ["checkpoint-0009", NEWEST, "checkpoint-0004", "checkpoint-2"]);
    assert_eq!(steps.iter().map(|(_, step)| step.0).collect::<Vec<_>>(), [9, 4, 4, 2]);
    for (at, right) in [(0, "checkpoint-9"), (2, NEWEST)] {
        let id = &steps[at].0;
        assert_eq!(tracker.needs(id, Depth::Full).len(), 0);
        let c = tracker.judge(id, Depth::Full, &std::collections::BTreeMap::new());
        assert_eq!((c.verdict, why(&c)), (Verdict::Unknown, vec!["padded_name".to_owned()]));
        assert!(
            c.findings[0].detail.contains(&format!("rename it to {right} ")),
            "{c:?}"
        );
    }
    tracker.forget(&steps[0].0);
    tracker.note(&fact("checkpoint-0004/optimizer.pt", EntryKind::Gone, 0));
    assert_eq!(tracker.steps().len(), 3);
    tracker.note(&fact("checkpoint-0004", EntryKind::Gone, 0));
    assert_eq!(tracker.steps().len(), 2);
}

#[test]
fn a_directory_is_known_by_what_is_in_it() {
    let names = ["trainer_state.json".to_owned(), "model.safetensors".to_owned()];
    let (found, prefix) = registry::of_step("best", &names).unwrap();
    assert_eq!((found.kind(), prefix), (HF, "checkpoint-"));
    let weights = ["model.safetensors".to_owned()];
    assert!(registry::of_step("best", &weights).is_none());
    assert!(registry::of_step("checkpoint-4", &weights).is_some());
}
