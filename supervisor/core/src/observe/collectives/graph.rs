//! Graph of which rank waits for which.

use super::{CollectiveCall, CollectiveFault, Culprit, GroupRecords, words};
use std::collections::BTreeMap;

/// Edges from a rank to those it waits for, each with the group and the call it waits in.
pub(super) struct WaitGraph {
    edges: BTreeMap<u32, BTreeMap<u32, (usize, CollectiveCall)>>,
}

impl WaitGraph {
    /// Builds the graph from the records of all groups. A rank without a record has no incoming edges, because nothing is known about
    /// it.
    pub(super) fn of(groups: &[GroupRecords<'_>]) -> Self {
        let mut edges: BTreeMap<u32, BTreeMap<u32, (usize, CollectiveCall)>> = BTreeMap::new();
        let mut add = |from: u32, to: u32, at: usize, call: &CollectiveCall| {
            edges
                .entry(from)
                .or_default()
                .entry(to)
                .or_insert_with(|| (at, call.clone()));
        };
        for (at, group) in groups.iter().enumerate() {
            for (rank, own) in &group.by {
                if let Some(call) = own.waits_in() {
                    // If its calls are not counted, nothing is known about it.
                    let behind = |o: &super::RankRecords<'_>| o.entered.is_some_and(|n| n < call.number);
                    let missing = group.by.iter().filter(|(other, o)| *other != rank && behind(o));
                    missing.for_each(|(other, _)| add(*rank, *other, at, call));
                }
                for call in own.open.iter().filter(|c| c.is_p2p) {
                    let Some(peer) = peer(call, *rank, &group.ranks) else {
                        continue;
                    };
                    let answers = |o: &super::RankRecords<'_>| {
                        let mut open = o.open.iter().filter(|c| c.is_p2p && c.name() != call.name());
                        open.any(|c| self::peer(c, peer, &group.ranks) == Some(*rank))
                    };
                    if group.by.get(&peer).is_some_and(|o| !answers(o)) {
                        add(*rank, peer, at, call);
                    }
                }
            }
        }
        Self { edges }
    }

    pub(super) fn waits(&self, rank: u32) -> bool {
        self.edges.get(&rank).is_some_and(|to| !to.is_empty())
    }

    /// Ranks that are waited for and wait for nobody.
    pub(super) fn not_entered(&self, groups: &[GroupRecords<'_>]) -> Vec<Culprit> {
        let mut named: BTreeMap<u32, (usize, &CollectiveCall, Vec<u32>)> = BTreeMap::new();
        for (from, to) in &self.edges {
            for (rank, (at, call)) in to.iter().filter(|(rank, _)| !self.waits(**rank)) {
                // Prefer a call of the whole group: it is the clearest evidence.
                let known = named.entry(*rank).or_insert_with(|| (*at, call, Vec::new()));
                if known.1.is_p2p && !call.is_p2p {
                    (known.0, known.1) = (*at, call);
                }
                known.2.push(*from);
            }
        }
        let of = |(rank, (at, call, waiting)): (u32, (usize, &CollectiveCall, Vec<u32>))| {
            Some(Culprit {
                rank,
                fault: CollectiveFault::NotEntered,
                text: words::not_entered(groups.get(at)?, rank, call, &waiting),
            })
        };
        named.into_iter().filter_map(of).collect()
    }

    /// The first pair of ranks that wait for each other in calls of whole groups, because they made them in a different order.
    pub(super) fn deadlock(&self, groups: &[GroupRecords<'_>]) -> Vec<Culprit> {
        let collective = |from: u32| {
            let to = self.edges.get(&from).into_iter().flatten();
            to.filter(|(_, (_, call))| !call.is_p2p)
        };
        let pair = self.edges.keys().find_map(|from| {
            let mut back = collective(*from).filter(|(to, _)| collective(**to).any(|(again, _)| again == from));
            back.next().map(|(to, _)| (*from, *to))
        });
        let Some((one, other)) = pair else {
            return Vec::new();
        };
        let of = |rank: u32, waits_for: u32| {
            let (at, call) = self.edges.get(&rank)?.get(&waits_for)?;
            Some(Culprit {
                rank,
                fault: CollectiveFault::Deadlock,
                text: words::deadlock(groups.get(*at)?, rank, call, waits_for),
            })
        };
        [of(one, other), of(other, one)].into_iter().flatten().collect()
    }
}

/// The other rank of a call between two (`send 0->1`, `recv 1<-0`, numbered within the group).
fn peer(call: &CollectiveCall, rank: u32, ranks: &[u32]) -> Option<u32> {
    let pair = call.op.rsplit(' ').next()?;
    let (own, other) = pair.split_once("->").or_else(|| pair.split_once("<-"))?;
    let at = |text: &str| ranks.get(text.parse::<usize>().ok()?).copied();
    (at(own)? == rank).then_some(at(other)?)
}
