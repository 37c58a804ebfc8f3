//! Text about the ranks' calls.

use super::{CollectiveCall, Collectives, GroupRecords, RankTrace};
use std::collections::BTreeSet;

const LISTED: usize = 6;
const TOLD: usize = 3;

impl Collectives {
    /// The ranks that are named, and why; `None` if there are none.
    #[must_use]
    pub fn named(&self) -> Option<String> {
        let texts: Vec<&str> = self.culprits.iter().take(TOLD).map(|c| c.text.as_str()).collect();
        let more = match self.culprits.len().saturating_sub(TOLD) {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        (!texts.is_empty()).then(|| format!("{}{more}", texts.join("; ")))
    }

    /// One sentence; `None` if no rank recorded anything.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        if self.ranks == 0 {
            return None;
        }
        let open = || {
            format!(
                "the flight recorder names no rank: {}",
                self.open.as_deref().unwrap_or("?")
            )
        };
        Some(self.named().unwrap_or_else(open))
    }
}

/// Each rank's oldest unfinished call in each group, one per line.
#[must_use]
pub fn table(traces: &[RankTrace]) -> String {
    let mut out = String::new();
    for trace in traces {
        let mut groups = BTreeSet::new();
        let open = trace.calls.iter().filter(|c| !c.is_done);
        let oldest: Vec<&CollectiveCall> = open.filter(|c| groups.insert((&c.group, c.is_p2p))).collect();
        if oldest.is_empty() {
            out.push_str(&format!("rank {}: waits in no call\n", trace.rank));
        }
        for c in oldest {
            let desc = trace.groups.get(&c.group).map_or("", |g| g.desc.as_str());
            out.push_str(&format!(
                "rank {}: {} number {} of group {} {desc}{}\n",
                trace.rank,
                c.op,
                c.number,
                c.group,
                made_at(c)
            ));
        }
    }
    out
}

/// `all_reduce number 12 of group 35 (TENSOR_MODEL_PARALLEL_GROUP)`.
fn call(group: &GroupRecords<'_>, call: &CollectiveCall) -> String {
    format!("{} number {} of {}", call.name(), call.number, name(group))
}

fn name(group: &GroupRecords<'_>) -> String {
    match group.desc {
        "" | "undefined" => format!("group {}", group.name),
        desc => format!("group {} ({desc})", group.name),
    }
}

fn ranks(all: &[u32]) -> String {
    let listed: Vec<String> = all.iter().take(LISTED).map(u32::to_string).collect();
    let more = match all.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "{} {}{more}",
        if all.len() == 1 { "rank" } else { "ranks" },
        listed.join(", ")
    )
}

fn made_at(call: &CollectiveCall) -> String {
    call.place
        .as_ref()
        .map(|place| format!(" (made at {place})"))
        .unwrap_or_default()
}

pub(super) fn not_entered(group: &GroupRecords<'_>, rank: u32, waited_in: &CollectiveCall, waiting: &[u32]) -> String {
    let verb = if waiting.len() == 1 { "waits" } else { "wait" };
    if waited_in.is_p2p {
        let op = waited_in.op.split_once(':').map_or(waited_in.op.as_str(), |(_, op)| op);
        return format!(
            "rank {rank} did not answer `{op}` in {}; {} {verb} for it",
            name(group),
            ranks(waiting)
        );
    }
    let own = group.by.get(&rank);
    let reached = match own.and_then(|o| o.entered) {
        None | Some(0) => "it entered none there".to_owned(),
        Some(n) => format!("the last it entered there is number {n}"),
    };
    format!(
        "rank {rank} did not enter {}{}: {reached}; {} {verb} for it",
        call(group, waited_in),
        made_at(waited_in),
        ranks(waiting)
    )
}

pub(super) fn mismatch(
    group: &GroupRecords<'_>,
    rank: u32,
    own: &CollectiveCall,
    usual: &CollectiveCall,
    is_clear: bool,
) -> String {
    let shape = |c: &CollectiveCall| {
        let inputs: Vec<String> = c.inputs.iter().map(u64::to_string).collect();
        format!("{} of {} {}", c.name(), inputs.join("+"), c.types.join("+"))
    };
    let others = match is_clear {
        true => format!("the others {}", shape(usual)),
        false => "others something else".to_owned(),
    };
    format!(
        "rank {rank} entered {}{} as number {} of {}, {others}",
        shape(own),
        made_at(own),
        own.number,
        name(group)
    )
}

pub(super) fn unfinished(group: &GroupRecords<'_>, rank: u32, waits_in: &CollectiveCall, finished: &[u32]) -> String {
    format!(
        "rank {rank} did not finish {}, which {} finished: its GPU, or what it waits for there",
        call(group, waits_in),
        ranks(finished)
    )
}

pub(super) fn deadlock(group: &GroupRecords<'_>, rank: u32, waits_in: &CollectiveCall, other: u32) -> String {
    format!(
        "rank {rank} waits for rank {other} in {}{}, and that one for it elsewhere: their calls came in another order",
        call(group, waits_in),
        made_at(waits_in)
    )
}

pub(super) fn open(groups: &[GroupRecords<'_>], known: &BTreeSet<u32>) -> String {
    let waiting = |group: &&GroupRecords<'_>| group.by.values().any(|own| own.waits_in().is_some());
    let mut stuck = groups.iter().filter(waiting);
    // The others of its ranks may be waiting somewhere else first.
    let silent = |group: &&GroupRecords<'_>| group.ranks.iter().any(|rank| !known.contains(rank));
    if let Some(group) = stuck.clone().find(silent) {
        let silent: Vec<u32> = group
            .ranks
            .iter()
            .filter(|rank| !known.contains(rank))
            .copied()
            .collect();
        return format!("{} left no record, and {} waits", ranks(&silent), name(group));
    }
    match stuck.next() {
        None => "no rank waits in a call of its group".to_owned(),
        Some(group) => {
            let entered = group.by.values().filter_map(|own| own.waits_in()).next();
            let what = entered.map(|c| call(group, c)).unwrap_or_default();
            format!("none of them is behind in {what}: the network or a GPU, rather than a rank's program")
        }
    }
}
