//! Windows of a real PPO run over Ray, before and after a worker hangs (`tests/fixtures/activity/verl_ppo.json`), replayed.

#![expect(clippy::disallowed_methods, reason = "traces are read from the source tree")]

use serde::Deserialize;
use std::path::Path;
use supervise_core::activity::{IN_A_ROW, Pulse, Watcher, Window};
use supervise_core::durations::Clock;
use supervise_core::id::WorkerId;

#[derive(Debug, Deserialize)]
struct Traces {
    one_sleeps: Trace,
    one_spins: Trace,
}

#[derive(Debug, Deserialize)]
struct Trace {
    healthy: Vec<Seen>,
    stalled: Vec<Seen>,
}

#[derive(Debug, Deserialize)]
struct Seen {
    over_ms: u64,
    network: u64,
    ranks: Vec<SeenRank>,
}

#[derive(Debug, Deserialize)]
struct SeenRank {
    state: char,
    cpu_ms: u64,
    wait_ms: u64,
    switches: u64,
    faults: u64,
    bytes: u64,
}

impl Seen {
    /// As a guard counts it: one worker, the driver, with a process of Ray in each rank.
    fn window(&self) -> Window {
        let pulse = |(r, n): (&SeenRank, i32)| Pulse {
            worker: WorkerId(0),
            pid: 1000 + n,
            state: r.state as u8,
            cpu_ms: r.cpu_ms,
            wait_ms: r.wait_ms,
            switches: r.switches,
            faults: r.faults,
            bytes: r.bytes,
        };
        Window {
            over_ms: self.over_ms,
            network: self.network,
            output: 0,
            pulses: self.ranks.iter().zip(0..).map(pulse).collect(),
        }
    }
}

/// Healthy windows are no stall, with progress after each or none at all; a hang is seen after as many windows as it takes at least.
#[test]
fn a_worker_of_ray_that_sleeps_or_spins_is_seen_though_all_processes_wake_up() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/activity/verl_ppo.json");
    let traces: Traces = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (name, trace) in [("sleeps", traces.one_sleeps), ("spins", traces.one_spins)] {
        let mut watcher = Watcher::default();
        for seen in &trace.healthy {
            assert!(!watcher.window(seen.window(), Clock::Step).is_stuck(), "{name}");
            watcher.progress();
        }
        // A step that takes as long as all of them.
        for seen in &trace.healthy {
            assert!(!watcher.window(seen.window(), Clock::Step).is_stuck(), "{name}");
        }
        watcher.progress();
        let mut looks = trace
            .stalled
            .iter()
            .map(|seen| watcher.window(seen.window(), Clock::Step));
        let stuck = looks.position(|look| look.is_stuck()).expect(name);
        assert!(stuck <= IN_A_ROW as usize, "{name}: only after {stuck} windows");
        assert!(looks.all(|look| look.is_stuck()), "{name}: it comes and goes");
    }
}
