//! Windows of a real PPO run of AReaL, before and after an actor or its rollout server hangs, replayed
//! (`tests/fixtures/activity/areal_ppo*.json`).

use crate::traces::{Seen, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::observe::activity::{ActivitySample, IN_A_ROW, Watcher};
use supervise_core::observe::durations::DurationKind;

#[derive(Debug, Deserialize)]
struct Traces {
    #[serde(rename = "source")]
    _source: String,
    #[serde(flatten)]
    by: BTreeMap<String, Trace>,
}

#[derive(Debug, Deserialize)]
struct Trace {
    healthy: Vec<Seen>,
    stalled: Vec<Seen>,
}

/// Steps of two seconds; and steps of a minute or two, in which actors and rollout server take turns that are longer than a window.
const SHORT: &str = "areal_ppo.json";
const TURNS: &str = "areal_ppo_turns.json";

/// Follows a run that got on. Nothing is a stall before progress is told, be it after each window or after all of them.
fn known(healthy: &[Seen], name: &str) -> Watcher {
    let mut watcher = Watcher::default();
    let mut looks = |tells: bool| {
        for seen in healthy {
            let look = watcher.window(seen.window(), DurationKind::Step);
            assert!(!look.is_stuck(), "{name}: {look:?}");
            if tells {
                watcher.progress();
            }
        }
    };
    looks(true);
    looks(false);
    watcher.progress();
    watcher
}

/// After as many windows as it takes at least, and until the end.
fn is_seen(watcher: &mut Watcher, stalled: &[Seen], name: &str) {
    let looks: Vec<_> = stalled
        .iter()
        .map(|seen| watcher.window(seen.window(), DurationKind::Step))
        .collect();
    let first = looks.iter().position(ActivitySample::is_stuck);
    let first = first.unwrap_or_else(|| panic!("{name}: nothing seen: {looks:#?}"));
    assert!(first < IN_A_ROW as usize, "{name}: only after {first} windows");
    assert!(
        looks[first..].iter().all(ActivitySample::is_stuck),
        "{name}: it comes and goes"
    );
}

#[test]
fn a_hang_of_an_actor_or_of_the_rollout_server_is_seen() {
    let traces: Traces = read(SHORT);
    for (name, trace) in &traces.by {
        is_seen(&mut known(&trace.healthy, name), &trace.stalled, name);
    }
}

/// Actors wait for answers that take long, and the server for the actors: neither is a hang. One that sleeps is.
#[test]
fn turns_that_take_minutes_are_no_hang_and_one_that_sleeps_is_seen() {
    let (turns, short): (Traces, Traces) = (read(TURNS), read(SHORT));
    for (name, trace) in &turns.by {
        for sleeps in ["actor_sleeps", "rollout_sleeps"] {
            let name = &format!("{sleeps} after {name}");
            is_seen(&mut known(&trace.healthy, name), &short.by[sleeps].stalled, name);
        }
    }
}

/// If healthy windows hold nothing but computing, neither faults nor traffic, no sign tells them from a spin: it is left to the
/// hard limit, or to a GPU.
#[test]
fn a_spin_that_looks_like_a_healthy_turn_is_not_judged() {
    let turns: Traces = read(TURNS);
    for (name, trace) in &turns.by {
        let mut watcher = known(&trace.healthy, name);
        for seen in &trace.stalled {
            let look = watcher.window(seen.window(), DurationKind::Step);
            assert!(!look.is_stuck(), "{name}: {}: {look:?}", look.words());
        }
    }
}
