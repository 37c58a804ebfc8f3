//! Commands that start the ranks of one node only: each node needs its own.

/// The part of a training that a command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePart {
    pub nodes: u32,
    /// This node's rank, if the command says it.
    pub rank: Option<u32>,
}

impl NodePart {
    /// `one of 2 nodes`, `node 1 of 2 (from 0)`.
    #[must_use]
    pub fn words(self) -> String {
        match self.rank {
            Some(rank) => format!("node {rank} of {} (counted from 0)", self.nodes),
            None => format!("one of {} nodes", self.nodes),
        }
    }
}

/// Launchers that start the ranks of their own node, and the option with the number of nodes.
const LAUNCHERS: [(&str, &str); 4] = [
    ("torchrun", "nnodes"),
    ("torch.distributed.run", "nnodes"),
    ("torch.distributed.launch", "nnodes"),
    ("accelerate", "num-machines"),
];
/// Programs that start a command on all nodes.
const STARTERS: [&str; 6] = ["srun", "mpirun", "mpiexec", "pdsh", "ibrun", "jsrun"];

/// The part that a command starts; `None` if it starts everything, as far as its words say.
#[must_use]
pub fn node_part(command: &[String]) -> Option<NodePart> {
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let launcher = |word: &String| LAUNCHERS.into_iter().find(|(l, _)| *l == name(word));
    let (at, (_, option)) = command
        .iter()
        .enumerate()
        .find_map(|(at, word)| Some((at, launcher(word)?)))?;
    if command
        .iter()
        .take(at)
        .any(|word| STARTERS.contains(&name(word).as_str()))
    {
        return None;
    }
    let own: Vec<String> = command
        .iter()
        .skip(at + 1)
        .take_while(|w| !w.ends_with(".py"))
        .cloned()
        .collect();
    let nodes = own.iter().enumerate().find_map(|(n, word)| {
        let flag = word.strip_prefix("--")?;
        let (key, value) = match flag.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (flag, own.get(n + 1).map(String::as_str)),
        };
        (key.replace('_', "-") == option).then_some(())?;
        // `1:4`: elastic, as many as join.
        value?.rsplit(':').next()?.parse::<u32>().ok()
    })?;
    (nodes > 1).then(|| NodePart {
        nodes,
        rank: node_rank(&own),
    })
}

/// Options that give the rank of the node.
const NODE_OPTIONS: [&str; 2] = ["node-rank", "machine-rank"];

/// The rank of the node that a call is for, if it says so.
#[must_use]
pub fn node_rank(words: &[String]) -> Option<u32> {
    let name = |word: &str| word.trim_start_matches('-').replace('_', "-");
    words.iter().enumerate().find_map(|(at, word)| {
        let (option, value) = match word.strip_prefix("--")?.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word.as_str(), words.get(at + 1).map(String::as_str)),
        };
        NODE_OPTIONS.contains(&name(option).as_str()).then_some(())?;
        value?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_one_node_is_known_by_its_launchers_options() {
        let part = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            node_part(&words).map(|p| (p.nodes, p.rank))
        };
        for (text, expected) in [
            ("torchrun --nnodes=2 --nproc_per_node=8 t.py", Some((2, None))),
            (
                "torchrun --nnodes 2 --node_rank 1 t.py --output_dir o",
                Some((2, Some(1))),
            ),
            (
                "/v/bin/python3 -m torch.distributed.run --nnodes 1:4 -m x",
                Some((4, None)),
            ),
            (
                "accelerate launch --num_machines 2 --machine_rank 0 t.py",
                Some((2, Some(0))),
            ),
            ("srun --ntasks-per-node=1 torchrun --nnodes=2 t.py", None),
            ("torchrun --nnodes=1 t.py", None),
            ("torchrun t.py --nnodes=2", None),
            ("deepspeed --num_nodes 2 t.py", None),
            ("python3 t.py", None),
        ] {
            assert_eq!(part(text), expected, "{text}");
        }
    }

    #[test]
    fn a_call_says_which_node_it_is() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (text, node) in [
            ("torchrun --nnodes 2 --node_rank 1 t.py", Some(1)),
            ("torchrun --node-rank=0 t.py", Some(0)),
            ("accelerate launch --machine_rank 3 t.py", Some(3)),
            ("torchrun --node_rank x t.py", None),
            ("python3 t.py", None),
        ] {
            assert_eq!(node_rank(&words(text)), node, "{text}");
        }
    }
}
