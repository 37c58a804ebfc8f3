//! Windows of a real PPO run of AReaL, before and after an actor or its rollout server hangs, replayed
//! (`tests/fixtures/activity/areal_ppo*.json`).

use crate::traces::{Seen, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::activity::{IN_A_ROW, Watcher};
use supervise_core::durations::Clock;

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

/// Steps shorter than a window, and such in which actors and rollout server take turns that are longer.
const FILES: [&str; 1] = ["areal_ppo.json"];

fn known(trace: &Trace, name: &str) -> Watcher {
    let mut watcher = Watcher::default();
    for seen in &trace.healthy {
        let look = watcher.window(seen.window(), Clock::Step);
        assert!(!look.is_stuck(), "{name}: {look:?}");
        watcher.progress();
    }
    watcher
}

/// Healthy windows are no stall, with progress after each or none at all; a hang is seen after as many windows as it takes at least.
#[test]
fn a_hang_of_an_actor_or_of_the_rollout_server_is_seen() {
    for file in FILES {
        let traces: Traces = read(file);
        for (name, trace) in &traces.by {
            let name = &format!("{file}: {name}");
            let mut watcher = known(trace, name);
            // A step that takes as long as all of them.
            for seen in &trace.healthy {
                let look = watcher.window(seen.window(), Clock::Step);
                assert!(!look.is_stuck(), "{name}: {look:?}");
            }
            watcher.progress();
            let looks: Vec<_> = trace
                .stalled
                .iter()
                .map(|seen| watcher.window(seen.window(), Clock::Step))
                .collect();
            let first = looks.iter().position(|look| look.is_stuck());
            let first = first.unwrap_or_else(|| panic!("{name}: nothing seen: {looks:#?}"));
            assert!(first < IN_A_ROW as usize, "{name}: only after {first} windows");
            assert!(looks[first..].iter().all(|l| l.is_stuck()), "{name}: it comes and goes");
        }
    }
}
