//! A save that is cut short, by the moment it was cut at.

use crate::stage::{Stage, files, generations, live, put_back};
use supervise_core::checkpoint::Verdict;
use supervise_core::id::Step;
use supervise_tests::areal_set::Shape;

/// Kept at steps 2 and 4; the save of step 6 was cut short after so many operations on the disk.
fn cut(until: usize) -> Stage {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    stage.cut(6, until);
    stage
}

/// The live set is not whole, for one of these reasons, with its times and without; step 4 comes back as a whole.
#[track_caller]
fn is_found_out(stage: &Stage, codes: &[&str]) {
    for without_times in [false, true] {
        if without_times {
            stage.forget_times();
        }
        let report = stage.look();
        let c = live(&report);
        assert_ne!(c.verdict, Verdict::Whole, "{:?}", c.findings);
        let why = c.why().unwrap();
        assert!(codes.contains(&why.code.as_ref()), "{codes:?}: {:?}", c.findings);
    }
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let best = generations(&report)[0].clone();
    assert_eq!((best.step, best.verdict), (Step(4), Verdict::Whole));
    io_worker.edit(put_back(&report, &best.id)).unwrap();
    let report = io_worker.scan();
    assert_eq!((live(&report).step, live(&report).verdict), (Step(4), Verdict::Whole));
}

/// [crash.step] Killed in mid-step, nothing was being written: the last save is whole, and it goes on from there | The same; what a crash can cost is said before
#[test]
fn in_mid_step() {
    let stage = cut(0);
    let report = stage.look();
    assert_eq!((live(&report).step, live(&report).verdict), (Step(4), Verdict::Whole));
}

/// [crash.shard_torn] A shard is written over in place: cut short, the only checkpoint is destroyed | Not whole; the copy of the last proven save is put back, all of it
#[test]
fn in_a_shard() {
    is_found_out(&cut(1), &["empty_file"]);
    is_found_out(&cut(3), &["empty_file", "mixed_generations"]);
}

/// [crash.mixture] Some shards are of this save, some of the one before, and the old `.metadata` fits both: loaded in silence | What the optimizer counts tells them apart, also where file times do not; a shard that counts nothing is compared with the copy of its save
#[test]
fn between_two_shards() {
    is_found_out(&cut(2), &["mixed_steps", "mixed_generations"]);
    let stage = silent();
    stage.saved_and_kept(&[2, 4]);
    stage.cut(6, 2);
    is_found_out(&stage, &["mixed_generations"]);
}

/// [crash.mixture_unknown] The same, and nothing is known of the save before: loaded in silence | `.metadata` is written last: a shard that is newer belongs to a save that was cut short
#[test]
fn between_two_shards_that_nobody_saw() {
    let stage = silent();
    stage.save(4);
    stage.forget_times();
    stage.cut(6, 2);
    let report = stage.look();
    let c = live(&report);
    assert_eq!(c.verdict, Verdict::Incomplete, "{:?}", c.findings);
    assert_eq!(c.why().unwrap().code, "shard_after_metadata");
    stage.forget_times();
    assert_eq!(
        live(&stage.look()).verdict,
        Verdict::Whole,
        "nothing is left that could tell"
    );
}

/// What torch writes: what all ranks have, the optimizer's count among it, stands in the shard of one rank only.
fn silent() -> Stage {
    Stage::with(Shape {
        silent: 1,
        ..Shape::default()
    })
}

/// [crash.all_shards, disk.old_metadata_stays] All shards are new, `.metadata` and counters are old: the steps between are trained twice | Told by what the optimizer counts; not resumed from
#[test]
fn before_the_metadata() {
    is_found_out(&cut(4), &["ahead"]);
    is_found_out(&cut(5), &["ahead", "dcp_unfinished"]);
}

/// [crash.unlinked, rule.metadata] Between unlink and rename there is no `.metadata`: no launch loads it | Incomplete, and the last proven save is put back
#[test]
fn between_unlink_and_rename() {
    is_found_out(&cut(6), &["dcp_metadata_missing"]);
}

/// [crash.ahead] The checkpoint is whole and newer than `recover_info`: steps are trained twice, on newer weights | Named; a proven copy is taken in its place. Where there is none, it asks (`protect.accept_ahead`)
#[test]
fn before_the_counters() {
    is_found_out(&cut(7), &["ahead"]);
}

/// [crash.info_torn, resume.scratch_in_silence] A file of `recover_info` is cut short: training begins anew with exit code 0, and writes over the good weights | Never launched like this: the last proven save is put back first
#[test]
fn in_the_counters() {
    for text in ["{\"epoch\":", ""] {
        let stage = cut(7);
        std::fs::write(stage.root.join("recover_info/step_info.json"), text).unwrap();
        is_found_out(&stage, &["json_truncated", "empty_file"]);
    }
}

/// [crash.info_mixed] Some files of `recover_info` are of this save, some of the one before: data comes twice, in silence | What they count is compared, file by file, and with the copies
#[test]
fn between_two_files_of_counters() {
    let all = Stage::new().cut(6, 0);
    for until in 8..all {
        is_found_out(&cut(until), &["info_of_two_saves"]);
    }
}

/// [crash.data_behind] Only the place in the data is of the save before: the batches since come again, in silence | It is written last: one that is older than the step is not taken. Without times, what it counts is told as a warning
#[test]
fn before_the_place_in_the_data() {
    let all = Stage::new().cut(6, 0);
    let stage = Stage::new();
    stage.save(4);
    stage.forget_times();
    stage.cut(6, all - 1);
    let c = live(&stage.look()).clone();
    assert_eq!(c.verdict, Verdict::Incomplete, "{:?}", c.findings);
    assert_eq!(c.why().unwrap().code, "info_of_two_saves");
    stage.forget_times();
    let c = live(&stage.look()).clone();
    assert!(c.findings.iter().any(|f| f.code == "data_behind"), "{:?}", c.findings);
}

/// [crash.critic_behind] The actor is of this save, the critic of the one before | Each engine is compared for itself
#[test]
fn between_actor_and_critic() {
    let stage = Stage::with(Shape {
        engines: vec!["default", "critic"],
        ..Shape::default()
    });
    stage.saved_and_kept(&[2, 4]);
    stage.cut(6, 7);
    is_found_out(&stage, &["ahead"]);
}

/// [crash.disk_full] A full disk in a save takes the only checkpoint with it | The copies are files of their own, and stay; without room for one it is said, and no half of one is kept
#[test]
fn a_full_disk() {
    let stage = cut(3);
    let kept = files(&stage.store.join("protected"));
    stage.cut(8, 5);
    assert_eq!(files(&stage.store.join("protected")), kept);
    is_found_out(&stage, &["ahead", "empty_file", "dcp_unfinished"]);
}
