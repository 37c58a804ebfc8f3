//! Windows that were recorded of real trainers (`tests/fixtures/activity`).

#![expect(clippy::disallowed_methods, reason = "traces are read from the source tree")]

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::{ActivityWindow, DevicePulse, RankSample};

pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/activity")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Seen {
    pub(crate) over_ms: u64,
    pub(crate) network: u64,
    pub(crate) ranks: Vec<SeenRank>,
    #[serde(default)]
    gpus: Vec<SeenDevice>,
}

#[derive(Debug, Deserialize)]
struct SeenDevice {
    watts: f64,
    busy: f64,
    memory: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SeenRank {
    /// Its number, where processes came and went.
    #[serde(default)]
    n: Option<i32>,
    pub(crate) state: char,
    pub(crate) cpu_ms: u64,
    pub(crate) wait_ms: u64,
    pub(crate) switches: u64,
    pub(crate) faults: u64,
    pub(crate) bytes: u64,
}

impl Seen {
    /// As a guard counts it: one worker, the driver, with a process of Ray in each rank.
    pub(crate) fn window(&self) -> ActivityWindow {
        let pulse = |(r, n): (&SeenRank, i32)| RankSample {
            worker: WorkerId(0),
            pid: 1000 + r.n.unwrap_or(n),
            state: r.state as u8,
            cpu_ms: r.cpu_ms,
            wait_ms: r.wait_ms,
            switches: r.switches,
            faults: r.faults,
            bytes: r.bytes,
        };
        let device = |(d, index): (&SeenDevice, u32)| DevicePulse {
            index,
            milliwatts: (d.watts * 1000.0) as u32,
            busy: (d.busy * 10.0) as u32,
            memory: (d.memory * 10.0) as u32,
            own: true,
        };
        ActivityWindow {
            over_ms: self.over_ms,
            network: Some(self.network),
            output: 0,
            pulses: self.ranks.iter().zip(0..).map(pulse).collect(),
            devices: self.gpus.iter().zip(0..).map(device).collect(),
        }
    }
}
