//! Property tests: random scripts against the simulated world.
//!
//! The generated value is the text of a scenario script, so a failing case prints as one that replays it: put it
//! under `scenarios/` and run the scenario test.

use crate::world::World;
use crate::world::script::{Truth, parse};
use crate::world::verbs::truth_word;
use proptest::prelude::*;
use std::fmt;
use supervise_core::event::EventKind;
use supervise_core::id::Step;
use supervise_core::journal::record::{JournalRecord, RunOutcome};

/// The lines of a script; printed as a script.
#[derive(Clone)]
struct Lines(Vec<String>);

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a scenario script:\n----")?;
        for l in &self.0 {
            writeln!(f, "{l}")?;
        }
        write!(f, "----")
    }
}

fn play(lines: &Lines) -> Result<World, TestCaseError> {
    let script = parse(&lines.0.join("\n")).map_err(TestCaseError::fail)?;
    let mut w = World::new(script);
    w.run();
    match &w.broken {
        Some(what) => Err(TestCaseError::fail(format!("{what}\n{lines:?}"))),
        None => Ok(w),
    }
}

fn truth() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just(Truth::Whole),
        1 => Just(Truth::Degraded),
        1 => Just(Truth::Unfit),
        2 => Just(Truth::Torn),
        2 => Just(Truth::Damaged),
        1 => Just(Truth::NoOptimizer),
        1 => Just(Truth::NoData),
        2 => Just(Truth::Rotten),
        1 => Just(Truth::Unsafe),
        1 => Just(Truth::Strange),
        1 => Just(Truth::Others),
        2 => Just(Truth::Unreadable),
        1 => Just(Truth::Husk),
        1 => Just(Truth::Unknown),
    ]
    .prop_map(truth_word)
}

/// A step number: mostly one that the trainer saves too.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => (1u64..8).prop_map(|n| n * 2), 1 => 1u64..40]
}

fn disk() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (truth(), number()).prop_map(|(t, n)| format!("disk {t} {n}")),
        2 => tracker().prop_map(|t| format!("tracker {t}")),
        1 => (truth(), number()).prop_map(|(t, n)| format!("elsewhere {t} {n}")),
    ]
}

fn tracker() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => number().prop_map(|n| n.to_string()),
        1 => Just("missing".to_owned()),
        1 => Just("empty".to_owned()),
        1 => Just("8x".to_owned()),
    ]
}

fn option() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("keep=1".to_owned()),
        Just("keep=3".to_owned()),
        Just("depth=full".to_owned()),
        Just("retries=1".to_owned()),
        Just("step-backs=0".to_owned()),
        Just("jitter=0.2".to_owned()),
        Just("deaf".to_owned()),
        Just("last-unknown".to_owned()),
        Just("says-total".to_owned()),
        Just("allow-fresh".to_owned()),
        Just("fresh".to_owned()),
        Just("observe".to_owned()),
        Just("rehearse".to_owned()),
        Just("no-prove".to_owned()),
        Just("no-recovery".to_owned()),
        Just("elastic".to_owned()),
        Just("degraded=never".to_owned()),
        Just("degraded=model".to_owned()),
        Just("degraded=ask".to_owned()),
        Just("scan-interval=1s".to_owned()),
        Just("save=20s".to_owned()),
        Just("stall-minimum=30s".to_owned()),
        Just("stall-startup=30s".to_owned()),
        Just("stall-save=60s".to_owned()),
        Just("orphan-grace=2s".to_owned()),
        Just("save-grace=5s".to_owned()),
        Just("every=7".to_owned()),
        Just("max-loss=4s".to_owned()),
        Just("max-loss=20s".to_owned()),
        Just("does-not-answer".to_owned()),
        Just("no-save-requests".to_owned()),
        wish(),
    ]
}

fn wish() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("resume=auto".to_owned()),
        Just("resume=disable".to_owned()),
        number().prop_map(|n| format!("resume=path:{n}")),
        number().prop_map(|n| format!("resume=path:elsewhere:{n}")),
        number().prop_map(|n| format!("from={n}")),
        Just("fresh".to_owned()),
        Just("allow-fresh".to_owned()),
        (1u64..4).prop_map(|n| format!("config={n}")),
        (6u64..20).prop_map(|n| format!("last={n}")),
    ]
}

fn status() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("signal KILL".to_owned()),
        1 => Just("signal SEGV".to_owned()),
        1 => Just("signal TERM".to_owned()),
        2 => Just("code 1".to_owned()),
        1 => Just("code 0".to_owned()),
    ]
}

fn class() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(""),
        Just(" class mem.cuda_oom"),
        Just(" class disk.full"),
        Just(" class ckpt.corrupt"),
        Just(" class cfg.args"),
        Just(" class comm.conn"),
        Just(" class num.nan"),
    ]
}

fn fault() -> impl Strategy<Value = String> {
    let place = prop_oneof![
        Just("start".to_owned()),
        number().prop_map(|n| format!("load {n}")),
        (1u64..16).prop_map(|n| format!("step {n}")),
        number().prop_map(|n| format!("save {n}")),
    ];
    let times = prop_oneof![4 => Just(""), 2 => Just(" times 3"), 1 => Just(" always")];
    let what = prop_oneof![
        4 => (status(), class(), 0u32..2).prop_map(|(s, c, r)| ("fail", format!(" rank {r} {s}{c}"))),
        1 => Just(("hang", String::new())),
        1 => Just(("hang", " busy".to_owned())),
        1 => Just(("quit", String::new())),
        1 => Just(("forget", String::new())),
        1 => Just(("forget", " silent".to_owned())),
    ];
    (place, what, times).prop_map(|(p, (word, rest), t)| format!("{word} {p}{rest}{t}"))
}

fn act_fails() -> impl Strategy<Value = String> {
    let act = prop_oneof![Just("launch"), Just("arrange"), Just("prune"), Just("ask")];
    let kind = prop_oneof![
        3 => Just("other"),
        3 => Just("disk"),
        2 => Just("pins"),
        1 => Just("command"),
        1 => Just("disk-for-good"),
    ];
    (act, kind, 1u32..4).prop_map(|(a, k, n)| format!("{a} fails {k} times {n}"))
}

fn mishap() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0u32..2, status()).prop_map(|(r, s)| format!("exit rank {r} {s}")),
        1 => Just("stop".to_owned()),
        1 => Just("stop after-save".to_owned()),
        1 => Just("stop now".to_owned()),
        4 => Just("save".to_owned()),
        1 => (10u64..300).prop_map(|n| format!("hand-back {n}s")),
        2 => (1u64..300).prop_map(|n| format!("suspend {n}m")),
        1 => Just("journal stall".to_owned()),
        2 => Just("journal recover".to_owned()),
        1 => Just("io hang".to_owned()),
        2 => Just("io recover".to_owned()),
        1 => Just("lease lost".to_owned()),
        3 => Just("supervisor dies".to_owned()),
        2 => Just("guard dies".to_owned()),
        2 => (1u64..200).prop_map(|n| format!("unkillable {n}s")),
        6 => Just("new term".to_owned()),
        3 => wish().prop_map(|w| format!("new term {w}")),
        1 => Just("reboot".to_owned()),
        2 => (1u32..6, any::<bool>())
            .prop_map(|(n, gone)| format!("late {} attempt {n}", if gone { "gone" } else { "exit" })),
        3 => disk(),
        1 => number().prop_map(|n| format!("remove {n}")),
        1 => act_fails(),
        1 => fault(),
    ]
}

fn timed(last: u64) -> impl Strategy<Value = String> {
    (1u64..last, mishap()).prop_map(|(t, v)| format!("at {t}ms {v}"))
}

/// Anything may happen.
fn wild() -> impl Strategy<Value = Lines> {
    let door = prop_oneof![Just(""), Just("door")];
    let options = (door, prop::collection::vec(option(), 0..4));
    let options = options.prop_map(|(door, o)| vec![format!("spec last=12 {door} {}", o.join(" "))]);
    (
        options,
        prop::collection::vec(disk(), 0..6),
        prop::collection::vec(prop_oneof![3 => fault(), 1 => act_fails()], 0..4),
        prop::collection::vec(timed(60_000), 0..14),
    )
        .prop_map(|(a, b, c, d)| Lines([a, b, c, d, vec!["at 45m end".to_owned()]].concat()))
}

/// The same as a text.
pub(crate) fn wild_text() -> impl Strategy<Value = String> {
    wild().prop_map(|lines| lines.0.join("\n"))
}

/// States that a trainer with one set may leave: in place, beside it, and copies.
fn set() -> impl Strategy<Value = String> {
    let truth = prop_oneof![
        6 => Just(Truth::Whole),
        2 => Just(Truth::Torn),
        2 => Just(Truth::Damaged),
        2 => Just(Truth::Rotten),
        1 => Just(Truth::Unsafe),
        1 => Just(Truth::Unreadable),
    ];
    let place = prop_oneof![2 => Just("live"), 2 => Just("own"), 2 => Just("kept"), 1 => Just("older")];
    prop_oneof![
        6 => (place, truth, number()).prop_map(|(p, t, n)| format!("{p} {} {n}", truth_word(t))),
        2 => tracker().prop_map(|t| format!("tracker {t}")),
    ]
}

/// The same with a trainer that keeps one set, in place or each save in a directory of its own.
fn wild_sets() -> impl Strategy<Value = Lines> {
    let kind = prop_oneof![Just("areal"), Just("areal own")];
    let options = (kind, prop::collection::vec(option(), 0..4))
        .prop_map(|(kind, o)| vec![format!("spec {kind} last=12 {}", o.join(" "))]);
    let mishap = mishap().prop_filter("a step in a directory", |m| {
        !m.starts_with("disk") && !m.starts_with("elsewhere")
    });
    let mishaps = prop_oneof![6 => mishap, 2 => set()];
    let timed = (1u64..60_000, mishaps).prop_map(|(t, v)| format!("at {t}ms {v}"));
    (
        options,
        prop::collection::vec(set(), 0..6),
        prop::collection::vec(prop_oneof![3 => fault(), 1 => act_fails()], 0..4),
        prop::collection::vec(timed, 0..14),
    )
        .prop_map(|(a, b, c, d)| Lines([a, b, c, d, vec!["at 45m end".to_owned()]].concat()))
}

/// Misfortunes that pass: the trainer itself always works.
fn passing() -> impl Strategy<Value = Lines> {
    let mishap = prop_oneof![
        4 => (0u32..2).prop_map(|r| format!("exit rank {r} signal KILL")),
        1 => (1u64..300).prop_map(|n| format!("suspend {n}m")),
        1 => Just("guard dies".to_owned()),
        1 => (1u64..200).prop_map(|n| format!("unkillable {n}s")),
        1 => Just("launch fails other".to_owned()),
        1 => Just("arrange fails disk".to_owned()),
        1 => Just("late exit attempt 1".to_owned()),
    ];
    let pairs = prop_oneof![
        Just(("journal stall", "journal recover")),
        Just(("io hang", "io recover")),
        Just(("supervisor dies", "new term")),
        Just(("reboot", "new term")),
    ];
    (
        prop::collection::vec((1u64..60_000, mishap), 0..8),
        prop::collection::vec((1u64..60_000, 1u64..60_000, pairs), 0..2),
        prop_oneof![
            Just(""),
            Just(" keep=2"),
            Just(" depth=full"),
            Just(" scan-interval=1s"),
            // Not in place: killed in a save before a copy was made, there is nothing to go on from, and a person is asked.
            Just(" areal own"),
            Just(" areal own scan-interval=1s")
        ],
    )
        .prop_map(|(single, paired, options)| {
            let mut lines = vec![format!("spec last=12 retries=99{options}")];
            lines.extend(single.iter().map(|(t, v)| format!("at {t}ms {v}")));
            for (t, d, (bad, good)) in &paired {
                lines.push(format!("at {t}ms {bad}"));
                lines.push(format!("at {}ms {good}", t + d));
            }
            // Whatever is left hanging by their overlap passes too.
            lines.extend(["at 10m journal recover", "at 10m io recover"].map(str::to_owned));
            Lines(lines)
        })
}

pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn whatever_happens_the_invariants_hold(lines in wild()) {
        play(&lines)?;
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn they_hold_of_a_trainer_that_keeps_one_set(lines in wild_sets()) {
        play(&lines)?;
    }
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn a_trainer_that_works_comes_to_its_end(lines in passing()) {
        let w = play(&lines)?;
        let outcome = w.s.outcome.clone();
        prop_assert!(
            w.is_over() && outcome == Some(RunOutcome::Finished { step: Some(Step(12)) }),
            "{:?}, {:?}\n{lines:?}", w.s.mode, outcome
        );
    }
}

/// The generated scripts reach what they are meant to: without this, the properties above could hold of nothing.
#[test]
fn the_generated_scripts_see_all_kinds_of_ends() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut exits, mut attempts, mut terms) = (std::collections::BTreeSet::new(), 0, 0);
    for _ in 0..200 {
        let lines = wild().new_tree(&mut runner).unwrap().current();
        let w = play(&lines).unwrap();
        exits.extend(w.s.outcome.as_ref().map(RunOutcome::exit_code));
        attempts += u32::from(w.s.attempts.0 > 2);
        let begun =
            |r: &JournalRecord| matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        terms += u32::from(w.log.iter().filter(|l| begun(&l.record)).count() > 2);
    }
    for code in [0, 3, 4, 5, 6, 7, 69] {
        assert!(exits.contains(&code), "no script ended with {code}: {exits:?}");
    }
    assert!(attempts > 10, "{attempts} scripts launched more than twice");
    assert!(terms > 20, "{terms} scripts had more than two terms");
}
