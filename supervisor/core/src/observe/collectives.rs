//! Collective calls of all ranks during a hang, and the rank that the others wait for.
//!
//! Reads what PyTorch's flight recorder kept for each rank: the calls of each process group, by number. A rank is named
//! if others wait in a call that it did not enter and it waits for nobody itself, if it entered another call than the
//! others, or if it alone did not finish a call that its group finished. In all other cases no rank is named: if all
//! wait together, the calls show nothing.

mod graph;
mod words;

pub use words::table;

use crate::observe::collectives::graph::WaitGraph;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most ranks that are named.
const NAMED: usize = 8;

/// A call of a rank, in the order of its process group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectiveCall {
    pub group: String,
    pub number: u64,
    /// The operation, as recorded: `nccl:all_reduce`, `nccl:send 0->1`.
    pub op: String,
    /// Number of elements of each input; empty for a call between two ranks.
    pub inputs: Vec<u64>,
    pub types: Vec<String>,
    /// Whether it is between two ranks, which are numbered separately.
    pub is_p2p: bool,
    /// Whether it finished on this rank.
    pub is_done: bool,
    /// The line of the program that made it: `file:line`.
    pub place: Option<String>,
}

impl CollectiveCall {
    /// The operation without its library.
    fn name(&self) -> &str {
        let op = self.op.split_once(':').map_or(self.op.as_str(), |(_, op)| op);
        op.split(' ').next().unwrap_or(op)
    }
}

/// A process group as one rank knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessGroup {
    /// Its purpose, as the program describes it.
    pub desc: String,
    /// Its ranks; empty if they were not recorded.
    pub ranks: Vec<u32>,
    /// The newest call that the rank entered, if counted.
    pub entered: Option<u64>,
    /// The newest call that it finished, if counted.
    pub done: Option<u64>,
}

/// Everything that one rank recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankTrace {
    /// Global rank.
    pub rank: u32,
    pub groups: BTreeMap<String, ProcessGroup>,
    pub calls: Vec<CollectiveCall>,
}

/// Why a rank is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveFault {
    /// It did not enter a call that others wait in.
    NotEntered,
    /// It entered another operation, size or type than the others.
    Mismatch,
    /// It did not finish a call that others in the group finished.
    Unfinished,
    /// It waits for a rank that waits for it.
    Deadlock,
}

/// A rank that is named as the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Global rank.
    pub rank: u32,
    /// Why it is named.
    pub fault: CollectiveFault,
    /// Description: the call, its group, which ranks wait in it, and where this rank is.
    pub text: String,
}

/// Result of comparing the ranks' calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collectives {
    /// Number of ranks that left a record.
    pub ranks: u32,
    /// The ranks that are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<Culprit>,
    /// Why no rank is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
}

/// One process group, with what each rank recorded of it. Calls between two ranks are identified by the ranks' own
/// numbers.
struct GroupRecords<'a> {
    name: String,
    desc: &'a str,
    /// Its ranks, as recorded or as seen.
    ranks: Vec<u32>,
    by: BTreeMap<u32, RankRecords<'a>>,
}

#[derive(Default)]
struct RankRecords<'a> {
    entered: Option<u64>,
    done: Option<u64>,
    /// Calls that it did not finish, oldest first.
    open: Vec<&'a CollectiveCall>,
    /// Calls of the whole group, by number.
    calls: BTreeMap<u64, &'a CollectiveCall>,
    p2p: bool,
}

/// Compares what all ranks recorded.
#[must_use]
pub fn read(traces: &[RankTrace]) -> Collectives {
    let groups = shared(traces);
    let known: BTreeSet<u32> = traces.iter().map(|t| t.rank).collect();
    let mut out = Collectives {
        ranks: u32::try_from(known.len()).unwrap_or(u32::MAX),
        ..Collectives::default()
    };
    let waits = WaitGraph::of(&groups);
    out.culprits = mismatches(&groups);
    if out.culprits.is_empty() {
        out.culprits = waits.not_entered(&groups);
        let named: BTreeSet<u32> = out.culprits.iter().map(|c| c.rank).collect();
        let unfinished = unfinished(&groups, &waits);
        out.culprits
            .extend(unfinished.into_iter().filter(|c| !named.contains(&c.rank)));
    }
    if out.culprits.is_empty() {
        out.culprits = waits.deadlock(&groups);
    }
    if out.culprits.len() > NAMED {
        out.open = Some(format!(
            "{} ranks are behind the others, too many to blame one",
            out.culprits.len()
        ));
        out.culprits.clear();
    } else if out.culprits.is_empty() {
        out.open = Some(words::open(&groups, &known));
    }
    out
}

/// The groups, by name and ranks, because a name alone may be used twice.
fn shared(traces: &[RankTrace]) -> Vec<GroupRecords<'_>> {
    let mut groups: BTreeMap<(&str, &[u32]), GroupRecords<'_>> = BTreeMap::new();
    for trace in traces {
        for (name, known) in &trace.groups {
            let group = groups.entry((name, &known.ranks)).or_insert_with(|| GroupRecords {
                name: name.clone(),
                desc: &known.desc,
                ranks: known.ranks.clone(),
                by: BTreeMap::new(),
            });
            let mut own = RankRecords {
                entered: known.entered,
                done: known.done,
                ..RankRecords::default()
            };
            for call in trace.calls.iter().filter(|c| c.group == *name) {
                own.add(call);
            }
            if known.ranks.is_empty() && !group.ranks.contains(&trace.rank) {
                group.ranks.push(trace.rank);
            }
            group.by.insert(trace.rank, own);
        }
    }
    let mut groups: Vec<GroupRecords<'_>> = groups.into_values().collect();
    for group in &mut groups {
        // If the group has calls between two ranks, its counters include them.
        if group.by.values().any(|own| own.p2p) {
            for own in group.by.values_mut() {
                own.entered = own.calls.keys().next_back().copied();
                own.done = own.calls.values().rev().find(|c| c.is_done).map(|c| c.number);
            }
        }
    }
    groups
}

impl<'a> RankRecords<'a> {
    fn add(&mut self, call: &'a CollectiveCall) {
        if !call.is_done {
            self.open.push(call);
        }
        if call.is_p2p {
            self.p2p = true;
            return;
        }
        self.calls.insert(call.number, call);
        self.entered = self.entered.max(Some(call.number));
        if call.is_done {
            self.done = self.done.max(Some(call.number));
        }
    }

    fn waits_in(&self) -> Option<&'a CollectiveCall> {
        let open = self.open.iter().filter(|c| !c.is_p2p);
        open.min_by_key(|c| c.number).copied()
    }
}

/// Returns true if every rank passes the same amount of data to the operation.
fn is_even(name: &str) -> bool {
    let even = [
        "all_reduce",
        "allreduce",
        "_all_gather_base",
        "_reduce_scatter_base",
        "all_gather_into_tensor",
    ];
    even.contains(&name)
}

/// Returns true if the operation cannot finish on any rank before all have entered it.
fn needs_all(name: &str) -> bool {
    is_even(name)
        || [
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "barrier",
            "all_reduce_barrier",
        ]
        .contains(&name)
}

/// Ranks that entered another call under the same number. If neither side is larger, both are named.
fn mismatches(groups: &[GroupRecords<'_>]) -> Vec<Culprit> {
    let mut out: BTreeMap<u32, Culprit> = BTreeMap::new();
    for group in groups {
        let numbers: BTreeSet<u64> = group
            .by
            .values()
            .filter_map(|own| own.waits_in())
            .map(|c| c.number)
            .collect();
        for number in numbers {
            let calls: Vec<(u32, &CollectiveCall)> = group
                .by
                .iter()
                .filter_map(|(rank, own)| Some((*rank, *own.calls.get(&number)?)))
                .collect();
            let is_even = calls.iter().all(|(_, c)| is_even(c.name()));
            let key = |call: &CollectiveCall| {
                let size = is_even.then(|| (call.inputs.clone(), call.types.clone()));
                (call.name().to_owned(), size)
            };
            let mut kinds: BTreeMap<_, Vec<(u32, &CollectiveCall)>> = BTreeMap::new();
            for (rank, call) in calls {
                kinds.entry(key(call)).or_default().push((rank, call));
            }
            let most = kinds.values().map(Vec::len).max().unwrap_or_default();
            let is_clear = kinds.values().filter(|of| of.len() == most).count() == 1;
            let usual = kinds.values().find(|of| of.len() == most).and_then(|of| of.first());
            let Some((_, usual)) = usual.filter(|_| kinds.len() > 1) else {
                continue;
            };
            for (rank, call) in kinds.values().filter(|of| !is_clear || of.len() < most).flatten() {
                let text = words::mismatch(group, *rank, call, usual, is_clear);
                out.entry(*rank).or_insert(Culprit {
                    rank: *rank,
                    fault: CollectiveFault::Mismatch,
                    text,
                });
            }
        }
    }
    out.into_values().collect()
}

/// Ranks with an unfinished call that others finished, although every rank had to take part, and that wait for nobody.
fn unfinished(groups: &[GroupRecords<'_>], waits: &WaitGraph) -> Vec<Culprit> {
    let mut out: BTreeMap<u32, Culprit> = BTreeMap::new();
    for group in groups {
        for (rank, own) in &group.by {
            let Some(call) = own.waits_in().filter(|c| needs_all(c.name())) else {
                continue;
            };
            let finished = group
                .by
                .iter()
                .filter(|(other, o)| *other != rank && o.done >= Some(call.number))
                .map(|(other, _)| *other)
                .collect::<Vec<_>>();
            if !finished.is_empty() && !waits.waits(*rank) {
                out.entry(*rank).or_insert_with(|| Culprit {
                    rank: *rank,
                    fault: CollectiveFault::Unfinished,
                    text: words::unfinished(group, *rank, call, &finished),
                });
            }
        }
    }
    out.into_values().collect()
}
