//! The CRC-32 of a file is that of its bytes, however it was read.

use crate::build::{full, sample};
use crate::fixtures;
use proptest::prelude::*;
use std::ops::ControlFlow;
use supervise_checkpoint::step_counters::digest;
use supervise_checkpoint::{
    FileKind, FileReport, InspectLimits, ReadPlan, SweepOptions, inspect, judge_file, sweep, sweep_parallel,
};
use supervise_core::checkpoint::Depth;

/// Findings from reading all of a file, and its plan.
fn read(kind: FileKind, bytes: &[u8]) -> (FileReport, ReadPlan) {
    let inspected = inspect(kind, &bytes, &InspectLimits::default());
    let results = sweep(&bytes, &inspected.plan, SweepOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    });
    let report = judge_file(&inspected, &results.expect("the slice holds what its plan names"));
    (report, inspected.plan)
}

fn holds(report: &FileReport, plan: &ReadPlan, bytes: &[u8], what: &str) {
    if report.proven == Depth::Full {
        assert_eq!(report.crc, Some(crc32fast::hash(bytes)), "{what}");
    }
    if let Some(crc) = report.crc {
        assert_eq!(crc, crc32fast::hash(bytes), "{what}");
    }
    if !plan.extents.is_empty() {
        let end = plan.extents.iter().fold(0, |at, e| {
            assert_eq!(e.off, at, "{what}: a gap or an overlap before {}", e.what);
            at + e.len
        });
        assert_eq!(end, bytes.len() as u64, "{what}: the plan ends elsewhere");
        assert!(report.crc.is_some(), "{what}");
    }
}

#[test]
fn every_file_of_every_trainer_is_summed_whole() {
    let mut summed = 0;
    for file in fixtures::all() {
        let (report, plan) = read(file.kind(), &file.bytes);
        holds(&report, &plan, &file.bytes, &file.name());
        summed += u32::from(report.crc.is_some());
    }
    assert!(summed > 100, "only {summed} files were summed");
}

#[test]
fn gaps_are_not_taken_for_data() {
    let report = full(FileKind::TorchZip, &sample());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let (_, plan) = read(FileKind::TorchZip, &sample());
    let gaps = plan.extents.iter().filter(|e| e.is_gap()).count();
    assert_eq!(
        (plan.extents.len(), gaps),
        (15, 8),
        "7 entries, what is between them, the end"
    );
}

#[test]
fn a_file_that_is_read_at_once_is_summed_at_once() {
    let text = b"{\"world_size\": 2, \"FSDP_version\": 2}";
    let inspected = inspect(FileKind::FsdpConfig, &text.as_slice(), &InspectLimits::default());
    assert!(inspected.read_all && inspected.plan.extents.is_empty());
    assert_eq!(judge_file(&inspected, &[]).crc, Some(crc32fast::hash(text)));
    let structure = inspect(FileKind::TorchZip, &sample(), &InspectLimits::default());
    assert_eq!(
        judge_file(&structure, &[]).crc,
        None,
        "nothing was read but the structure"
    );
}

#[test]
fn digests_tell_lists_of_files_apart() {
    let of = |files: &[(&str, u32)]| digest(files.iter().map(|(p, c)| (camino::Utf8Path::new(*p), *c)));
    let one = of(&[("a", 1), ("b", 2)]);
    assert_eq!(one, of(&[("a", 1), ("b", 2)]));
    let others = [
        of(&[("a", 2), ("b", 1)]),
        of(&[("a", 1)]),
        of(&[("ab", 1), ("b", 2)]),
        of(&[("b", 2), ("a", 1)]),
        of(&[]),
    ];
    assert!(others.iter().all(|o| *o != one));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_files_are_summed_as_they_are(
        pick in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let files = FILES.with(Clone::clone);
        let file = pick.get(&files);
        let mut bytes = file.bytes.clone();
        if bytes.is_empty() {
            return Ok(());
        }
        for (at, value) in places {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (report, plan) = read(file.kind(), &bytes);
        holds(&report, &plan, &bytes, &file.name());
        let inspected = inspect(file.kind(), &bytes, &InspectLimits::default());
        let jobs: Vec<supervise_checkpoint::sweep::SweepJob<'_>> = vec![(&bytes, &inspected.plan)];
        let results = sweep_parallel(&jobs, 3, SweepOptions::default(), &mut |_| ControlFlow::Continue(()));
        let [Ok(results)] = results.as_slice() else {
            panic!("{}: {results:?}", file.name());
        };
        prop_assert_eq!(judge_file(&inspected, results), report);
    }
}

thread_local! {
    static FILES: std::rc::Rc<Vec<fixtures::Fixture>> = std::rc::Rc::new(fixtures::all());
}
