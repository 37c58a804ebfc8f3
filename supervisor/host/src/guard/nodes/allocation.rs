//! Nodes of the allocation as Slurm sees them: those that a gang can be started on, and those that are lost.

use super::ask::run_one;
use std::collections::{BTreeMap, BTreeSet};

/// The allocation at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedNodes {
    own: String,
    /// Address of rank 0: names need not resolve.
    pub address: String,
    /// The job's nodes that Slurm reaches, in its order.
    pub usable: Vec<String>,
    /// Nodes that the job has, or had at its start, and that Slurm does not reach, each with its Slurm state.
    pub lost: Vec<(String, String)>,
    /// Number of nodes that the job still has, whatever their state.
    pub has: usize,
}

/// The nodes of a gang, and those left out, each with the class of its hardware failure.
pub type NodeChoice = (Vec<String>, Vec<(String, String)>);

impl AllocatedNodes {
    /// Chooses the nodes of a gang, this one among them, and returns the broken nodes left out; `None`: there are too
    /// few. A broken node is used if no other can replace it.
    #[must_use]
    pub fn choose(&self, wanted: u32, broken: &[(String, String)]) -> Option<NodeChoice> {
        let is_broken = |node: &String| *node != self.own && broken.iter().any(|(name, _)| name == node);
        let sound = Self {
            usable: self.usable.iter().filter(|n| !is_broken(n)).cloned().collect(),
            ..self.clone()
        };
        let on = sound.first(wanted).or_else(|| self.first(wanted))?;
        let left_out = broken
            .iter()
            .filter(|(n, _)| self.usable.contains(n) && !on.contains(n));
        Some((on.clone(), left_out.cloned().collect()))
    }

    fn first(&self, wanted: u32) -> Option<Vec<String>> {
        let wanted = usize::try_from(wanted).ok()?;
        let others = self
            .usable
            .iter()
            .filter(|node| **node != self.own)
            .take(wanted.saturating_sub(1));
        let chosen: BTreeSet<&String> = others.chain([&self.own]).collect();
        // In Slurm's order, by which it numbers them.
        let chosen: Vec<String> = self.usable.iter().filter(|n| chosen.contains(n)).cloned().collect();
        (chosen.len() == wanted).then_some(chosen)
    }

    /// Returns true if the job has too few nodes, whatever their state.
    #[must_use]
    pub fn is_short(&self, wanted: u32) -> bool {
        usize::try_from(wanted).is_ok_and(|wanted| self.has < wanted)
    }
}

/// Asks Slurm about the nodes of this job.
///
/// # Errors
/// Why the nodes are unknown, for the operator.
pub fn ask(env: &BTreeMap<String, String>) -> Result<AllocatedNodes, String> {
    let own = env.get("SLURMD_NODENAME").ok_or("SLURMD_NODENAME is not set")?;
    let job = env.get("SLURM_JOB_ID").ok_or("SLURM_JOB_ID is not set")?;
    let said = run_one(env, &["squeue", "--noheader", "--jobs", job, "--format", "%N"])?;
    let now = names(env, String::from_utf8_lossy(&said).trim())?;
    let at_start = match env.get("SLURM_JOB_NODELIST") {
        Some(list) => names(env, list)?,
        None => now.clone(),
    };
    let all: Vec<&str> = at_start.iter().chain(&now).map(String::as_str).collect();
    let states = states(env, &all.join(","))?;
    let said = run_one(env, &["scontrol", "--oneliner", "show", "node", own])?;
    let said = String::from_utf8_lossy(&said);
    let address = said.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr="));
    let address = address.ok_or_else(|| format!("scontrol names no address of node {own}"))?;
    let state = |node: &String| states.get(node).map_or("unknown", String::as_str);
    let lost: BTreeSet<&String> = at_start.iter().chain(&now).filter(|n| is_lost(state(n))).collect();
    Ok(AllocatedNodes {
        own: own.clone(),
        address: address.to_owned(),
        usable: now.iter().filter(|n| !lost.contains(n)).cloned().collect(),
        has: now.len(),
        lost: lost.iter().map(|n| ((*n).clone(), state(n).to_owned())).collect(),
    })
}

/// Expands a list of names as Slurm writes it: `n[1-3,7]`.
fn names(env: &BTreeMap<String, String>, list: &str) -> Result<Vec<String>, String> {
    if !list.contains(['[', ',']) {
        return Ok(Some(list)
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .into_iter()
            .collect());
    }
    let said = run_one(env, &["scontrol", "show", "hostnames", list])?;
    Ok(String::from_utf8_lossy(&said)
        .lines()
        .map(|l| l.trim().to_owned())
        .collect())
}

/// Returns true if Slurm does not reach all nodes of a list.
pub(super) fn has_lost(env: &BTreeMap<String, String>, list: &str) -> Result<bool, String> {
    Ok(states(env, list)?.values().any(|state| is_lost(state)))
}

fn states(env: &BTreeMap<String, String>, list: &str) -> Result<BTreeMap<String, String>, String> {
    let argv = ["sinfo", "--noheader", "--Node", "--nodes", list, "--format", "%N|%T"];
    let said = run_one(env, &argv)?;
    Ok(read(&String::from_utf8_lossy(&said)))
}

/// A node in several partitions has several lines.
fn read(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('|'));
    lines.map(|(node, state)| (node.to_owned(), state.to_owned())).collect()
}

/// State names of Slurm 20.11 and later. A star: the node does not respond.
fn is_lost(state: &str) -> bool {
    const GONE: [&str; 6] = ["down", "unk", "power", "reboot", "inval", "no_respond"];
    state.ends_with('*') || GONE.iter().any(|gone| state.starts_with(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(usable: &[&str]) -> AllocatedNodes {
        AllocatedNodes {
            own: "n2".to_owned(),
            address: "10.0.0.2".to_owned(),
            usable: usable.iter().map(|n| (*n).to_owned()).collect(),
            lost: vec![("n4".to_owned(), "down*".to_owned())],
            has: 4,
        }
    }

    #[test]
    fn a_lost_node_is_told_by_its_state() {
        for (state, lost) in [
            ("mixed", false),
            ("allocated", false),
            ("draining", false),
            ("idle", false),
            ("completing", false),
            ("mixed*", true),
            ("down", true),
            ("down*", true),
            ("rebooted", true),
            ("powering_down", true),
            ("unknown", true),
        ] {
            assert_eq!(is_lost(state), lost, "{state}");
        }
        let said = read("n1|mixed\nn2|down*\nn1|mixed\n");
        assert_eq!(said["n2"], "down*");
    }

    #[test]
    fn a_broken_node_is_left_out_where_another_takes_its_place() {
        let broken: Vec<(String, String)> = ["n1", "n2", "n9"]
            .map(|n| (n.to_owned(), "gpu.ecc_uncorrectable".to_owned()))
            .to_vec();
        let choose = |usable: &[&str]| {
            let (on, left_out) = places(usable).choose(2, &broken).unwrap();
            (on, left_out.into_iter().map(|(node, _)| node).collect::<Vec<_>>())
        };
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|n| (*n).to_owned()).collect() };
        assert_eq!(choose(&["n1", "n2", "n3"]), (names(&["n2", "n3"]), names(&["n1"])));
        assert_eq!(
            choose(&["n1", "n2"]),
            (names(&["n1", "n2"]), names(&[])),
            "there is no other"
        );
    }

    #[test]
    fn a_gang_gets_this_node_and_others_in_their_order() {
        assert_eq!(places(&["n1", "n2", "n3"]).first(2).unwrap(), ["n1", "n2"]);
        assert_eq!(places(&["n2", "n3", "n5"]).first(3).unwrap(), ["n2", "n3", "n5"]);
        assert_eq!(places(&["n2"]).choose(2, &[]), None);
        assert_eq!(places(&["n1", "n3"]).choose(2, &[]), None, "this node is lost itself");
        assert!(!places(&["n2"]).is_short(4) && places(&["n2"]).is_short(5));
    }
}
