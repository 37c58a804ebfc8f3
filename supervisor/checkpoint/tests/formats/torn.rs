//! Reading: checksums, torn writes, numbers, progress and calling off.

use crate::build::{codes, floats, full, sample, state_dict, torch_zip};
use std::ops::ControlFlow;
use supervise_checkpoint::{
    ByteExtent, Dtype, ExtentResult, FileKind, InspectLimits, ReadPlan, SweepError, SweepOptions, SweepProgress,
    inspect, judge_file, sweep,
};
use supervise_core::checkpoint::{Depth, Verdict};

const KIND: FileKind = FileKind::TorchZip;

fn place(bytes: &[u8], entry: &str) -> usize {
    let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
    plan.extents.iter().find(|e| e.what.ends_with(entry)).unwrap().off as usize
}

#[test]
fn a_mismatch_names_entry_and_place() {
    let mut bytes = sample();
    let at = place(&bytes, "data/1");
    bytes[at + 100] ^= 1;
    let report = full(KIND, &bytes);
    let why = report.why().unwrap();
    assert_eq!((report.verdict, why.code.as_ref()), (Verdict::Damaged, "crc_mismatch"));
    assert_eq!(why.offset, Some(at as u64));
    assert!(
        why.detail.contains("archive/data/1") && !why.detail.contains("torn"),
        "{why}"
    );
}

#[test]
fn zeros_where_the_checksum_does_not_fit_are_a_torn_write() {
    let mut bytes = sample();
    let (one, big) = (place(&bytes, "data/0"), place(&bytes, "data/1"));
    bytes[one..one + 64].fill(0);
    let block = big.next_multiple_of(4096);
    bytes[block..block + 8192].fill(0);
    let report = full(KIND, &bytes);
    let details: Vec<_> = report.findings.iter().map(|f| f.detail.as_str()).collect();
    assert!(
        details
            .iter()
            .any(|d| d.contains("data/0") && d.contains("torn write, all 64 bytes are zeros")),
        "{details:?}"
    );
    let said = format!("torn write, 2 blocks of 4096 bytes are zeros, the first at byte {block}");
    assert!(
        details.iter().any(|d| d.contains("data/1") && d.contains(&said)),
        "{details:?}"
    );
}

#[test]
fn zeros_with_their_checksum_are_whole() {
    let bytes = torch_zip(&state_dict(&[("a", 5000)]), &[vec![0; 20_000]]).bytes();
    let report = full(KIND, &bytes);
    assert_eq!(
        (report.verdict, report.proven),
        (Verdict::Whole, Depth::Full),
        "{:?}",
        report.findings
    );
}

#[test]
fn one_wrong_checksum_among_right_ones_is_never_excused() {
    // Even where every large entry is wrong: the small ones prove that checksums were written.
    let mut bytes = sample();
    for entry in ["data/0", "data/1", "data/2"] {
        let at = place(&bytes, entry);
        bytes[at] ^= 1;
    }
    let report = full(KIND, &bytes);
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Damaged, vec!["crc_mismatch"; 3])
    );
}

#[test]
fn results_of_an_unfinished_reading_are_not_used() {
    let bytes = sample();
    let inspected = inspect(KIND, &bytes, &InspectLimits::default());
    let report = judge_file(&inspected, &[ExtentResult::default()]);
    assert_eq!(
        (report.verdict, report.proven, codes(&report)),
        (Verdict::Whole, Depth::Structure, vec!["reading_unfinished"])
    );
}

#[test]
fn progress_is_told_and_reading_can_be_called_off() {
    let bytes = torch_zip(&state_dict(&[("a", 500_000)]), &[floats(500_000, 1)]).bytes();
    let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
    let mut seen: Vec<SweepProgress> = Vec::new();
    let read = sweep(&bytes, &plan, SweepOptions::default(), &mut |p| {
        seen.push(p);
        ControlFlow::Continue(())
    });
    assert!(read.is_ok());
    assert_eq!(seen.len(), 8, "2 MB in chunks of 256 KiB: {seen:?}");
    assert_eq!(plan.bytes(), bytes.len() as u64, "every byte, once");
    assert!(seen.is_sorted_by_key(|p| p.done));
    let last = seen.last().unwrap();
    assert_eq!((last.done, last.of), (plan.bytes(), plan.bytes()));
    let mut calls = 0;
    let read = sweep(&bytes, &plan, SweepOptions::default(), &mut |_| {
        calls += 1;
        if calls == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(read, Err(SweepError::Cancelled)));
    assert_eq!(calls, 2);
}

fn one(bytes: &[u8], off: u64, dtype: Dtype) -> ExtentResult {
    let extent = ByteExtent {
        off,
        len: bytes.len() as u64 - off,
        crc: None,
        dtype: Some(dtype),
        what: "x".to_owned(),
    };
    let plan = ReadPlan { extents: vec![extent] };
    sweep(&bytes, &plan, SweepOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()[0]
}

#[test]
fn numbers_that_are_not_finite_are_counted_across_chunks() {
    // An odd start makes elements straddle the chunks of 256 KiB.
    let count = 300_000;
    let bad = [0, 1, 131_071, 131_072, 262_143, 299_999];
    let mut bytes = vec![9; 3];
    for n in 0..count {
        let v = if bad.contains(&n) { f32::NAN } else { n as f32 };
        bytes.extend(v.to_le_bytes());
    }
    assert_eq!(one(&bytes, 3, Dtype::F32).non_finite, bad.len() as u64);
    let doubles: Vec<u8> = [1.0, f64::INFINITY, f64::MAX, f64::NEG_INFINITY, f64::NAN]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    assert_eq!(one(&doubles, 0, Dtype::F64).non_finite, 3);
    let halves: Vec<u8> = [0x7c00_u16, 0x7bff, 0xfc01, 0x7f80]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    assert_eq!(one(&halves, 0, Dtype::F16).non_finite, 3);
    assert_eq!(one(&halves, 0, Dtype::Bf16).non_finite, 1);
    assert_eq!(one(&halves, 0, Dtype::I16).non_finite, 0);
}

#[test]
fn a_file_that_shrank_between_the_calls_is_worth_another_try() {
    let bytes = sample();
    let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
    let short = &bytes[..bytes.len() / 2];
    let error = sweep(&short, &plan, SweepOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap_err();
    let finding = error.finding().unwrap();
    assert_eq!(
        (finding.code.as_ref(), finding.verdict, finding.retryable),
        ("file_changed", Verdict::Incomplete, true)
    );
}
