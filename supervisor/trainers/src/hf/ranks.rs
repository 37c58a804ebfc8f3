//! The number of ranks that a command's launcher starts, where the command or the environment says it.

use super::call;
use super::program::{KnownProgram, program};
use crate::command;
use crate::one_node::node_part;

/// Counts them; `None`: it is not said in numbers.
pub(crate) fn world(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    command::torchrun_world(words)
        .or_else(|| of_accelerate(words))
        .or_else(|| of_deepspeed(words))
        .or_else(|| of_program(words, env))
        .filter(|n| *n > 0)
}

/// Ranks of one node whose files stand on that node alone (`save_on_each_node`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRanks {
    /// Its first rank.
    pub(crate) first: u32,
    /// One behind its last rank.
    pub(crate) end: u32,
    /// Ranks of all nodes.
    pub(crate) world: u32,
}

/// The ranks whose files a command's steps hold here, if those of other nodes stand there.
pub(crate) fn of_node(words: &[String]) -> Option<NodeRanks> {
    let said = call::settings(words);
    said.get("save_on_each_node").filter(|text| call::is_on(text))?;
    let part = node_part(words)?;
    let world = world(words, &|_| None)?;
    let each = world
        .checked_div(part.nodes)
        .filter(|n| *n > 0 && world % part.nodes == 0)?;
    let first = part.rank.filter(|rank| *rank < part.nodes)?.checked_mul(each)?;
    Some(NodeRanks {
        first,
        end: first + each,
        world,
    })
}

/// `accelerate launch --num_processes N`.
fn of_accelerate(words: &[String]) -> Option<u32> {
    option(own(words, "accelerate")?, "num_processes")?.parse().ok()
}

/// `deepspeed --num_gpus N`, or `--include` with the cards of each host.
fn of_deepspeed(words: &[String]) -> Option<u32> {
    let own = own(words, "deepspeed")?;
    if let Some(hosts) = option(own, "include") {
        return hosts.split('@').map(cards).sum();
    }
    let number = |name: &str| option(own, name).map(|text| text.parse::<u32>().ok());
    let nodes = match (option(own, "hostfile"), number("num_nodes")) {
        (_, Some(nodes)) => nodes?,
        // A hostfile may name several.
        (Some(_), None) => return None,
        (None, None) => 1,
    };
    number("num_gpus")??.checked_mul(nodes)
}

/// Cards of `host:0,1`.
fn cards(host: &str) -> Option<u32> {
    let (_, cards) = host.split_once(':')?;
    u32::try_from(cards.split(',').filter(|card| !card.is_empty()).count()).ok()
}

/// TRL hands the option on to accelerate; LLaMA-Factory and ms-swift start torchrun by themselves, as the environment says.
fn of_program(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let found = program(words)?;
    match found.program {
        KnownProgram::Trl => option(words.get(found.words.end..)?, "num_processes")?.parse().ok(),
        KnownProgram::LlamaFactory | KnownProgram::Swift => {
            let number = |name: &str| env(name).map(|text| text.parse::<u32>().ok());
            number("NPROC_PER_NODE")??.checked_mul(number("NNODES").unwrap_or(Some(1))?)
        }
        KnownProgram::Axolotl => None,
    }
}

/// A launcher's own options: what stands before the script or the module.
fn own<'a>(words: &'a [String], launcher: &str) -> Option<&'a [String]> {
    let at = words
        .iter()
        .position(|word| word.rsplit('/').next() == Some(launcher))?;
    let own = words.get(at + 1..)?;
    let is_end = |word: &String| word.ends_with(".py") || word == "-m" || word == "--module";
    own.get(..own.iter().position(is_end).unwrap_or(own.len()))
}

/// The value of an option, the last one.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    (0..words.len()).rev().find_map(|at| {
        let flag = words.get(at)?.strip_prefix("--")?;
        let (key, value) = flag
            .split_once('=')
            .map_or((flag, None), |(key, value)| (key, Some(value)));
        let is_it = key.replace('-', "_") == name;
        is_it.then(|| value.or_else(|| words.get(at + 1).map(String::as_str)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_of_every_launcher() {
        for (text, env, ranks) in [
            ("torchrun --nproc_per_node 2 --nnodes 2 t.py", None, Some(4)),
            (
                "accelerate launch --num_processes=4 t.py --num_processes 9",
                None,
                Some(4),
            ),
            ("accelerate launch t.py", None, None),
            ("deepspeed --num_gpus=8 t.py", None, Some(8)),
            ("deepspeed --num_gpus 8 --num_nodes 2 t.py", None, Some(16)),
            ("deepspeed --hostfile h --num_gpus 8 t.py", None, None),
            ("deepspeed --include localhost:0,1 t.py --num_gpus 4", None, Some(2)),
            ("deepspeed --include=a:0,1@b:2 --module t", None, Some(3)),
            ("deepspeed --include a@b t.py", None, None),
            ("deepspeed t.py --deepspeed z.json", None, None),
            ("trl sft --config x.yaml --num_processes 8", None, Some(8)),
            ("llamafactory-cli train x.yaml", Some("8"), Some(8)),
            ("swift sft --model m", Some("4"), Some(4)),
            ("swift sft --model m", None, None),
            ("python3 t.py", Some("4"), None),
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let env = |name: &str| env.filter(|_| name == "NPROC_PER_NODE").map(str::to_owned);
            assert_eq!(world(&words, &env), ranks, "{text}");
        }
    }
}
