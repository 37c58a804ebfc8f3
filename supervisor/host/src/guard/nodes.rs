//! A gang across the nodes of a Slurm allocation.
//!
//! The guard stays on the first node and starts, in place of each rank, a [`relay`]: its output is the rank's and it
//! exits as the rank does, so that guard and supervisor see ranks as on one machine. One [`launcher`] beside the
//! relays runs a single `srun`, which starts a [`worker`] on each node, the parent of the ranks there. Launcher and
//! node workers exchange [`lines`] over `srun`'s standard streams.
//!
//! If the launcher has not received a node worker's messages for [`SILENCE_MS`], that node worker kills its ranks: a
//! node that is cut off cannot be stopped from outside, and another supervisor may start once the lease has expired,
//! which takes longer. The launcher's heartbeats carry the newest time reported by each node, by that node's own
//! clock: a message delayed in a broken connection is recognized as old whenever it arrives.
//!
//! A node worker also counts what its ranks use, in windows: see [`rank_windows`].

pub mod allocation;
mod ask;
mod handle;
pub mod launcher;
pub(crate) mod lines;
pub mod lost_gang;
mod rank_windows;
pub mod ray;
pub mod relay;
pub mod steps;
pub mod worker;

pub(crate) use handle::NodeLauncher;
pub(crate) use rank_windows::Gathered;
#[cfg(test)]
pub(crate) use rank_windows::RankLocation;

use crate::guard::protocol::{GuardOrder, NodesOrder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::observe::activity::RANKS_LIMIT;

/// A node worker kills its ranks if, as far as it knows, it was not heard for this long. Shorter than the time after
/// which an unrenewed lease expires.
pub const SILENCE_MS: u64 = 40_000;
/// A node last heard, or written to, this long ago has killed its ranks. Includes a margin for clocks and scheduling.
pub const FENCED_MS: u64 = SILENCE_MS + 10_000;
/// How long a step may take to end, before whatever ends it counts as hung: its own end, and the silence of a node
/// that cannot be reached.
pub const ENDED_MS: u64 = 2 * SILENCE_MS;
/// Exit code of a launcher that has started nothing.
pub(crate) const NOT_BEGUN: i32 = 70;
/// Offset of the message in the memory shared by guard and launcher.
pub(crate) const WORDS_AT: u64 = 8;
/// Offset of the nodes' windows in that memory.
pub(crate) const WINDOWS_AT: u64 = 4096;
pub(crate) const BEAT_MS: u64 = 1000;
pub(crate) const ANSWER_MS: u64 = 2000;
/// Longest line to a node: the launch itself.
pub(crate) const ORDER_LIMIT: usize = crate::guard::protocol::ORDER_LIMIT;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RanksOrder {
    pub(crate) per_node: u32,
    pub(crate) tag: String,
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) own: Vec<Vec<(String, String)>>,
    /// Nodes report what their ranks use. An older launcher would take that for output.
    #[serde(default)]
    pub(crate) pulses: bool,
    #[serde(default)]
    pub(crate) single: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LauncherOrder {
    pub(crate) nodes: u32,
    pub(crate) step: String,
    pub(crate) on: Vec<String>,
    pub(crate) exe: String,
    pub(crate) ranks: RanksOrder,
}

impl LauncherOrder {
    /// Separates what the ranks share from what differs: the order goes to every node.
    pub(crate) fn new(order: &GuardOrder, nodes: &NodesOrder, marks: &[(String, String)]) -> Option<Self> {
        let first = order.workers.first()?;
        let count = u32::try_from(order.workers.len()).ok()?;
        if nodes.nodes == 0 || !count.is_multiple_of(nodes.nodes) {
            return None;
        }
        let maps: Vec<BTreeMap<&String, &String>> = order
            .workers
            .iter()
            .map(|w| w.env.iter().map(|(k, v)| (k, v)).collect())
            .collect();
        let is_shared = |k: &String, v: &String| maps.iter().all(|m| m.get(k) == Some(&v));
        let split = |shared: bool, env: &[(String, String)]| -> Vec<(String, String)> {
            let kept = env.iter().filter(|(k, v)| is_shared(k, v) == shared);
            kept.cloned().collect()
        };
        let mut env = split(true, &first.env);
        env.retain(|(k, _)| marks.iter().all(|(mark, _)| mark != k));
        env.extend(marks.iter().cloned());
        Some(Self {
            nodes: nodes.nodes,
            step: nodes.step.clone(),
            on: nodes.on.clone(),
            exe: order.exe.to_string(),
            ranks: RanksOrder {
                per_node: count / nodes.nodes,
                tag: format!("{}/", order.run),
                argv: first.argv.clone(),
                cwd: first.cwd.to_string(),
                env,
                own: order.workers.iter().map(|w| split(false, &w.env)).collect(),
                pulses: order.workers.len() <= RANKS_LIMIT,
                single: first.argv.get(1).is_some_and(|word| word == "__ray"),
            },
        })
    }
}
