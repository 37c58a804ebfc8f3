//! Scans as differences: told and applied they give the same scan, whatever it is; and they stay small.

use crate::world::disk::Disk;
use crate::world::script::Truth;
use proptest::prelude::*;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, PinsHash};
use supervise_core::event::diff::{RawFields, ScanDiff, StepDiff};
use supervise_core::event::{Event, EventKind, ScanReport, TrackerState};
use supervise_core::id::{AttemptNo, Seq, Step, Tick, WallMs};
use supervise_core::journal;
use supervise_core::journal::record::JournalRecord;
use supervise_core::state::RunState;

/// A step with everything that a difference may have to tell; few names, so that the same ones come again.
fn step() -> impl Strategy<Value = CheckpointSummary> {
    let truth = prop_oneof![
        Just(Truth::Whole),
        Just(Truth::Torn),
        Just(Truth::Damaged),
        Just(Truth::NoData),
        Just(Truth::Husk)
    ];
    let finding = "[a-c]{1,3}".prop_map(|text| Finding::warning("odd", text).in_file("x.pt"));
    (
        0u64..9,
        truth,
        any::<u64>(),
        prop::collection::vec(finding, 0..3),
        prop::option::of(Just(AttemptNo(3))),
        prop::option::of("[a-z]{3}"),
        any::<bool>(),
    )
        .prop_map(|(n, truth, pins, findings, saved_by, save, deep)| {
            let mut disk = Disk::default();
            disk.put(CkptId(format!("global_step_{n}").into()), n, truth);
            let depth = if deep { Depth::Full } else { Depth::Structure };
            let mut c = disk.scan(depth, u32::MAX).steps.remove(0);
            c.pins = PinsHash(pins);
            c.findings.extend(findings);
            c.saved_by = saved_by;
            c.save = save;
            c
        })
}

fn report() -> impl Strategy<Value = ScanReport> {
    let tracker = prop_oneof![
        Just(TrackerState::Missing),
        (0u64..9).prop_map(|n| TrackerState::Step(Step(n))),
        "[a-z]{2}".prop_map(TrackerState::Garbage)
    ];
    (
        prop::collection::vec(step(), 0..8),
        tracker,
        prop::option::of("[a-z]{4}"),
        prop::collection::vec("[a-z]{4}", 0..2),
        any::<bool>(),
        prop::option::of(Just(Step(7))),
    )
        .prop_map(|(steps, tracker, unreadable, remarks, empty, saving)| ScanReport {
            steps,
            tracker,
            unreadable,
            remarks,
            empty,
            saving,
        })
}

/// Steps once each and in order, as a scan has them.
fn in_order(mut r: ScanReport) -> ScanReport {
    r.steps.sort_by_key(|c| std::cmp::Reverse(c.step));
    r.steps.dedup_by_key(|c| c.step);
    r
}

proptest! {
    #[test]
    fn a_difference_that_is_applied_gives_the_scan(a in report(), b in report()) {
        if let Some(d) = ScanDiff::between(&a, &b) {
            let text = serde_json::to_string(&d).unwrap();
            let read: ScanDiff = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(a.apply(&read), Some(b));
        }
    }

    #[test]
    fn scans_as_they_come_can_always_be_told_as_differences(a in report(), b in report()) {
        let (a, b) = (in_order(a), in_order(b));
        let d = ScanDiff::between(&a, &b);
        prop_assert_eq!(d.is_none(), a.steps.is_empty());
        if let Some(d) = d {
            prop_assert_eq!(a.apply(&d), Some(b));
        }
    }

    #[test]
    fn a_difference_to_another_scan_gives_nothing_that_never_was(a in report(), b in report(), c in report()) {
        let differs = |c: &ScanReport| c.steps.iter().map(|s| (s.id.clone(), s.pins, s.verdict)).ne(a.steps.iter().map(|s| (s.id.clone(), s.pins, s.verdict)));
        if let Some(d) = ScanDiff::between(&a, &b).filter(|_| differs(&c)) {
            prop_assert_eq!(c.apply(&d), None);
        }
    }

    #[test]
    fn a_step_that_differs_is_the_one_that_its_fields_give(a in step(), b in step(), now in any::<u32>(), without in any::<u32>()) {
        let fields = |c: &CheckpointSummary| serde_json::to_value(c).unwrap().as_object().unwrap().clone();
        let (was, is) = (fields(&a), fields(&b));
        let names: Vec<&String> = was.keys().chain(is.keys()).collect();
        let picked = |bits: u32| names.iter().enumerate().filter(move |(n, _)| bits >> (n % 32) & 1 == 1).map(|(_, name)| (*name).clone());
        let now: serde_json::Map<_, _> = picked(now & without.rotate_left(7)).filter_map(|name| Some((name.clone(), is.get(&name)?.clone()))).collect();
        let without: Vec<String> = picked(without & without.rotate_left(3) & without.rotate_left(5)).collect();
        let mut all = was;
        for name in &without {
            all.remove(name);
        }
        all.extend(now.clone());
        let expected: Option<CheckpointSummary> = serde_json::from_value(all.into()).ok();
        let report = ScanReport { steps: vec![a], ..ScanReport::default() };
        let mut d = ScanDiff::between(&report, &report).unwrap();
        let now = RawFields::new(&now).unwrap();
        d.changed.push(StepDiff { like: None, at: 0, now, without });
        let applied = report.apply(&d).map(|mut r| r.steps.remove(0));
        prop_assert_eq!(applied, expected);
    }

    #[test]
    fn any_difference_at_all_is_applied_or_refused(a in report(), at in 0usize..20, since in any::<bool>(), name in "[a-z]{1,9}") {
        let mut d = ScanDiff::between(&in_order(a.clone()), &ScanReport::default()).unwrap_or_default();
        if !since {
            d.since ^= 1;
        }
        let like = a.steps.first().map_or_else(|| CkptId("x".into()), |c| c.id.clone());
        let text = format!(r#"{{"like":{like:?},"at":{at},"now":{{"step":"{name}","{name}":7}}}}"#, like = like.0.as_str());
        d.came.push(serde_json::from_str(&text).unwrap());
        let _ = a.apply(&d);
    }
}

#[test]
fn fields_are_read_however_they_are_written_and_only_fields_are() {
    let step = |now: &str| serde_json::from_slice::<StepDiff>(format!(r#"{{"now":{now}}}"#).as_bytes());
    let report = scan(1..=2);
    let mut expected = report.clone();
    expected.steps[0].step = Step(9);
    expected.steps[0].layout = "a\u{e4}\n".into();
    let plain = r#"{"step":9,"layout":"a\u00e4\n"}"#;
    let odd = r#"{ "st\u0065p" : 9 , "newer":[{"x":{}},null], "layout":"aä\u000a" }"#;
    for now in [plain, odd] {
        let mut d = ScanDiff::between(&report, &report).unwrap();
        d.changed.push(step(now).unwrap());
        assert_eq!(report.clone().apply(&d).as_ref(), Some(&expected), "{now}");
    }
    for now in ["7", "null", "[]", r#""step""#, "{", r#"{"step"}"#] {
        assert!(step(now).is_err(), "{now}");
    }
}

fn scan(steps: std::ops::RangeInclusive<u64>) -> ScanReport {
    let mut disk = Disk::default();
    for n in steps {
        disk.put(CkptId(format!("global_step_{n}").into()), n, Truth::Whole);
    }
    let mut scan = disk.scan(Depth::Structure, u32::MAX);
    for c in &mut scan.steps {
        c.pins = PinsHash(u64::MAX / 3 + c.step.0);
        let long = "the trainer saves this without a checksum, so that only its size and structure are known";
        c.findings = (0..4)
            .map(|n| Finding::note("unchecked", format!("{long} ({n})")))
            .collect();
    }
    scan
}

#[test]
fn one_save_more_costs_its_own_size_and_no_finding_twice() {
    let d = ScanDiff::between(&scan(1..=20), &scan(2..=21)).unwrap();
    let text = serde_json::to_string(&d).unwrap();
    assert!(text.len() < 400, "{} bytes: {text}", text.len());
    assert!(
        !text.contains("checksum"),
        "a finding that is known is told again: {text}"
    );
    assert!(serde_json::to_string(&scan(2..=21)).unwrap().len() > 10_000);
}

#[test]
fn a_line_that_is_lost_leaves_the_disk_unknown_until_the_next_whole_scan() {
    let fact = |kind| {
        JournalRecord::Fact(Event {
            at: Tick(1),
            wall: WallMs(1),
            entropy: 0,
            kind,
        })
    };
    let diff = |a, b| fact(EventKind::CheckpointsChanged(ScanDiff::between(a, b).unwrap()));
    let (one, two, three) = (scan(1..=3), scan(1..=4), scan(1..=5));
    let mut state = RunState::default();
    state.apply(&fact(EventKind::Checkpoints(one.clone())));
    state.apply(&diff(&one, &two));
    assert_eq!(state.disk.scan, Some(two.clone()));
    state.apply(&diff(&three, &one));
    assert_eq!((state.disk.scan.clone(), state.disk.scan_told), (None, None));
    state.apply(&fact(EventKind::Checkpoints(three.clone())));
    assert_eq!(state.disk.scan, Some(three));
}

#[test]
fn what_differs_is_read_back_from_a_line() {
    let d = ScanDiff::between(&scan(1..=3), &scan(2..=4)).unwrap();
    let record = JournalRecord::Fact(Event {
        at: Tick(1),
        wall: WallMs(1),
        entropy: 0,
        kind: EventKind::CheckpointsChanged(d),
    });
    let line = journal::encode(Seq(1), Tick(1), WallMs(1), &record).unwrap();
    let read = journal::decode(&line[..line.len() - 1]);
    assert!(matches!(read, journal::ParsedLine::Known(_, r) if *r == [record]));
    assert!(std::str::from_utf8(&line).unwrap().contains("checkpoints_changed"));
}
