//! Verdict on a live set, what is kept of it, and how it comes back.

use super::stage::{Stage, files, generations, live, put_back};
use std::fs;
use supervise_core::checkpoint::{Resumability, StateKind, Verdict};
use supervise_core::event::ActErrorKind;
use supervise_core::id::Step;
use supervise_core::journal::record::DiskEdit;
use supervise_core::spec::AcceptAhead;
use supervise_tests::areal_set::Shape;

#[test]
fn a_whole_set_is_proven_and_its_copy_has_the_same_name() {
    let stage = Stage::new();
    stage.save(4);
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let c = live(&report).clone();
    assert_eq!(
        (c.verdict, c.step, c.world),
        (Verdict::Whole, Step(4), Some(2)),
        "{:?}",
        c.findings
    );
    assert_eq!(c.contents, ["model", "optimizer"]);
    assert_eq!(c.resume, Resumability::Exact);
    io_worker.keep(&c).unwrap();
    let report = io_worker.scan();
    let kept = generations(&report);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].verdict, Verdict::Whole, "{:?}", kept[0].findings);
    let save = c.id.0.as_str().strip_prefix("live.").unwrap();
    assert_eq!(kept[0].id.0, format!("step_4.{save}"));
    let copy = stage.store.join("protected").join(&kept[0].id.0);
    assert_eq!(files(&copy), files(&stage.root));
}

#[test]
fn a_plain_copy_with_other_times_stays_whole() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2]);
    stage.save(4);
    stage.forget_times();
    let report = stage.look();
    assert_eq!(live(&report).verdict, Verdict::Whole, "{:?}", live(&report).findings);
}

/// Killed after each operation of a save; with the file times put back, so that only what the files say is left.
#[test]
fn a_save_that_is_killed_after_any_of_its_operations_is_never_taken_for_whole() {
    for shape in [
        Shape::default(),
        Shape {
            engines: vec!["default", "critic"],
            ..Shape::default()
        },
    ] {
        let all = Stage::with(shape.clone()).cut(4, 0);
        for until in 1..all {
            let stage = Stage::with(shape.clone());
            stage.saved_and_kept(&[2, 4]);
            stage.cut(6, until);
            stage.forget_times();
            let report = stage.look();
            let c = live(&report);
            assert_ne!(c.verdict, Verdict::Whole, "after {until} of {all} operations: {c:?}");
            let best = generations(&report)[0];
            assert_eq!(
                (best.step, best.verdict),
                (Step(4), Verdict::Whole),
                "{:?}",
                best.findings
            );
        }
    }
}

/// Nothing was kept: what the set says of itself is all there is. The place in the data alone cannot tell that it is old, and
/// what it costs is batches that come again: said, not refused.
#[test]
fn a_killed_save_is_found_out_without_any_generation() {
    let all = Stage::new().cut(4, 0);
    for until in 1..all {
        let stage = Stage::new();
        stage.save(4);
        stage.cut(6, until);
        stage.forget_times();
        let report = stage.look();
        let c = live(&report);
        if until + 1 == all {
            assert!(c.findings.iter().any(|f| f.code == "data_behind"), "{:?}", c.findings);
        } else {
            assert_ne!(c.verdict, Verdict::Whole, "after {until} of {all} operations: {c:?}");
        }
    }
}

#[test]
fn a_place_in_the_data_that_runs_ahead_of_the_steps_may_come_again() {
    let stage = Stage::with(Shape {
        given: Some(7),
        ..Shape::default()
    });
    stage.saved_and_kept(&[2, 4]);
    stage.save(6);
    let c = live(&stage.look()).clone();
    assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    // One that was not written again is older than the step beside it.
    let all = Stage::new().cut(6, 0);
    stage.forget_times();
    stage.cut(8, all - 1);
    let c = live(&stage.look()).clone();
    assert_eq!(c.why().unwrap().code, "info_of_two_saves", "{:?}", c.findings);
}

#[test]
fn weights_that_are_newer_than_the_counters_are_named_and_taken_only_where_that_is_wanted() {
    let mut stage = Stage::new();
    stage.save(4);
    // All of the engine's state, nothing of what is kept beside it.
    stage.cut(6, 7);
    let report = stage.look();
    let c = live(&report);
    assert_eq!((c.verdict, c.step), (Verdict::Incomplete, Step(4)));
    let why = c.why().unwrap();
    assert_eq!(why.code, "ahead");
    assert!(
        why.detail.contains("6 updates") && why.detail.contains("protect.accept_ahead"),
        "{why}"
    );
    stage.spec.policy.protect.ahead = AcceptAhead::Always;
    let report = stage.look();
    let c = live(&report);
    assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    let lost = vec![StateKind::DataOrder];
    assert_eq!(c.resume, Resumability::Degraded { lost });
}

#[test]
fn parts_of_another_save_are_found_out() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    let kept: Vec<_> = generations(&stage.look())
        .iter()
        .map(|c| stage.store.join("protected").join(&c.id.0))
        .collect();
    stage.save(6);
    let older = &kept[0];
    for part in [
        "default/recover_checkpoint/__0_0.distcp",
        "default/recover_checkpoint/.metadata",
        "recover_info/step_info.json",
        "recover_info/checkpoint_info.json",
        "recover_info/dataloader_info.pkl",
        "default/recover_checkpoint",
        "recover_info",
    ] {
        let stage_files = files(&stage.root);
        for (path, bytes) in files(older) {
            if path.starts_with(part) {
                fs::write(stage.root.join(path), bytes).unwrap();
            }
        }
        stage.forget_times();
        let report = stage.look();
        assert_ne!(live(&report).verdict, Verdict::Whole, "{part} of step 4 in step 6");
        for (path, bytes) in stage_files {
            fs::write(stage.root.join(path), bytes).unwrap();
        }
        assert_eq!(live(&stage.look()).verdict, Verdict::Whole);
    }
}

#[test]
fn another_number_of_processes_would_begin_anew_and_is_refused() {
    let mut stage = Stage::new();
    stage.save(4);
    stage.say(|live| live.data_ranks = Some(1));
    let report = stage.look();
    let c = live(&report);
    assert_eq!(c.verdict, Verdict::Whole);
    assert!(
        matches!(&c.resume, Resumability::Not { why } if why.contains("2 processes")),
        "{:?}",
        c.resume
    );
}

#[test]
fn in_the_second_epoch_the_data_order_is_said_to_be_lost() {
    let stage = Stage::with(Shape {
        epoch: 4,
        ..Shape::default()
    });
    for (step, exact) in [(3, true), (4, true), (6, false)] {
        stage.save(step);
        let report = stage.look();
        let c = live(&report);
        assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
        assert_eq!(c.resume == Resumability::Exact, exact, "step {step}");
    }
}

#[test]
fn an_engine_that_was_never_saved_is_missing() {
    let stage = Stage::with(Shape {
        engines: vec!["default", "critic"],
        ..Shape::default()
    });
    stage.save(4);
    let dir = stage.root.join("critic/recover_checkpoint");
    for path in files(&dir).into_keys() {
        fs::remove_file(dir.join(path)).unwrap();
    }
    let report = stage.look();
    let c = live(&report);
    assert_eq!(c.verdict, Verdict::Incomplete);
    assert_eq!(c.why().unwrap().code, "engine_missing");
}

#[test]
fn directories_alone_are_no_set() {
    let stage = Stage::new();
    for dir in ["default/recover_checkpoint", "recover_info/recover_checkpoint"] {
        fs::create_dir_all(stage.root.join(dir)).unwrap();
    }
    let report = stage.look();
    assert!(report.steps.is_empty(), "{report:?}");
}

#[test]
fn a_generation_is_put_back_as_a_whole_and_the_torn_set_goes_aside() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    let kept = files(&stage.root);
    stage.cut(6, 3);
    let torn = files(&stage.root);
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let from = generations(&report)[0].id.clone();
    let edits = put_back(&report, &from);
    io_worker.edit(edits.clone()).unwrap();
    assert_eq!(files(&stage.root), kept);
    let report = io_worker.scan();
    assert_eq!(live(&report).verdict, Verdict::Whole, "{:?}", live(&report).findings);
    assert_eq!(live(&report).step, Step(4));
    assert_eq!(generations(&report).len(), 2, "a generation stays where it is");
    let aside: Vec<_> = stage
        .store
        .join("aside")
        .read_dir_utf8()
        .unwrap()
        .map(|e| e.unwrap().path().to_owned())
        .collect();
    let moved = aside.iter().find(|p| p.is_dir()).unwrap();
    assert_eq!(files(moved), torn);
    // The trainer overwrites what is live, in place: what was kept stays as it is.
    stage.save(6);
    assert_eq!(
        generations(&io_worker.scan())
            .iter()
            .filter(|c| c.verdict == Verdict::Whole)
            .count(),
        2
    );
}

#[test]
fn a_save_that_begins_voids_the_copy() {
    let stage = Stage::new();
    stage.save(4);
    let mut io_worker = stage.io_worker();
    let c = live(&io_worker.scan()).clone();
    stage.cut(6, 1);
    let refused = io_worker.keep(&c).unwrap_err();
    assert_eq!(refused.kind, ActErrorKind::Voided, "{refused:?}");
    assert!(!stage.store.join("staging/keep").exists());
    assert!(generations(&io_worker.scan()).is_empty());
}

#[test]
fn without_room_for_a_copy_and_the_next_save_nothing_is_copied_and_it_is_said() {
    let mut stage = Stage::new();
    stage.spec.policy.protect.reserve = u64::MAX / 4;
    stage.save(4);
    let refused = stage.io_worker().keep_live().unwrap_err();
    assert_eq!(refused.kind, ActErrorKind::NoRoom);
    assert!(refused.what.contains("no copy of step 4 is kept"), "{}", refused.what);
    assert!(refused.what.contains("protect.reserve"), "{}", refused.what);
}

#[test]
fn nothing_but_generations_is_ever_deleted() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2]);
    let mut io_worker = stage.io_worker();
    for name in ["../aside", "live.0", "step_1/x"] {
        let ask = supervise_host::io_worker::IoQuestion::Prune {
            steps: vec![supervise_core::checkpoint::CkptId(name.into())],
        };
        assert!(
            io_worker.0.ask(ask, supervise_tests::harness::PATIENCE).is_err(),
            "{name}"
        );
    }
    let edits = vec![DiskEdit::RemoveTracker];
    io_worker.edit(edits).unwrap();
    assert_eq!(generations(&io_worker.scan()).len(), 1);
}

/// The values stored at a save win in AReaL: a frequency that was changed since counts only if it is changed there too.
#[test]
fn a_changed_frequency_is_written_beside_the_live_set() {
    let mut stage = Stage::new();
    stage.saved_and_kept(&[4]);
    let wanted = supervise_trainers::areal::Frequencies {
        steps: Some(5),
        ..Default::default()
    };
    let name = "checkpoint_info.json";
    stage.say(|live| live.frequencies = [(name.to_owned(), wanted)].into());
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let before = live(&report).clone();
    let said = before.findings.iter().find(|f| f.code == "frequency_stored").unwrap();
    assert!(
        said.detail.contains("every 1 steps") && said.detail.contains("every 5 steps"),
        "{said}"
    );
    assert_eq!(before.verdict, Verdict::Whole);
    io_worker.edit(vec![DiskEdit::SetFrequencies]).unwrap();
    let report = io_worker.scan();
    let after = live(&report);
    assert_eq!(
        (after.verdict, &after.id),
        (Verdict::Whole, &before.id),
        "{:?}",
        after.findings
    );
    assert!(
        after.findings.iter().all(|f| f.code != "frequency_stored"),
        "{:?}",
        after.findings
    );
    let text = fs::read_to_string(stage.root.join("recover_info").join(name)).unwrap();
    assert!(text.contains("\"frequency_steps\": 5"), "{text}");
}
