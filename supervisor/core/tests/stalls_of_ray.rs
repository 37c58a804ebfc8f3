//! Windows of a real PPO run over Ray, before and after a worker hangs (`tests/fixtures/activity/verl_ppo.json`), replayed.

use crate::traces::{Seen, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::observe::activity::{IN_A_ROW, Watcher};
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

/// Healthy windows are no stall, with progress after each or none at all; a hang is seen after as many windows as it takes at least.
#[test]
fn a_worker_of_ray_that_sleeps_or_spins_is_seen_though_all_processes_wake_up() {
    let traces: Traces = read("verl_ppo.json");
    assert_eq!(traces.by.len(), 4);
    for (name, trace) in traces.by {
        let mut watcher = Watcher::default();
        for seen in &trace.healthy {
            assert!(!watcher.window(seen.window(), DurationKind::Step).is_stuck(), "{name}");
            watcher.progress();
        }
        // A step that takes as long as all of them.
        for seen in &trace.healthy {
            assert!(!watcher.window(seen.window(), DurationKind::Step).is_stuck(), "{name}");
        }
        watcher.progress();
        let mut looks = trace
            .stalled
            .iter()
            .map(|seen| watcher.window(seen.window(), DurationKind::Step));
        let stuck = looks
            .position(|look| look.is_stuck())
            .unwrap_or_else(|| panic!("{name}: nothing seen"));
        assert!(stuck <= IN_A_ROW as usize, "{name}: only after {stuck} windows");
        assert!(looks.all(|look| look.is_stuck()), "{name}: it comes and goes");
    }
}
