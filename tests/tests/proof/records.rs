//! State that is kept from start to start, and its fate when it is not as it was written.

use super::stage::{Stage, WEIGHTS, codes, files, of, tick};
use std::fs;
use supervise_core::checkpoint::{CkptId, Depth, Verdict};
use supervise_core::journal::record::DiskEdit;
use supervise_host::io_worker::IoQuestion;

/// Steps 2 and 4, whole, proven to every byte, written down.
fn proven() -> Stage {
    let stage = Stage::new();
    stage.save(2, 1);
    stage.save(4, 2);
    tick();
    let report = stage.prove(Depth::Full);
    assert!(report.steps.iter().all(|c| c.is_proven(Depth::Full)), "{report:?}");
    stage
}

/// How much an I/O worker reads for a proof of every byte that comes out whole.
#[track_caller]
fn reads(stage: &Stage) -> u64 {
    let mut io_worker = stage.io_worker();
    let before = io_worker.read();
    let report = io_worker.scan(Depth::Full);
    let read = io_worker.read() - before;
    assert!(report.steps.iter().all(|c| c.is_proven(Depth::Full)), "{report:?}");
    io_worker.end();
    read
}

#[test]
fn what_nobody_touched_is_not_read_again() {
    let stage = Stage::new();
    stage.save(2, 1);
    stage.save(4, 2);
    tick();
    assert!(reads(&stage) > 2 * WEIGHTS);
    assert!(reads(&stage) < WEIGHTS / 4);
}

#[test]
fn a_look_at_the_structure_is_no_proof_of_bytes() {
    let stage = Stage::new();
    stage.save(2, 1);
    tick();
    let report = stage.prove(Depth::Structure);
    assert_eq!(of(&report, 2).proven, Some(Depth::Structure));
    assert!(reads(&stage) > WEIGHTS);
    assert!(reads(&stage) < WEIGHTS / 4);
}

#[test]
fn only_a_step_that_was_touched_is_read_again() {
    let stage = proven();
    // The same bytes in another file: restored, say.
    let shard = stage.step(4).join("actor/model_world_size_2_rank_1.pt");
    let bytes = fs::read(&shard).unwrap();
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    tick();
    let read = reads(&stage);
    // All of it: who wrote the one file is not known.
    assert!(read > WEIGHTS && read < WEIGHTS * 3 / 2, "{read}");
    assert!(reads(&stage) < WEIGHTS / 4);
}

#[test]
fn a_record_that_was_damaged_is_not_believed_and_is_written_anew() {
    let stage = proven();
    let good = fs::read(stage.record(4)).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let foreign = fs::read(stage.record(2)).unwrap();
    let newer = String::from_utf8(good.clone())
        .unwrap()
        .replacen("\"v\":1", "\"v\":9", 1);
    for bad in [
        flipped,
        good[..good.len() / 2].to_vec(),
        foreign,
        newer.into_bytes(),
        Vec::new(),
    ] {
        fs::write(stage.record(4), bad).unwrap();
        let report = stage.prove(Depth::Full);
        assert!(of(&report, 4).is_proven(Depth::Full), "{report:?}");
        let told = |r: &String| r.contains("global_step_4.jsonl");
        assert!(report.remarks.iter().any(told), "{:?}", report.remarks);
        let report = stage.prove(Depth::Full);
        assert!(!report.remarks.iter().any(told), "{:?}", report.remarks);
        assert!(reads(&stage) < WEIGHTS / 4);
    }
}

#[test]
fn a_io_worker_that_is_killed_before_it_wrote_leaves_nothing_half() {
    let stage = Stage::new();
    stage.save(2, 1);
    tick();
    let mut io_worker = stage.io_worker();
    assert!(of(&io_worker.scan(Depth::Full), 2).is_proven(Depth::Full));
    // Killed as it goes, whatever it has written by then; and in the midst of writing.
    drop(io_worker);
    fs::create_dir_all(stage.record(2).parent().unwrap()).unwrap();
    fs::write(format!("{}.supervise-tmp", stage.record(2)), "{\"v\":1").unwrap();
    let report = stage.prove(Depth::Full);
    assert!(of(&report, 2).is_proven(Depth::Full));
    assert!(report.remarks.is_empty(), "{:?}", report.remarks);
    assert!(reads(&stage) < WEIGHTS / 4);
}

#[test]
fn a_proof_does_not_fail_where_it_cannot_be_kept() {
    let stage = Stage::new();
    stage.save(2, 1);
    fs::create_dir(&stage.run_dir).unwrap();
    fs::write(stage.run_dir.join("verified"), "in the way").unwrap();
    for _ in 0..2 {
        let report = stage.prove(Depth::Full);
        assert!(of(&report, 2).is_proven(Depth::Full), "{report:?}");
    }
    assert_eq!(
        fs::read_to_string(stage.run_dir.join("verified")).unwrap(),
        "in the way"
    );
}

#[test]
fn a_record_goes_aside_with_its_step_and_accuses_nobody_who_comes_after() {
    let stage = proven();
    let record = fs::read(stage.record(4)).unwrap();
    let mut io_worker = stage.io_worker();
    io_worker.edit(vec![DiskEdit::MoveAside {
        from: CkptId("global_step_4".into()),
        whole: true,
        foreign: false,
        others: false,
        why: "for the test".into(),
    }]);
    assert!(!stage.record(4).exists());
    let beside = stage.run_dir.join("aside/global_step_4.test.verified.jsonl");
    assert_eq!(fs::read(beside).unwrap(), record);
    stage.save(4, 77);
    let report = io_worker.scan(Depth::Full);
    assert!(of(&report, 4).is_proven(Depth::Full), "{report:?}");
    assert_eq!(codes(of(&report, 4)), [""; 0]);
    io_worker.end();
}

#[test]
fn a_record_goes_when_its_step_is_gone_but_not_with_a_mount() {
    let stage = proven();
    let mut io_worker = stage.io_worker();
    io_worker.ask(IoQuestion::Prune {
        steps: vec![CkptId("global_step_2".into())],
    });
    assert!(!stage.record(2).exists() && stage.record(4).exists());
    io_worker.end();
    // An empty root may be one that is not mounted.
    let away = stage.path("away");
    fs::rename(stage.step(4), &away).unwrap();
    fs::remove_file(stage.root.join("latest_checkpointed_iteration.txt")).unwrap();
    stage.prove(Depth::Structure);
    assert!(stage.record(4).exists());
    stage.save(6, 3);
    tick();
    stage.prove(Depth::Structure);
    assert!(!stage.record(4).exists() && stage.record(6).exists());
}

#[test]
fn a_step_that_is_trained_again_is_proven_again() {
    let stage = proven();
    tick();
    stage.save(4, 99);
    tick();
    let report = stage.prove(Depth::Full);
    let step = of(&report, 4);
    assert!(step.is_proven(Depth::Full), "{step:?}");
    assert!(codes(step).contains(&"rewritten"), "{step:?}");
    // That was news once.
    let report = stage.prove(Depth::Full);
    assert_eq!(codes(of(&report, 4)), [""; 0]);
}

#[test]
fn a_record_is_for_its_owner_alone() {
    use std::os::unix::fs::MetadataExt;
    let stage = proven();
    for file in files(&stage.run_dir.join("verified")) {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600, "{file}");
    }
}

#[test]
fn a_step_that_is_not_whole_is_not_written_down() {
    let stage = Stage::new();
    stage.begin(2, 1);
    let report = stage.prove(Depth::Full);
    assert_eq!(of(&report, 2).verdict, Verdict::Incomplete, "{report:?}");
    assert!(!stage.record(2).exists());
}
