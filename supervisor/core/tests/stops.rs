//! A stop always stops: in every state, whatever else fails at that moment and never comes back.

use crate::world::World;
use crate::world::script::{Verb, parse};
use proptest::prelude::*;
use supervise_core::journal::record::{ActKind, JournalRecord, RunOutcome};
use supervise_core::state::RunMode;

/// What does not answer any more from the moment of the stop on: nothing, the journal (a full disk, or its dead helper), the
/// I/O worker (a hung mount, or its dead helper), both.
const FAULTS: [&[&str]; 4] = [&[], &["journal stall"], &["io hang"], &["journal stall", "io hang"]];
const STOPS: [&str; 2] = ["stop", "stop now"];
/// After the kill: the tree's end is reported, the last look at the disk, the last words in the journal.
const TAIL: u64 = 15_000;

/// How long a stop may take until the kill.
fn graces(w: &World, stop: &str) -> u64 {
    let p = &w.spec.policy;
    match stop {
        "stop now" => 0,
        "stop within 20s" => 20_000 - TAIL,
        "hand-back 40s" => 40_000 - TAIL,
        _ => p.grace.save.0 + p.grace.stop.0,
    }
}

fn verb(w: &mut World, text: &str) {
    let script = parse(text).unwrap();
    let verbs: Vec<Verb> = script.into_iter().map(|(_, v)| v).collect();
    verbs.iter().for_each(|v| w.verb(v));
}

/// Plays a script up to a moment; then things fail for good, and a stop is asked for. `Err`: what did not hold.
fn stopped(script: &str, at: u64, faults: &[&str], stop: &str) -> Result<World, String> {
    let mut w = World::new(parse(script)?);
    w.run_until(at);
    faults.iter().for_each(|f| verb(&mut w, f));
    if !w.is_alive() || w.s.mode == RunMode::Finished {
        return Ok(w);
    }
    let before = w.log.len();
    verb(&mut w, stop);
    let end = at + graces(&w, stop) + TAIL;
    w.run_until(end);
    if let Some(what) = &w.broken {
        return Err(what.clone());
    }
    let begun = w.log[before..].iter().find(|l| match &l.record {
        JournalRecord::Intended { act, .. } => !matches!(
            act.kind,
            ActKind::Finish(_) | ActKind::KillTree | ActKind::Signal { .. }
        ),
        _ => false,
    });
    if let Some(l) = begun {
        return Err(format!("something new was begun after the stop: {:?}", l.record));
    }
    if !w.is_over() || w.has_workers() {
        return Err(format!(
            "{stop} with {faults:?} in state {} did not end it; now {:?}",
            w.s.mode.word(),
            w.s.mode
        ));
    }
    Ok(w)
}

/// Scripts that are in a state at a moment.
const STATES: &[(&str, &str, u64)] = &[
    ("choosing", "spec last=8", 100),
    ("arranging", "spec last=8\ndisk whole 2\ndisk torn 4\ntracker 2\n", 250),
    ("launching", "spec last=8", 250),
    ("launching", "spec last=8\ndisk whole 2\ntracker 2\n", 250),
    ("running", "spec last=8", 2_000),
    ("running", "spec last=8\n", 4_500),
    ("running", "spec last=8 deaf", 4_500),
    ("draining", "spec last=8 save=20s save-grace=30s\nat 5s stop", 5_500),
    ("stopping", "spec last=8 deaf\nat 3500ms stop", 4_000),
    ("stopping", "spec last=8\nat 3500ms exit rank 0 signal KILL", 3_550),
    (
        "fencing",
        "spec last=8\nat 5s supervisor dies\nat 5s guard dies\nat 8s new term",
        8_050,
    ),
    ("waiting", "spec last=8\nfail step 1 signal KILL times 3", 5_000),
    (
        "waiting",
        "spec last=8\ndisk whole 2\ndisk unreadable 4\ntracker 4",
        1_000,
    ),
    (
        "waiting",
        "spec last=8\nat 3s journal stall\nat 3500ms exit rank 0 signal KILL",
        5_000,
    ),
];

#[test]
fn a_stop_ends_every_state_whatever_fails_with_it() {
    for (word, script, at) in STATES {
        let mut w = World::new(parse(script).unwrap());
        w.run_until(*at);
        assert_eq!(w.s.mode.word(), *word, "{script}");
        for faults in FAULTS {
            for stop in STOPS {
                let w = stopped(script, *at, faults, stop).unwrap_or_else(|e| panic!("{e}\n{script}"));
                assert_eq!(w.s.outcome, Some(RunOutcome::Stopped), "{script}\n{faults:?}");
            }
        }
    }
}

/// A process that SIGKILL does not end is named, and ends the run with its own code.
#[test]
fn a_stop_names_what_does_not_die() {
    let script = "spec last=8\nat 3s unkillable 1h\n";
    for faults in FAULTS {
        let mut w = World::new(parse(script).unwrap());
        w.run_until(4_000);
        faults.iter().for_each(|f| verb(&mut w, f));
        verb(&mut w, "stop now");
        w.run_until(60_000);
        let outcome = w.s.outcome.clone();
        let Some(RunOutcome::Environment { why }) = &outcome else {
            panic!("{outcome:?}, {:?}, {faults:?}", w.s.mode)
        };
        assert!(why.contains("1011") && w.is_over(), "{why}");
    }
}

/// A wish to stop at the next save is fulfilled where nothing may be launched that could save.
#[test]
fn a_stop_at_the_next_save_does_not_wait_for_a_journal() {
    let script = "spec last=8\nat 3s journal stall\nat 3500ms exit rank 0 signal KILL\nat 10s stop after-save";
    let mut w = World::new(parse(script).unwrap());
    w.run_until(20_000);
    assert_eq!((w.is_over(), w.s.outcome.clone()), (true, Some(RunOutcome::Stopped)));
}

/// A machine that is taken away is given back in time, whatever else fails, and the run goes on elsewhere.
#[test]
fn a_notice_ends_every_state_in_time() {
    for (_, script, at) in STATES {
        for faults in FAULTS {
            let w = stopped(script, *at, faults, "hand-back 40s").unwrap_or_else(|e| panic!("{e}\n{script}"));
            let asked = script.contains("stop");
            let expected = if asked {
                RunOutcome::Stopped
            } else {
                RunOutcome::OutOfTime
            };
            assert_eq!(w.s.outcome, Some(expected), "{script}\n{faults:?}");
        }
    }
}

/// A scheduler kills everything some time after its SIGTERM: all is over before.
#[test]
fn a_schedulers_sigterm_ends_every_state_before_its_kill() {
    for (_, script, at) in STATES {
        for faults in FAULTS {
            let stop = "stop within 20s";
            let w = stopped(script, *at, faults, stop).unwrap_or_else(|e| panic!("{e}\n{script}"));
            assert_eq!(w.s.outcome, Some(RunOutcome::Stopped), "{script}\n{faults:?}");
        }
    }
}

fn chaos() -> impl Strategy<Value = (String, u64, usize, usize)> {
    (
        crate::machine::wild_text(),
        1u64..60_000,
        0..FAULTS.len(),
        0..STOPS.len(),
    )
}

proptest! {
    #![proptest_config(crate::machine::config(300))]

    #[test]
    fn a_stop_ends_whatever_went_before((script, at, faults, stop) in chaos()) {
        let upto = upto(&script, at);
        stopped(&upto, at, FAULTS[faults], STOPS[stop])
            .map_err(|e| TestCaseError::fail(format!("{e}\nat {at} ms of\n----\n{upto}\n----")))?;
    }
}

/// The lines of a script that are due before a moment.
fn upto(script: &str, moment: u64) -> String {
    let due = |line: &&str| match line.strip_prefix("at ").and_then(|l| l.split_once("ms ")) {
        // What cannot die is another test's; a machine that sleeps has its own clock.
        Some((at, rest)) => {
            at.parse::<u64>().is_ok_and(|at| at < moment)
                && !rest.starts_with("unkillable")
                && !rest.starts_with("suspend")
        }
        None => true,
    };
    script.lines().filter(due).collect::<Vec<_>>().join("\n")
}
