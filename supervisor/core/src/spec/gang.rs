//! Gangs: the environment of their workers, which torch elastic sets and trainers read, and the nodes they run on.

use crate::id::Rank;
use crate::spec::{GangSpec, LauncherKind};
use serde::{Deserialize, Serialize};

/// News about the nodes of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodesNews {
    /// The nodes that it starts on.
    On {
        /// Their names, in rank order.
        nodes: Vec<String>,
        /// Nodes of the allocation that are lost, with the scheduler's name for their state, or excluded, with the
        /// class of the failure that their hardware caused.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost: Vec<(String, String)>,
    },
    /// Nothing of it is running here, but its end on the nodes is awaited.
    Wait {
        /// What is awaited, as text.
        what: String,
    },
}

/// The nodes of an attempt, if it has several.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptNodes {
    /// Their names, in rank order.
    #[serde(default)]
    pub on: Vec<String>,
    /// Nodes of the allocation that were lost before, with their state, or excluded, with the failure they caused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// What is awaited on the nodes before the attempt has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// Describes lost nodes, with the scheduler's name for their state.
#[must_use]
pub fn lost_words(lost: &[(String, String)]) -> String {
    let words: Vec<String> = lost.iter().map(|(node, state)| format!("{node} ({state})")).collect();
    words.join(", ")
}

/// Describes the wait for nodes that are silent.
#[must_use]
pub fn silence_words(names: &[&str]) -> String {
    format!("{SILENT}{}{UNHEARD}", names.join(", "))
}

const SILENT: &str = "the ranks on ";
const UNHEARD: &str = " to end by themselves: nothing is heard from there";

impl AttemptNodes {
    /// Names of the nodes that were silent when the attempt was to end.
    #[must_use]
    pub fn silent(&self) -> Option<&str> {
        self.wait.as_deref()?.strip_prefix(SILENT)?.strip_suffix(UNHEARD)
    }

    /// Returns true if nothing is known about any node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in news.
    pub fn note(&mut self, news: &NodesNews) {
        match news {
            NodesNews::On { nodes, lost } => {
                *self = Self {
                    on: nodes.clone(),
                    lost: lost.clone(),
                    wait: None,
                };
            }
            NodesNews::Wait { what } => self.wait = Some(what.clone()),
        }
    }
}

/// Environment of worker `rank` of a gang. `master` is the address of rank 0, with a new port for each attempt.
///
/// Source of the names: `torch/distributed/elastic/agent/server/local_elastic_agent.py` (torch 2.11).
#[must_use]
pub fn worker_env(gang: &GangSpec, rank: Rank, master: (&str, u16), attempt: u32) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    let mut set = |k: &str, v: String| env.push((k.to_owned(), v));
    if gang.launcher == LauncherKind::Gang {
        let here = gang.per_node().max(1);
        for (name, value) in [
            ("RANK", rank.0),
            ("ROLE_RANK", rank.0),
            ("LOCAL_RANK", rank.0 % here),
            ("WORLD_SIZE", gang.workers),
            ("ROLE_WORLD_SIZE", gang.workers),
            ("LOCAL_WORLD_SIZE", here),
            ("GROUP_RANK", rank.0 / here),
            ("GROUP_WORLD_SIZE", gang.nodes),
        ] {
            set(name, value.to_string());
        }
        set("ROLE_NAME", "default".into());
        set("TORCHELASTIC_RESTART_COUNT", attempt.saturating_sub(1).to_string());
        set("TORCHELASTIC_MAX_RESTARTS", "0".into());
        set("TORCHELASTIC_USE_AGENT_STORE", "False".into());
        set("TORCHELASTIC_RUN_ID", format!("supervise-{attempt}"));
    }
    // With Ray this address is only used between our own processes.
    if gang.launcher != LauncherKind::Driver {
        set("MASTER_ADDR", master.0.to_owned());
        set("MASTER_PORT", master.1.to_string());
    }
    if !gang.gpus.is_empty() {
        set("CUDA_VISIBLE_DEVICES", devices(gang));
    }
    env
}

/// GPUs of one worker: all for a driver; in a gang every worker sees all and picks one by LOCAL_RANK, as with torchrun.
fn devices(gang: &GangSpec) -> String {
    let names: Vec<String> = gang.gpus.iter().map(u32::to_string).collect();
    names.join(",")
}

/// Returns true for variables that Slurm sets per node: a rank gets those of its own node.
#[must_use]
pub fn is_of_a_node(name: &str) -> bool {
    const DEVICES: [&str; 4] = [
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK",
    ];
    name.starts_with("SLURM") || name == "HOSTNAME" || DEVICES.contains(&name)
}

/// Variables of an outer launcher that must not leak into a gang.
pub const FOREIGN: &[&str] = &[
    "RANK",
    "LOCAL_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_silent_are_named_by_what_is_waited_for() {
        let silent = |what: String| {
            let mut nodes = AttemptNodes::default();
            nodes.note(&NodesNews::Wait { what });
            nodes.silent().map(str::to_owned)
        };
        assert_eq!(silent(silence_words(&["n2", "n3"])).as_deref(), Some("n2, n3"));
        assert_eq!(silent("the end of Slurm's step x".to_owned()), None);
    }

    #[test]
    fn a_gang_gets_what_torch_reads_and_a_driver_gets_none_of_it() {
        let gang = GangSpec {
            launcher: LauncherKind::Gang,
            workers: 4,
            nodes: 1,
            gpus: vec![0, 1, 2, 3],
        };
        let env = worker_env(&gang, Rank(2), ("127.0.0.1", 29_511), 3);
        let get = |k: &str| env.iter().find(|(n, _)| n == k).map(|(_, v)| v.as_str());
        assert_eq!(get("RANK"), Some("2"));
        assert_eq!(get("WORLD_SIZE"), Some("4"));
        assert_eq!(get("MASTER_PORT"), Some("29511"));
        assert_eq!(get("CUDA_VISIBLE_DEVICES"), Some("0,1,2,3"));
        let driver = GangSpec {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: vec![],
        };
        assert!(worker_env(&driver, Rank(0), ("", 1), 1).is_empty());
    }
    #[test]
    fn ranks_are_dealt_out_to_nodes_in_order() {
        let gang = GangSpec {
            launcher: LauncherKind::Gang,
            workers: 4,
            nodes: 2,
            gpus: vec![0, 1],
        };
        let env = worker_env(&gang, Rank(3), ("10.0.0.1", 29_511), 1);
        let get = |k: &str| env.iter().find(|(n, _)| n == k).map(|(_, v)| v.as_str());
        for (name, value) in [
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("GROUP_RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "10.0.0.1"),
        ] {
            assert_eq!(get(name), Some(value), "{name}");
        }
        assert!(is_of_a_node("SLURM_NODEID") && !is_of_a_node("PATH"));
    }
}
