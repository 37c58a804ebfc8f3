//! The supervisor's helper is killed, or the disk is full, at each of its calls that change the disk: a proven state is there
//! afterwards, and done again it ends as if nothing had happened.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use super::stage::{SUPERVISE, Stage, files, generations, live, put_back};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::fs;
use supervise_core::checkpoint::Verdict;
use supervise_core::event::ScanReport;
use supervise_core::id::{ActId, Step};
use supervise_host::io_worker::IoQuestion;
use supervise_tests::areal_set::Shape;
use supervise_tests::asked_helper::{helper, talk};
use supervise_tests::disturb::{Fate, calls, disturbed};

/// A trial that was kept at steps 2 and 4, and whose save of step 6 was killed.
fn torn() -> Stage {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    stage.cut(6, 3);
    stage
}

/// The same of a newer build, whose generation of step 6 was damaged after it was named.
fn damaged() -> Stage {
    let stage = Stage::with(Shape {
        own: true,
        ..Shape::default()
    });
    stage.saved_and_kept(&[2, 4]);
    stage.save(6);
    let generation = stage.root.join("checkpoint_generations/generation_step00000005");
    fs::write(generation.join("payloads/default/__0_0.distcp"), "").unwrap();
    stage
}

/// The end state that counts: the live set, the generations, and what is aside by its bytes.
fn outcome(stage: &Stage) -> (BTreeMap<Utf8PathBuf, Vec<u8>>, BTreeMap<Utf8PathBuf, Vec<u8>>) {
    (files(&stage.root), files(&stage.store.join("protected")))
}

fn a_proven_state_is_there(report: &ScanReport, at: Step, n: usize) {
    let whole = report
        .steps
        .iter()
        .filter(|c| c.verdict == Verdict::Whole && c.proven.is_some());
    let best = whole.map(|c| c.step).max();
    assert!(best >= Some(at), "call {n}: the best that is left is {best:?}");
}

/// The question for the I/O worker, made from its scan.
type Asked = fn(&ScanReport) -> Option<IoQuestion>;

fn everywhere(make: fn() -> Stage, ask: Asked, at: Step, fate: Fate, first: usize) {
    let stage = make();
    let undisturbed = |stage: &Stage| {
        let report = stage.look();
        if let Some(ask) = ask(&report) {
            let mut io_worker = stage.io_worker();
            let beside = matches!(ask, IoQuestion::Keep { .. });
            io_worker.ask(ask);
            if beside {
                io_worker.0.kept(supervise_tests::harness::PATIENCE).unwrap().unwrap();
            }
        }
    };
    undisturbed(&stage);
    let expected = outcome(&stage);
    for n in calls(first) {
        let stage = make();
        let question = ask(&stage.look()).unwrap();
        let (seen, _) = disturbed(helper(SUPERVISE), n, fate, talk(&stage.spec, question));
        if seen < n {
            assert!(n > 10, "only {seen} calls were seen");
            return;
        }
        a_proven_state_is_there(&stage.look(), at, n);
        undisturbed(&stage);
        assert!(
            outcome(&stage) == expected,
            "call {n} of {seen}, {fate:?}: another result"
        );
        let report = stage.look();
        assert_eq!(
            live(&report).verdict,
            Verdict::Whole,
            "call {n}: {:?}",
            live(&report).findings
        );
    }
}

/// Before a launch: the torn set aside, the newest generation in its place. Nothing where it is whole already.
fn back(report: &ScanReport) -> Option<IoQuestion> {
    if report.steps.first()?.verdict == Verdict::Whole && report.steps.first()?.id.0.as_str().starts_with("live") {
        return None;
    }
    let from = generations(report).first()?.id.clone();
    Some(IoQuestion::Edit {
        edits: put_back(report, &from),
        by: "before-attempt-2".to_owned(),
    })
}

/// While the trainer works: a copy of the live set, where there is none.
fn keep(report: &ScanReport) -> Option<IoQuestion> {
    let c = live(report);
    let kept = generations(report)
        .iter()
        .any(|g| g.step == c.step && g.verdict == Verdict::Whole);
    (!kept).then(|| IoQuestion::Keep {
        act: ActId(3),
        ckpt: c.id.clone(),
        step: c.step,
        pins: c.pins,
        rate: 0,
    })
}

/// A trial that was kept at step 2 and has saved step 4.
fn saved() -> Stage {
    let stage = Stage::new();
    stage.saved_and_kept(&[2]);
    stage.save(4);
    stage
}

#[test]
fn killed_at_each_change_while_a_generation_is_put_back() {
    everywhere(torn, back, Step(4), Fate::Killed, 1);
}

#[test]
fn a_full_disk_at_each_change_while_a_generation_is_put_back() {
    everywhere(torn, back, Step(4), Fate::NoSpace, 2);
}

#[test]
fn killed_at_each_change_while_a_copy_becomes_a_generation_of_a_newer_build() {
    everywhere(damaged, back, Step(4), Fate::Killed, 1);
}

#[test]
fn a_full_disk_at_each_change_while_a_copy_becomes_a_generation_of_a_newer_build() {
    everywhere(damaged, back, Step(4), Fate::NoSpace, 2);
}

#[test]
fn killed_at_each_change_while_the_live_set_is_kept() {
    everywhere(saved, keep, Step(4), Fate::Killed, 1);
}

#[test]
fn a_full_disk_at_each_change_while_the_live_set_is_kept() {
    everywhere(saved, keep, Step(4), Fate::NoSpace, 2);
}
