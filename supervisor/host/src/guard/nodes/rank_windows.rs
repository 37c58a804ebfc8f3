//! What the ranks of all nodes use, combined into one window.
//!
//! Each node ends its own windows of about ten seconds; the launcher keeps the newest of each where the guard reads
//! it. A window of the gang ends once every node has reported one since the last: none counts twice, and further
//! windows of a node are added up. If a node reports none because it is cut off, crowded or of an older release, no
//! rank is judged: a collective may be waiting for that node, and its silence has a rule of its own.

use super::WINDOWS_AT;
use crate::guard::counters::{WINDOW_MS, WindowCounts};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::{RANKS_LIMIT, RankSample};

/// A window reported this long ago says nothing about now, and longer windows say little.
const OLD_MS: u64 = 3 * WINDOW_MS;
const LIMIT: usize = 1 << 20;
/// Most ranks, or processes of Ray, in it; with more, none are reported.
const CROWD: usize = 4 * RANKS_LIMIT;

/// What a rank used in a window, as its node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankPulse {
    pub(crate) pulse: RankSample,
    /// The name of its process, if each is reported separately.
    pub(crate) name: Option<String>,
    pub(crate) waits: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct NodeWindow {
    name: String,
    at: u64,
    over_ms: u64,
    network: Option<u64>,
    ranks: Vec<RankPulse>,
}

impl NodeWindow {
    fn go_on(&mut self, next: Self) {
        let before = std::mem::replace(self, next);
        self.over_ms = self.over_ms.saturating_add(before.over_ms);
        self.network = sum(self.network, before.network);
        for rank in &mut self.ranks {
            let key = |r: &RankPulse| (r.pulse.worker, r.pulse.pid);
            if let Some(b) = before.ranks.iter().find(|b| key(b) == key(rank)) {
                rank.pulse = RankSample {
                    cpu_ms: rank.pulse.cpu_ms.saturating_add(b.pulse.cpu_ms),
                    wait_ms: rank.pulse.wait_ms.saturating_add(b.pulse.wait_ms),
                    switches: rank.pulse.switches.saturating_add(b.pulse.switches),
                    faults: rank.pulse.faults.saturating_add(b.pulse.faults),
                    bytes: rank.pulse.bytes.saturating_add(b.pulse.bytes),
                    ..rank.pulse
                };
            }
        }
    }

    /// The share for ten seconds.
    fn share(&self, counted: u64) -> u64 {
        counted.saturating_mul(WINDOW_MS) / self.over_ms.max(1)
    }
}

/// The launcher's side: the newest window of each node.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Windows that have not been received completely.
    open: BTreeMap<u32, BTreeMap<(WorkerId, i32), RankPulse>>,
    ended: BTreeMap<u32, NodeWindow>,
}

impl Windows {
    pub(super) fn add(&mut self, node: u32, told: RankPulse) {
        let ranks = self.open.entry(node).or_default();
        if ranks.len() < RANKS_LIMIT {
            ranks.insert((told.pulse.worker, told.pulse.pid), told);
        }
    }

    pub(super) fn end(&mut self, node: u32, name: &str, at: u64, over_ms: u64, network: Option<u64>) {
        let ranks = self.open.remove(&node).unwrap_or_default();
        let window = NodeWindow {
            name: name.to_owned(),
            at,
            over_ms,
            network,
            ranks: ranks.into_values().collect(),
        };
        self.ended.insert(node, window);
    }

    /// Starts with a checksum: a concurrent reader may see part of the new and part of the old text.
    pub(super) fn write(&self, memory: &File) -> io::Result<()> {
        let told: usize = self.ended.values().map(|window| window.ranks.len()).sum();
        let nothing = BTreeMap::new();
        let json = serde_json::to_vec(if told > CROWD { &nothing } else { &self.ended })?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let head = [crc32fast::hash(&json).to_le_bytes(), length.to_le_bytes()].concat();
        memory.write_all_at(&[head, json].concat(), WINDOWS_AT)
    }
}

/// A sum is unknown if a part of it is.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.saturating_add(b))
}

fn read(memory: &File, seen: &mut [u8; 8]) -> Option<BTreeMap<u32, NodeWindow>> {
    let mut head = [0_u8; 8];
    memory.read_exact_at(&mut head, WINDOWS_AT).ok()?;
    let [a, b, c, d, length @ ..] = head;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    if head == *seen || length > LIMIT {
        return None;
    }
    let mut json = vec![0; length];
    memory.read_exact_at(&mut json, WINDOWS_AT + 8).ok()?;
    if crc32fast::hash(&json) != u32::from_le_bytes([a, b, c, d]) {
        return None;
    }
    *seen = head;
    serde_json::from_slice(&json).ok()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub(crate) counts: WindowCounts,
    pub(crate) places: BTreeMap<(WorkerId, i32), RankLocation>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RankLocation {
    pub(crate) node: String,
    pub(crate) name: Option<String>,
    pub(crate) waits: Option<String>,
}

/// The guard's side: what the nodes reported since the last window of the gang.
#[derive(Debug)]
pub(super) struct NodeWindows {
    nodes: u32,
    ranks: usize,
    seen: [u8; 8],
    heard: BTreeMap<u32, u64>,
    held: BTreeMap<u32, NodeWindow>,
}

impl NodeWindows {
    pub(super) fn new(nodes: u32, ranks: usize) -> Self {
        Self {
            nodes,
            ranks,
            seen: [0; 8],
            heard: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    pub(super) fn read(&mut self, memory: &File, now: u64) {
        let told = read(memory, &mut self.seen).unwrap_or_default();
        self.add(told, now);
    }

    fn add(&mut self, told: BTreeMap<u32, NodeWindow>, now: u64) {
        let is_old = |window: &NodeWindow| window.at.saturating_add(OLD_MS) < now;
        for (node, window) in told {
            let before = self.heard.insert(node, window.at);
            if node >= self.nodes || is_old(&window) || before.is_some_and(|at| at >= window.at) {
                continue;
            }
            match self.held.get_mut(&node) {
                Some(held) if held.over_ms.saturating_add(window.over_ms) <= OLD_MS => held.go_on(window),
                _ => drop(self.held.insert(node, window)),
            }
        }
        self.held.retain(|_, window| !is_old(window));
    }

    /// The combined window of all ranks, if it has ended.
    pub(super) fn take(&mut self) -> Option<Gathered> {
        if !usize::try_from(self.nodes).is_ok_and(|n| self.held.len() == n) {
            return None;
        }
        let mut gathered = Gathered {
            counts: WindowCounts {
                over_ms: WINDOW_MS,
                network: Some(0),
                pulses: Vec::new(),
            },
            places: BTreeMap::new(),
        };
        let mut workers = BTreeSet::new();
        for window in std::mem::take(&mut self.held).into_values() {
            let sent = window.network.map(|bytes| window.share(bytes));
            gathered.counts.network = sum(gathered.counts.network, sent);
            for RankPulse { pulse, name, waits } in &window.ranks {
                let place = RankLocation {
                    node: window.name.clone(),
                    name: name.clone(),
                    waits: waits.clone(),
                };
                workers.insert(pulse.worker);
                gathered.places.insert((pulse.worker, pulse.pid), place);
                gathered.counts.pulses.push(RankSample {
                    cpu_ms: window.share(pulse.cpu_ms),
                    wait_ms: window.share(pulse.wait_ms),
                    switches: window.share(pulse.switches),
                    faults: window.share(pulse.faults),
                    bytes: window.share(pulse.bytes),
                    ..*pulse
                });
            }
        }
        (workers.len() == self.ranks).then_some(gathered)
    }
}

#[cfg(test)]
mod tests;
