//! Records as text: what comes back is what was written, or an error.

use crate::fixtures;
use crate::rules::proven;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use supervise_checkpoint::proof_record::{RecordError, decode, encode};
use supervise_checkpoint::{
    FileKind, FilePin, FloatTally, InspectLimits, ProofRecord, ProvenFile, StepCounters, SweepOptions, inspect,
    judge_file, sweep,
};
use supervise_core::checkpoint::{CkptId, Depth, Finding, Verdict};
use supervise_core::id::{Step, WallMs};

fn record() -> ProofRecord {
    ProofRecord {
        ckpt: CkptId("global_step_2".into()),
        step: Step(2),
        boot: "d2a1".to_owned(),
        wall: WallMs(1_700_000_000_000),
        marks: StepCounters {
            counters: BTreeMap::from([("actor.optimizer".to_owned(), 2)]),
            digest: Some(7),
        },
        files: BTreeMap::new(),
    }
}

fn pin(n: u64) -> FilePin {
    FilePin {
        dev: 66_306,
        ino: 4_000_000_000 + n,
        size: 100_000 + n,
        mtime: 1_795_236_000_123_456_789 + n as i64,
        ctime: 1_795_236_000_123_456_799 + n as i64,
    }
}

/// One real step of verl, fully proven, and a file with everything that is odd.
fn real() -> ProofRecord {
    let mut out = record();
    for (n, file) in (0..).zip(fixtures::all().iter().filter(|f| f.set == "verl_ppo_fsdp2_w2")) {
        let Ok(path) = file.path.strip_prefix("global_step_2") else {
            continue;
        };
        let inspected = inspect(file.kind(), &file.bytes, &InspectLimits::default());
        let results = sweep(&file.bytes, &inspected.plan, SweepOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        });
        let mut report = judge_file(&inspected, &results.unwrap());
        report.description = None;
        report.floats = FloatTally::default();
        let mut pin = pin(n);
        pin.size = report.bytes;
        out.files.insert(path.to_owned(), ProvenFile { pin, report });
    }
    let mut odd = proven(Depth::Structure);
    odd.report.bytes = 5;
    odd.report.verdict = Verdict::Damaged;
    odd.report.findings = vec![
        Finding::error("zip_truncated", Verdict::Incomplete, "a \"quote\"\nand a line").at(5),
        Finding::note("more_findings", "…"),
    ];
    odd.pin.mtime = -1;
    out.files.insert("zz/odd \"name\"\n.pt".into(), odd);
    assert!(out.files.len() > 10);
    out
}

fn text(record: &ProofRecord) -> Vec<u8> {
    let mut out = Vec::new();
    encode(record, &mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<ProofRecord, RecordError> {
    decode(bytes, &InspectLimits::default())
}

#[test]
fn a_record_comes_back_as_it_was() {
    for record in [record(), real()] {
        assert_eq!(read(&text(&record)).unwrap(), record);
    }
}

#[test]
fn any_changed_byte_is_an_error() {
    let good = text(&real());
    let mut bytes = good.clone();
    let ends = (0..400).chain(good.len() - 400..good.len());
    for at in ends.chain((400..good.len() - 400).step_by(37)) {
        for mask in [0x01, 0x20, 0x80] {
            bytes[at] ^= mask;
            assert!(read(&bytes).is_err(), "byte {at} changed by {mask:#x}");
            bytes[at] ^= mask;
        }
    }
    assert_eq!(bytes, good);
}

#[test]
fn cut_grown_and_mixed_records_are_errors() {
    let good = text(&real());
    for len in (0..good.len()).step_by(53).chain(good.len() - 60..good.len()) {
        assert!(read(&good[..len]).is_err(), "cut at {len}");
    }
    for more in [b"\n".as_slice(), b" ", b"\0", b"{}", good.as_slice()] {
        assert!(read(&[&good, more].concat()).is_err(), "{} bytes more", more.len());
    }
    // A whole line less, and two lines in another order.
    let lines: Vec<&[u8]> = good.split_inclusive(|b| *b == b'\n').collect();
    for skip in 0..lines.len() {
        let rest: Vec<&[u8]> = lines
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != skip)
            .map(|(_, l)| *l)
            .collect();
        assert!(read(&rest.concat()).is_err(), "without line {skip}");
    }
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    assert!(read(&swapped.concat()).is_err());
}

/// A record with other lines and a right sum: what a program could write that is not ours.
fn forged(lines: &[&str]) -> Vec<u8> {
    let mut out = lines.join("\n").into_bytes();
    out.push(b'\n');
    let files = lines.iter().filter(|l| l.starts_with("{\"f\"")).count();
    let end = format!("{{\"files\":{files},\"crc\":{}}}\n", crc32fast::hash(&out));
    out.extend(end.into_bytes());
    out
}

#[test]
fn a_right_sum_does_not_excuse_wrong_lines() {
    let good = String::from_utf8(text(&real())).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let [head, shared] = [lines[0], lines.iter().find(|l| l.starts_with("{\"s\"")).unwrap()];
    let file = |path: &str, number: u32| format!("{{\"f\":[{path:?},[1,2,3],[4,5],null,{number},{{}}]}}");
    assert!(read(&forged(&[head, shared, &file("a", 0), &file("b/c", 0)])).is_ok());
    // A step that is a single file has no path in it, and no other file.
    assert!(read(&forged(&[head, shared, &file("", 0)])).is_ok());
    assert!(read(&forged(&[head, shared, &file("", 0), &file("a", 0)])).is_err());
    for path in ["/a", "../a", "a/../b", "."] {
        assert!(read(&forged(&[head, shared, &file(path, 0)])).is_err(), "{path:?}");
    }
    assert!(
        read(&forged(&[head, shared, &file("a", 1)])).is_err(),
        "no such shared line"
    );
    assert!(
        read(&forged(&[head, shared, &file("a", 0), &file("a", 0)])).is_err(),
        "twice"
    );
    assert!(read(&forged(&[head, "{}"])).is_err());
    assert!(read(&forged(&[head, ""])).is_err());
    assert!(read(&forged(&[])).is_err());
}

#[test]
fn another_version_is_named() {
    let good = String::from_utf8(text(&record())).unwrap();
    let head = good.lines().next().unwrap().replace("\"v\":1", "\"v\":2");
    let error = read(&forged(&[&head])).unwrap_err();
    assert!(matches!(error, RecordError::Version(2)), "{error}");
    assert_eq!(error.to_string(), "the record has version 2, 1 is known");
}

#[test]
fn memory_is_bounded_by_what_is_shared() {
    let mut record = record();
    let mut file = proven(Depth::Full);
    file.report.findings = vec![Finding::note("more_findings", "x".repeat(100_000))];
    for n in 0..1000 {
        record.files.insert(format!("{n}").into(), file.clone());
    }
    let text = text(&record);
    assert!(text.len() < 300_000, "{} bytes", text.len());
    let small = InspectLimits {
        record_memory: 10 << 20,
        ..InspectLimits::default()
    };
    assert!(matches!(decode(&text, &small), Err(RecordError::TooLarge(_))));
    let small = InspectLimits {
        record_bytes: 1000,
        ..InspectLimits::default()
    };
    assert!(matches!(decode(&text, &small), Err(RecordError::TooLarge(1000))));
    assert_eq!(read(&text).unwrap(), record);
}

#[test]
fn fifty_thousand_files_stay_small() {
    let mut many = record();
    let real = real();
    let part = |kind: &str| {
        let path = format!("actor/{kind}_world_size_2_rank_1.pt");
        real.files.get(camino::Utf8Path::new(&path)).unwrap().clone()
    };
    for kind in ["model", "optim", "extra_state"] {
        let file = part(kind);
        for rank in 0..16_384_u64 {
            let mut file = file.clone();
            let torch = file.report.facts.torch.as_mut().unwrap();
            torch.rank = torch.rank.map(|_| rank);
            let stem = format!("{kind}_world_size_16384_rank_{rank}");
            torch.archive = Some(stem.clone());
            torch.serialization_id = Some(format!("{:040}", u128::MAX - u128::from(rank) * 7919));
            file.pin = pin(rank);
            file.pin.size = 424_000_000;
            file.report.bytes = 424_000_000;
            file.report.crc = Some(u32::MAX - rank as u32);
            many.files.insert(format!("actor/{stem}.pt").into(), file);
        }
    }
    let text = text(&many);
    assert!(text.len() < 12_000_000, "{} bytes", text.len());
    assert_eq!(read(&text).unwrap(), many);
}

proptest! {
    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
        let text = String::from_utf8_lossy(&bytes).replace('\n', " ");
        prop_assert!(read(&forged(&[&text])).is_err());
    }

    #[test]
    fn odd_names_and_numbers_come_back(
        files in prop::collection::btree_map("[^/.\0][^/\0]{0,9}(/[^/.\0]{1,9})?", (any::<[u64; 3]>(), any::<[i64; 2]>(), any::<Option<u32>>(), any::<u64>()), 0..6),
        boot in ".{0,12}",
    ) {
        let mut record = record();
        record.boot = boot;
        for (path, ([dev, ino, size], [mtime, ctime], crc, bytes)) in files {
            let mut file = proven(Depth::Full);
            file.pin = FilePin { dev, ino, size, mtime, ctime };
            file.report.kind = FileKind::Opaque;
            file.report.crc = crc;
            file.report.bytes = bytes;
            record.files.insert(path.into(), file);
        }
        prop_assert_eq!(read(&text(&record)).unwrap(), record);
    }
}
