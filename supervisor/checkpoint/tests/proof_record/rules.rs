//! Decisions from a record: files that need not be read, and the meaning of a difference.

use supervise_checkpoint::proof_record::{ProofValidity, compare, trust};
use supervise_checkpoint::{FileDetail, FileKind, FilePin, FileReport, FloatTally, ProvenFile};
use supervise_core::checkpoint::{Depth, EntryKind, FileFact, FindingLevel, Verdict};
use supervise_core::id::WallMs;

const PIN: FilePin = FilePin {
    dev: 8,
    ino: 1234,
    size: 1000,
    mtime: 1_700_000_000_000_000_000,
    ctime: 1_700_000_000_500_000_000,
};

pub(crate) fn proven(depth: Depth) -> ProvenFile {
    ProvenFile {
        pin: PIN,
        report: FileReport {
            kind: FileKind::TorchZip,
            verdict: Verdict::Whole,
            findings: Vec::new(),
            bytes: 1000,
            proven: depth,
            crc: Some(0xabcd).filter(|_| depth == Depth::Full),
            facts: FileDetail::default(),
            description: None,
            floats: FloatTally::default(),
        },
    }
}

/// Every way in which a pin can differ.
fn moved() -> [FilePin; 5] {
    [
        FilePin { dev: 9, ..PIN },
        FilePin { ino: 1235, ..PIN },
        FilePin { size: 999, ..PIN },
        FilePin {
            mtime: PIN.mtime + 1,
            ..PIN
        },
        FilePin {
            ctime: PIN.ctime + 1,
            ..PIN
        },
    ]
}

#[test]
fn a_pin_is_what_the_file_system_says() {
    let fact = FileFact {
        path: "a".into(),
        kind: EntryKind::File,
        size: PIN.size,
        mtime: PIN.mtime,
        ctime: PIN.ctime,
        dev: PIN.dev,
        ino: PIN.ino,
        uid: 0,
    };
    assert_eq!(FilePin::of(&fact), PIN);
}

#[test]
fn a_file_touched_just_now_may_be_touched_again_unseen() {
    let ms = PIN.ctime / 1_000_000;
    assert!(!PIN.settled(WallMs(ms)));
    assert!(!PIN.settled(WallMs(ms + 1999)));
    assert!(PIN.settled(WallMs(ms + 2000)));
    assert!(!PIN.settled(WallMs(ms - 5000)), "a time to come is no time past");
}

#[test]
fn an_untouched_file_need_not_be_read() {
    for (have, want) in [
        (Depth::Structure, Depth::Structure),
        (Depth::Full, Depth::Structure),
        (Depth::Full, Depth::Full),
    ] {
        assert_eq!(trust(&proven(have), &PIN, want, true), ProofValidity::Same);
    }
    assert_eq!(
        trust(&proven(Depth::Structure), &PIN, Depth::Full, true),
        ProofValidity::Reread
    );
}

#[test]
fn a_touched_file_is_read_again() {
    for pin in moved() {
        for depth in [Depth::Structure, Depth::Full] {
            assert_eq!(
                trust(&proven(Depth::Full), &pin, depth, true),
                ProofValidity::Reread,
                "{pin:?}"
            );
        }
    }
}

#[test]
fn a_full_proof_does_not_outlive_its_boot() {
    assert_eq!(
        trust(&proven(Depth::Full), &PIN, Depth::Full, false),
        ProofValidity::Reread
    );
    assert_eq!(
        trust(&proven(Depth::Full), &PIN, Depth::Structure, false),
        ProofValidity::Same
    );
}

#[test]
fn a_file_that_could_not_be_read_is_tried_again() {
    let mut known = proven(Depth::Full);
    known.report.verdict = Verdict::Unreadable;
    assert_eq!(trust(&known, &PIN, Depth::Structure, true), ProofValidity::Reread);
    known.report.verdict = Verdict::Damaged;
    assert_eq!(
        trust(&known, &PIN, Depth::Full, true),
        ProofValidity::Same,
        "damage stays damage"
    );
}

#[test]
fn equal_bytes_are_whole_whatever_the_times() {
    let known = proven(Depth::Full);
    let restored = FilePin {
        dev: 1,
        ino: 2,
        size: PIN.size,
        mtime: 3,
        ctime: 4,
    };
    for pin in moved()
        .into_iter()
        .filter(|p| p.size == PIN.size)
        .chain([PIN, restored])
    {
        assert_eq!(compare(&known, &pin, 0xabcd), None, "{pin:?}");
    }
}

#[test]
fn other_bytes_are_told_apart_by_size_and_time() {
    let known = proven(Depth::Full);
    let hour = 3_600_000_000_000;
    let at = |mtime, size| FilePin {
        mtime,
        size,
        ctime: PIN.ctime + hour,
        ..PIN
    };
    for (pin, code, level) in [
        (at(PIN.mtime, 1000), "rot", FindingLevel::Error),
        (at(PIN.mtime, 1001), "not_what_was_proven", FindingLevel::Error),
        (at(PIN.mtime - hour, 1000), "not_what_was_proven", FindingLevel::Error),
        (at(PIN.mtime - hour, 1), "not_what_was_proven", FindingLevel::Error),
        (at(PIN.mtime + 1, 1000), "rewritten", FindingLevel::Note),
        (at(PIN.mtime + hour, 5), "rewritten", FindingLevel::Note),
    ] {
        let finding = compare(&known, &pin, 0xabce).unwrap();
        let verdict = if level == FindingLevel::Error {
            Verdict::Damaged
        } else {
            Verdict::Whole
        };
        assert_eq!(
            (finding.code.as_ref(), finding.level, finding.effect()),
            (code, level, verdict)
        );
    }
    // A sum that happens to be the same does not excuse another size.
    assert!(compare(&known, &at(PIN.mtime, 1001), 0xabcd).is_some());
}

#[test]
fn what_was_not_whole_or_not_summed_says_nothing() {
    let mut known = proven(Depth::Full);
    known.report.verdict = Verdict::Damaged;
    assert_eq!(compare(&known, &PIN, 1), None, "a file that was mended is no damage");
    assert_eq!(compare(&proven(Depth::Structure), &PIN, 1), None);
}
