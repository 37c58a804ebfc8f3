//! A gang over the nodes of a Slurm allocation.
//!
//! The guard stays on the first node and starts, in place of each rank, a [`relay`]: its output is the rank's and it ends as the rank
//! does, so that guard and supervisor see ranks as on one machine. One [`launcher`] beside the relays runs a single `srun`, which starts
//! a [`worker`] on each node, the parent of the ranks there. Launcher and node workers speak in [`lines`] over `srun`'s standard streams.
//!
//! A node worker whose words the launcher has not heard for [`SILENCE_MS`] kills its ranks: nobody can end them from outside of a node
//! that is cut off, and another side may start once the lease's patience is over, which is longer. The launcher's beats carry the newest
//! time that each node said, by that node's own clock: what waited in a broken connection is old when it comes, however late.
//!
//! A node worker also counts what its ranks use, in windows: see [`pulses`].

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

/// A node worker that was not heard for so long, as far as it knows, ends its ranks. Less than the lease's patience with a holder that does not renew it.
pub const SILENCE_MS: u64 = 40_000;
/// A node that was last heard, or spoken to, so long ago has ended its ranks: its patience, and some for clocks and processors.
pub const FENCED_MS: u64 = SILENCE_MS + 10_000;
/// A step has ended within this, or whoever ends it hangs: its own end, and the silence of a node that cannot be reached.
pub const ENDED_MS: u64 = 2 * SILENCE_MS;
/// Exit code of a launcher that has started nothing.
pub(crate) const NOT_BEGUN: i32 = 70;
/// Place of the words in the memory that guard and launcher share.
pub(crate) const WORDS_AT: u64 = 8;
/// Place of the windows of the nodes in that memory.
pub(crate) const WINDOWS_AT: u64 = 4096;
/// The launcher says something this often.
pub(crate) const BEAT_MS: u64 = 1000;
/// A node worker says something this often.
pub(crate) const ANSWER_MS: u64 = 2000;
/// Longest line towards a node: the launch itself.
pub(crate) const ORDER_LIMIT: usize = crate::guard::protocol::ORDER_LIMIT;

/// Launch of the ranks, as every node gets it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RanksOrder {
    /// Ranks of each node.
    pub(crate) per_node: u32,
    /// The run's name in the mark of its processes.
    pub(crate) tag: String,
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    /// Variables that all ranks have alike.
    pub(crate) env: Vec<(String, String)>,
    /// Variables of each rank beside those.
    pub(crate) own: Vec<Vec<(String, String)>>,
    /// Each node tells what its ranks use. A launcher of an older release would take that for their output.
    #[serde(default)]
    pub(crate) pulses: bool,
    /// One driver starts the rest: each process is told by itself.
    #[serde(default)]
    pub(crate) single: bool,
}

/// Order of the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LauncherOrder {
    pub(crate) nodes: u32,
    pub(crate) step: String,
    /// Names of the nodes.
    pub(crate) on: Vec<String>,
    /// Our own program, as every node finds it.
    pub(crate) exe: String,
    pub(crate) ranks: RanksOrder,
}

impl LauncherOrder {
    /// Splits what the ranks share from what each has for itself: the order goes to every node.
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
