//! Activity of ranks, drawn from windows that were recorded of real trainers (`tests/fixtures/activity`).

use crate::traces::{Seen, SeenRank, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::{ActivityWindow, RankSample};

pub(super) const WINDOW: u64 = 10_000;

/// A trainer that was recorded.
pub(super) struct Trainer {
    pub(super) name: &'static str,
    /// Each hang is a run of its own, with healthy windows before it: processes of Ray that one driver started.
    is_ray: bool,
    /// The two ranks among the recorded processes; the second is the one that hangs.
    pub(super) ranks: [usize; 2],
}

pub(super) const TRAINERS: [Trainer; 3] = [
    Trainer {
        name: "verl_sft",
        is_ray: false,
        ranks: [0, 1],
    },
    Trainer {
        name: "verl_ppo",
        is_ray: true,
        ranks: [15, 16],
    },
    Trainer {
        name: "areal_sft",
        is_ray: false,
        ranks: [0, 1],
    },
];

impl Trainer {
    /// The rank that hangs, as a look names it.
    pub(super) fn who_hangs(&self) -> String {
        let worker = if self.is_ray { 0 } else { self.ranks[1] };
        format!("worker {worker} (pid {})", 1000 + self.ranks[1])
    }
}

/// A small generator of random numbers that needs no crate and gives the same everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither of them.
    pub(super) fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

#[derive(Debug, Deserialize)]
struct Kept<T> {
    source: String,
    #[serde(flatten)]
    by: BTreeMap<String, T>,
}

#[derive(Debug, Deserialize)]
struct BeforeAndAfter {
    healthy: Vec<Seen>,
    stalled: Vec<Seen>,
}

/// Healthy windows of a trainer, and those of a hang.
pub(super) struct Traces {
    pub(super) source: String,
    is_ray: bool,
    ranks: [usize; 2],
    healthy: Vec<Seen>,
    hung: Vec<Seen>,
}

impl Traces {
    pub(super) fn read(trainer: &Trainer, hang: &str) -> Self {
        let file = format!("{}.json", trainer.name);
        let (source, healthy, hung) = if trainer.is_ray {
            let Kept { source, mut by } = read::<Kept<BeforeAndAfter>>(&file);
            let run = by.remove(hang).unwrap();
            (source, run.healthy, run.stalled)
        } else {
            let Kept { source, mut by } = read::<Kept<Vec<Seen>>>(&file);
            (source, by.remove("healthy").unwrap(), by.remove(hang).unwrap())
        };
        let (is_ray, ranks) = (trainer.is_ray, trainer.ranks);
        Self {
            source,
            is_ray,
            ranks,
            healthy,
            hung,
        }
    }

    /// Processes that the guard started.
    pub(super) fn workers(&self) -> std::ops::Range<i32> {
        1000..if self.is_ray { 1001 } else { 1002 }
    }

    pub(super) fn healthy(&self, random: &mut Random) -> ActivityWindow {
        self.window(&self.healthy, random)
    }

    pub(super) fn hung(&self, random: &mut Random) -> ActivityWindow {
        self.window(&self.hung, random)
    }

    /// One rank works for both: it compiles, or collects what nobody uses. The other waits, as it does for one that hangs.
    pub(super) fn alone(&self, random: &mut Random) -> ActivityWindow {
        let [works, waits] = self.ranks;
        let mut window = self.healthy(random);
        window.network = Some(0);
        window.pulses[waits] = RankSample {
            worker: window.pulses[waits].worker,
            pid: window.pulses[waits].pid,
            ..self.hung(random).pulses[works]
        };
        window
    }

    /// The rank that hangs was stopped by a signal.
    pub(super) fn stopped(&self, random: &mut Random) -> ActivityWindow {
        let mut window = self.hung(random);
        window.pulses[self.ranks[1]].state = b'T';
        window
    }

    /// A window of ten seconds, from pieces of a trace that follow each other.
    fn window(&self, pieces: &[Seen], random: &mut Random) -> ActivityWindow {
        let mut at = random.below(pieces.len());
        let (mut out, mut network) = (ActivityWindow::default(), 0);
        while out.over_ms < WINDOW {
            let seen = &pieces[at % pieces.len()];
            at += 1;
            out.over_ms += seen.over_ms;
            network += seen.network;
            out.pulses.resize(seen.ranks.len(), RankSample::default());
            for ((p, r), n) in out.pulses.iter_mut().zip(&seen.ranks).zip(0..) {
                *p = self.added(p, r, n);
            }
        }
        out.network = Some(network);
        out
    }

    fn added(&self, before: &RankSample, seen: &SeenRank, n: u32) -> RankSample {
        RankSample {
            worker: WorkerId(if self.is_ray { 0 } else { n }),
            pid: 1000 + n as i32,
            state: seen.state as u8,
            cpu_ms: before.cpu_ms + seen.cpu_ms,
            wait_ms: before.wait_ms + seen.wait_ms,
            switches: before.switches + seen.switches,
            faults: before.faults + seen.faults,
            bytes: before.bytes + seen.bytes,
        }
    }
}
