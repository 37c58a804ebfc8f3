//! Files made to cost more than they are: time stays linear in their bytes, memory below what is allowed.

use crate::build::{codes, text, torch_zip};
use supervise_checkpoint::pickle::read;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::Verdict;

fn judged(pickle: &[u8], memory: usize) -> FileReport {
    let limits = InspectLimits {
        memory,
        ..InspectLimits::default()
    };
    judge_file(
        &inspect(FileKind::TorchZip, &torch_zip(pickle, &[]).bytes(), &limits),
        &[],
    )
}

/// Storages that all name one long text as their device: copied for each, it would be a million megabytes.
#[test]
fn a_long_text_in_a_million_references_is_read_once() {
    let mut p = b"\x80\x02]q\x00".to_vec();
    text(&mut p, &"x".repeat(1 << 20));
    p.extend(b"q\x010X\x07\x00\x00\x00storageq\x020ctorch\nFloatStorage\nq\x030X\x01\x00\x00\x000q\x040(");
    for _ in 0..100_000 {
        p.extend(b"(h\x02h\x03h\x04h\x01K\x01tQ");
    }
    p.extend(b"e.");
    let report = judged(&p, 256 << 20);
    assert_eq!(report.verdict, Verdict::Damaged, "{:?}", report.findings);
    assert!(codes(&report).contains(&"bad_persistent_id"), "{:?}", report.findings);
}

/// The same with a list, a dict and names that stand in many places.
#[test]
fn what_stands_in_many_places_is_not_gone_through_in_each() {
    let shared = |fill: &[u8], each: &[u8]| {
        let mut p = b"\x80\x02]q\x00(".to_vec();
        p.extend(fill.repeat(200_000));
        p.extend(b"e]q\x01(");
        p.extend(each.repeat(200_000));
        p.extend(b"e.");
        p
    };
    let lists = judged(&shared(b"N", b"h\x00\x85"), 256 << 20);
    assert!(
        lists.verdict <= Verdict::Unknown || lists.verdict == Verdict::Unreadable,
        "{:?}",
        lists.findings
    );
    assert_eq!(
        codes(&lists),
        ["limit_reached", "inventory_cut"],
        "{:?}",
        lists.findings
    );
    let mut states = b"\x80\x02}q\x00(".to_vec();
    for n in 0..200_000_u32 {
        states.push(b'X');
        states.extend(6_u32.to_le_bytes());
        states.extend(format!("{n:06}").as_bytes());
        states.push(b'N');
    }
    states.extend(b"ucargparse\nNamespace\nq\x01)\x81");
    states.extend(b"h\x00b".repeat(200_000));
    states.push(b'.');
    let report = judged(&states, 256 << 20);
    assert_eq!(report.verdict, Verdict::Unreadable, "{:?}", report.findings);
}

/// Values that take far more memory than their opcodes: refused with what they need, and by which setting.
#[test]
fn what_needs_more_memory_than_allowed_is_said_to() {
    let growing = [b"\x80\x02]q\x00(".as_slice(), &b"h\x00".repeat(1_000_000), b"e."].concat();
    let empty = [b"\x80\x02(".as_slice(), &b"]".repeat(1_000_000), b"l."].concat();
    let marks = [b"\x80\x02".as_slice(), &b"(".repeat(4_000_000), b"N."].concat();
    for (name, pickle) in [("itself", growing), ("empty lists", empty), ("marks", marks)] {
        let report = judged(&pickle, 16 << 20);
        assert_eq!(report.verdict, Verdict::Unreadable, "{name}: {:?}", report.findings);
        let why = &report.why().unwrap().detail;
        assert!(
            why.contains("proof.memory allows 16 MiB") && why.contains("about "),
            "{why}"
        );
        let roomy = judged(&pickle, 1 << 30);
        assert!(
            roomy.findings.iter().all(|f| f.verdict != Verdict::Unreadable),
            "{name}: {:?}",
            roomy.findings
        );
    }
    // What is unsafe is unsafe however much of it there is.
    let evil = [
        b"cposix\nsystem\n(S'id'\ntR(".as_slice(),
        &b"]".repeat(1_000_000),
        b"l.",
    ]
    .concat();
    let found = read(
        evil,
        &InspectLimits {
            memory: 1 << 20,
            ..InspectLimits::default()
        },
    )
    .findings(0, false);
    assert!(found.iter().any(|f| f.verdict == Verdict::Unsafe), "{found:?}");
}
