//! The ledger: its parts sum to the whole whatever the records are, and of known runs they are what the golden file says.

#![expect(
    clippy::disallowed_methods,
    reason = "scripts and golden files are read from the source tree"
)]

use crate::machine::{config, wild_text};
use crate::world::World;
use crate::world::script::parse;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use supervise_core::event::EventKind;
use supervise_core::id::{AttemptNo, Tick, WallMs};
use supervise_core::journal::record::{ActKind, JournalRecord};
use supervise_core::ledger::{TimeCategory, TimeLedger};
use supervise_core::save_interval::{SaveMeasurements, SaveTimes};
use supervise_core::state::RunState;

/// Runs whose ledger is kept in the golden file.
const SHOWN: [&str; 20] = [
    "again_after_gave_up",
    "areal_load_fails",
    "backoff_none_after_progress",
    "creep_restart",
    "disk_full_waits",
    "finished_again",
    "guard_lost",
    "hand_back_goes_on",
    "io_hang",
    "launch_fails",
    "oom_once",
    "plain",
    "reboot",
    "same_step_twice",
    "stall",
    "stall_in_save",
    "stall_startup",
    "stop_while_saving",
    "suspend",
    "takeover",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The records of a script.
fn play(text: &str) -> Vec<JournalRecord> {
    let mut w = World::new(parse(text).unwrap());
    w.run();
    assert_eq!(w.broken, None);
    w.log.into_iter().map(|l| l.record).collect()
}

/// The state and the ledger of records; the sum is right after each of them.
fn fold(records: &[JournalRecord]) -> (RunState, TimeLedger) {
    let (mut s, mut ledger) = (RunState::default(), TimeLedger::default());
    let (mut began, mut whole) = (false, 0_u64);
    let mut before = (Tick::default(), WallMs::default());
    for r in records {
        s.apply(r);
        ledger.note(&s, r);
        let term = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        let gone = match term {
            true => u64::try_from(s.wall.0.saturating_sub(before.1.0)).unwrap_or_default(),
            false => s.now.since(before.0).0,
        };
        whole = whole.saturating_add(if began { gone } else { 0 });
        began |= matches!(r, JournalRecord::Intended { act, .. } if matches!(act.kind, ActKind::Launch(_)));
        before = (s.now, s.wall);
        assert_eq!(ledger.parts().whole().0, whole, "after {r:?}");
    }
    (s, ledger)
}

/// A ledger in words.
fn shown(name: &str, ledger: &TimeLedger) -> String {
    let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    let parts = ledger.parts();
    let t = ledger.trained();
    let goodput = parts.goodput().map_or("-".to_owned(), |g| format!("{g:.3}"));
    let mut out = format!(
        "{name}: {} s, goodput {goodput}, steps {} new {} again {} lost\n",
        seconds(parts.whole().0),
        t.new,
        t.again,
        t.lost
    );
    for (part, ms) in parts.iter() {
        let reason = match part {
            TimeCategory::Waiting(what) => format!(" ({})", what.code()),
            _ => String::new(),
        };
        out.push_str(&format!("  {}{reason} {}\n", part.code(), seconds(ms.0)));
    }
    for (class, cost) in ledger.costs() {
        let (ends, steps, lost) = (cost.ends, cost.lost_steps, seconds(cost.lost.0));
        out.push_str(&format!("  cost of {class}: {ends} ends, {steps} steps, {lost} s\n"));
    }
    for c in ledger.comebacks().filter(|c| c.attempt > AttemptNo(1)) {
        let parts = [
            ("notice", c.notice),
            ("end", c.end),
            ("prove", c.prove),
            ("wait", c.wait),
            ("launch", c.launch),
            ("first step", c.first_step),
            ("person", c.person),
            ("unknown", c.unknown),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, ms)| ms.0 > 0)
            .map(|(word, ms)| format!("{word} {}", seconds(ms.0)))
            .collect();
        let after = c.after.as_deref().unwrap_or("no failure");
        let end = if c.complete { "" } else { ", no step" };
        out.push_str(&format!(
            "  attempt {} after {after}: {}{end}\n",
            c.attempt,
            parts.join(", ")
        ));
    }
    out
}

#[test]
fn known_runs_have_the_ledger_of_the_golden_file() {
    let mut got = String::new();
    for name in SHOWN {
        let script = std::fs::read_to_string(folder().join(format!("scenarios/{name}.txt"))).unwrap();
        got.push_str(&shown(name, &fold(&play(&script)).1));
    }
    let golden = folder().join("ledger.out");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &got).unwrap();
    }
    let want = std::fs::read_to_string(&golden).unwrap();
    for (w, g) in want.lines().zip(got.lines()) {
        assert_eq!(w, g);
    }
    assert_eq!(want, got);
}

fn measured(script: &str) -> Option<SaveMeasurements> {
    let (mut s, mut ledger, mut times) = (RunState::default(), TimeLedger::default(), SaveTimes::default());
    for r in &play(script) {
        s.apply(r);
        ledger.note(&s, r);
        times.note(&s, r);
    }
    times.measured(&ledger, 1)
}

#[test]
fn steps_saves_and_failures_of_a_run_are_measured() {
    let run = "spec last=60 every=5 step=10s save=40s";
    let well = measured(run).unwrap();
    let near = |got: f64, wanted: f64| (wanted * 0.95..wanted * 1.3).contains(&got);
    assert!(near(well.step, 10.0) && near(well.slow_step, 10.0), "{well:?}");
    assert!(
        near(well.stall, 40.0) && well.save >= 40.0 && well.save < 60.0,
        "{well:?}"
    );
    assert!(well.between < 3.0, "{well:?}");
    assert_eq!(well.failures, 0);
    assert!(near(well.trained, 60.0 * 10.0 + 12.0 * 40.0), "{well:?}");

    let killed = measured(&format!("{run}\nfail step 17 signal KILL\nfail step 33 signal KILL")).unwrap();
    assert_eq!(killed.failures, 2);
    assert!(near(killed.step, 10.0) && near(killed.stall, 40.0), "{killed:?}");
    assert!(killed.trained > well.trained);

    let stopped = measured(&format!("{run}\nat 5m stop\nat 60m new term")).unwrap();
    assert_eq!(stopped.failures, 0);
    // Neither the night between nor a suspended machine is a step or a save.
    let asleep = measured(&format!("{run}\nat 5m suspend 3h")).unwrap();
    assert!(
        near(stopped.slow_step, 10.0) && near(asleep.slow_step, 10.0),
        "{stopped:?} {asleep:?}"
    );
    assert_eq!(measured("spec last=2 every=50 step=10s\nat 15s end"), None);
}

#[test]
fn a_journal_that_is_read_while_the_run_goes_on_counts_up_to_that_moment() {
    let (s, ledger) = fold(&play("spec last=12 step=10s\nat 65s end"));
    let later = WallMs(s.wall.0 + 5000);
    assert_eq!(ledger.parts_at(later, false).whole().0, ledger.parts().whole().0 + 5000);
    assert_eq!(ledger.parts_at(WallMs(0), false), ledger.parts());
    let productive = |parts: supervise_core::ledger::TimeBreakdown| parts.of(TimeCategory::Productive).0;
    assert_eq!(
        productive(ledger.parts_at(later, false)),
        productive(ledger.parts()) + 5000
    );
}

#[test]
fn a_ledger_survives_a_snapshot() {
    let (_, ledger) = fold(&play(
        "spec last=12\nfail step 7 signal KILL\nat 30s supervisor dies\nat 5m new term",
    ));
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<TimeLedger>(&text).unwrap(), ledger);
}

/// Records of all kinds.
static POOL: LazyLock<Vec<JournalRecord>> = LazyLock::new(|| {
    let scripts = [
        "spec last=12\nfail step 7 signal KILL\nhang step 9\nat 3m supervisor dies\nat 20m new term\nat 30m suspend 5m",
        "spec areal last=10 every=2\nfail load 6 code 1 class ckpt.corrupt\nat 20s stop\nat 9m new term",
        "spec last=8 retries=1\nfail step 3 code 1 class mem.cuda_oom always\nat 10m new term\nat 11m io hang\nat 12m io recover",
    ];
    scripts.into_iter().flat_map(play).collect()
});

/// The record at another moment.
fn moved(r: &JournalRecord, tick: u64, at_wall: i64) -> JournalRecord {
    let mut r = r.clone();
    match &mut r {
        JournalRecord::Fact(e) => (e.at, e.wall) = (Tick(tick), WallMs(at_wall)),
        JournalRecord::Decided { at, .. } | JournalRecord::Intended { at, .. } | JournalRecord::Ignored { at, .. } => {
            *at = Tick(tick)
        }
    }
    r
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..600_000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn the_parts_of_any_run_sum_to_the_whole(text in wild_text()) {
        let (_, ledger) = fold(&play(&text));
        let lost: u64 = ledger.costs().values().map(|c| c.lost.0).sum();
        prop_assert!(lost <= ledger.parts().whole().0, "{text}");
        prop_assert!(ledger.parts().goodput().is_none_or(|g| (0.0..=1.0).contains(&g)));
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn the_parts_of_any_records_sum_to_the_whole(
        order in prop::collection::vec((any::<prop::sample::Index>(), time(), any::<i32>()), 0..120)
    ) {
        let records: Vec<JournalRecord> = order
            .iter()
            .map(|(n, tick, wall)| moved(n.get(&POOL), *tick, i64::from(*wall)))
            .collect();
        fold(&records);
    }
}
