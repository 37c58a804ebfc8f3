//! Bytes that are not the ones that were proven, and others that are, whatever the times say.

use super::stage::{Stage, codes, copy, files, of, set_time, tick, time};
use camino::Utf8Path;
use std::fs;
use std::time::Duration;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_host::io_worker::{Scrub, scrub};
use supervise_trainers::{ExpectedLayout, adapter};

fn proven(depth: Depth) -> Stage {
    let stage = Stage::new();
    stage.save(2, 1);
    tick();
    assert!(of(&stage.prove(depth), 2).is_proven(depth));
    stage
}

fn scrubbed(stage: &Stage) -> Scrub {
    let adapter = adapter(supervise_trainers::verl::PPO);
    scrub(
        &stage.root,
        &stage.run_dir,
        adapter,
        &ExpectedLayout::default(),
        &mut |_| true,
    )
    .unwrap()
}

/// Changes one byte that no checksum inside the file covers, and puts the time back.
fn rot(file: &Utf8Path) {
    let (mut bytes, at) = (fs::read(file).unwrap(), time(file));
    let padding = bytes.windows(4).position(|w| w == b"ZZZZ").unwrap();
    bytes[padding] = b'Y';
    fs::write(file, bytes).unwrap();
    set_time(file, at);
}

#[test]
fn a_scrub_of_what_is_as_it_was_finds_nothing() {
    let stage = proven(Depth::Full);
    stage.save(4, 2);
    let found = scrubbed(&stage);
    assert_eq!(found.unrecorded.len(), 1, "{found:?}");
    let step = &found.steps[0];
    assert!(step.summary.is_proven(Depth::Full), "{step:?}");
    assert_eq!(codes(&step.summary), [""; 0]);
    assert_eq!((step.compared, step.missing.len()), (files(&stage.step(2)).len(), 0));
}

#[test]
fn rot_is_found_by_a_scrub_and_by_the_next_start() {
    let stage = proven(Depth::Full);
    let shard = stage.step(2).join("actor/model_world_size_2_rank_0.pt");
    rot(&shard);
    let found = scrubbed(&stage);
    let summary = &found.steps[0].summary;
    assert_eq!(summary.verdict, Verdict::Damaged, "{summary:?}");
    let rotten = summary.findings.iter().find(|f| f.code == "rot").unwrap();
    assert!(shard.ends_with(rotten.file.as_ref().unwrap()), "{rotten}");
    // A scrub writes nothing, so the record still knows better.
    for depth in [Depth::Structure, Depth::Full] {
        let report = stage.prove(depth);
        assert_eq!(of(&report, 2).verdict, Verdict::Damaged, "{report:?}");
        assert!(codes(of(&report, 2)).contains(&"rot"), "{report:?}");
    }
}

#[test]
fn an_older_step_of_the_same_names_is_not_what_was_proven() {
    for depth in [Depth::Full, Depth::Structure] {
        let stage = Stage::new();
        stage.save(2, 1);
        let old = stage.path("backup");
        copy(&stage.step(2), &old);
        tick();
        stage.save(2, 5);
        tick();
        assert!(of(&stage.prove(depth), 2).is_proven(depth));
        fs::remove_dir_all(stage.step(2)).unwrap();
        copy(&old, &stage.step(2));
        tick();
        let report = stage.prove(Depth::Structure);
        let step = of(&report, 2);
        assert_eq!(step.verdict, Verdict::Damaged, "{step:?}");
        assert!(codes(step).contains(&"not_what_was_proven"), "{step:?}");
    }
}

#[test]
fn one_older_shard_among_the_others_is_found() {
    let stage = Stage::new();
    stage.save(2, 1);
    let old = stage.path("backup");
    copy(&stage.step(2), &old);
    tick();
    stage.save(2, 5);
    tick();
    stage.prove(Depth::Full);
    let name = "actor/optim_world_size_2_rank_1.pt";
    fs::copy(old.join(name), stage.step(2).join(name)).unwrap();
    set_time(&stage.step(2).join(name), time(&old.join(name)));
    let report = stage.prove(Depth::Structure);
    let step = of(&report, 2);
    assert_eq!(step.verdict, Verdict::Damaged, "{step:?}");
    let wrong = step.findings.iter().filter(|f| f.code == "not_what_was_proven");
    assert_eq!(wrong.count(), 1, "{step:?}");
}

#[test]
fn a_restored_copy_with_any_times_is_whole() {
    let stage = proven(Depth::Full);
    let copied = stage.path("copy");
    copy(&stage.step(2), &copied);
    fs::remove_dir_all(stage.step(2)).unwrap();
    copy(&copied, &stage.step(2));
    for (n, file) in files(&stage.step(2)).iter().enumerate() {
        let by = Duration::from_secs(3600 * n as u64);
        let at = time(file);
        set_time(file, if n % 2 == 0 { at - by } else { at + by });
    }
    for depth in [Depth::Structure, Depth::Full] {
        let report = stage.prove(depth);
        assert!(of(&report, 2).is_proven(depth), "{report:?}");
        assert!(!codes(of(&report, 2)).contains(&"not_what_was_proven"), "{report:?}");
    }
    let found = scrubbed(&stage);
    assert!(found.steps[0].summary.is_proven(Depth::Full), "{found:?}");
}

/// Two steps, both proven.
fn two(depth: Depth) -> Stage {
    let stage = Stage::new();
    stage.save(2, 1);
    stage.save(4, 2);
    tick();
    let report = stage.prove(depth);
    assert!(of(&report, 2).is_proven(depth) && of(&report, 4).is_proven(depth));
    stage
}

/// A trainer that saves a step again writes all of it: a mixture is no state of any step, whatever the times say.
#[test]
fn a_proven_step_of_which_a_part_was_written_anew_is_damaged() {
    for part in ["actor/model_world_size_2_rank_1.pt", "data.pt"] {
        let stage = two(Depth::Full);
        fs::copy(stage.step(2).join(part), stage.step(4).join(part)).unwrap();
        let report = stage.prove(Depth::Full);
        let step = of(&report, 4);
        assert_eq!(step.verdict, Verdict::Damaged, "{part}: {:?}", step.findings);
        assert!(
            codes(step).contains(&"rewritten_in_part"),
            "{part}: {:?}",
            step.findings
        );
        assert!(of(&report, 2).is_proven(Depth::Full));
    }
}

/// A report without a proof knows no bytes, but torch's own digest of them.
#[test]
fn an_older_shard_is_found_where_only_the_structure_was_proven() {
    let stage = two(Depth::Structure);
    let part = "actor/model_world_size_2_rank_1.pt";
    let (from, to) = (stage.step(2).join(part), stage.step(4).join(part));
    let at = time(&to);
    fs::copy(&from, &to).unwrap();
    set_time(&to, at);
    let report = stage.prove(Depth::Full);
    let step = of(&report, 4);
    assert_eq!(step.verdict, Verdict::Damaged, "{:?}", step.findings);
    assert!(codes(step).contains(&"not_what_was_proven"), "{:?}", step.findings);
}

#[test]
fn a_step_under_another_steps_number_is_found() {
    let stage = two(Depth::Full);
    fs::remove_dir_all(stage.step(2)).unwrap();
    fs::rename(stage.step(4), stage.step(2)).unwrap();
    let report = stage.prove(Depth::Full);
    assert_eq!(
        of(&report, 2).verdict,
        Verdict::Damaged,
        "{:?}",
        of(&report, 2).findings
    );
}

#[test]
fn names_that_are_no_text_are_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    let stage = two(Depth::Full);
    let odd = std::ffi::OsStr::from_bytes(b"old_\xff.pt");
    for dir in [stage.step(4).join("actor"), stage.step(4).parent().unwrap().to_owned()] {
        fs::write(dir.as_std_path().join(odd), "x").unwrap();
    }
    let report = stage.prove(Depth::Full);
    assert!(
        report.unreadable.is_none() && of(&report, 4).is_proven(Depth::Full),
        "{report:?}"
    );
}
