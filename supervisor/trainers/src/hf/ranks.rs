//! The number of ranks that a command's launcher starts, if the command or the environment says it.

use super::call;
use super::program::{KnownProgram, program};
use crate::command;
use crate::one_node::node_part;
use supervise_config::{ConfigNode, ConfigValue, parse_trainer_yaml};

/// A command, and what else its launcher reads.
#[derive(Clone, Copy)]
pub(crate) struct LaunchFacts<'a> {
    pub(crate) words: &'a [String],
    /// The trainer's own settings, from its YAML and from the command.
    pub(crate) said: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) file: &'a dyn Fn(&str) -> Option<String>,
}

pub(crate) fn world(facts: LaunchFacts<'_>) -> Option<u32> {
    command::torchrun_world(facts.words)
        .or_else(|| of_accelerate(facts))
        .or_else(|| of_deepspeed(facts))
        .or_else(|| of_program(facts))
        .filter(|n| *n > 0)
}

/// Ranks of one node whose files are only on that node (`save_on_each_node`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRanks {
    pub(crate) first: u32,
    /// One past its last rank.
    pub(crate) end: u32,
    pub(crate) world: u32,
}

/// The ranks whose files are here, if other nodes keep theirs.
pub(crate) fn of_node(words: &[String]) -> Option<NodeRanks> {
    let said = call::settings(words);
    said.get("save_on_each_node").filter(|text| call::is_on(text))?;
    let part = node_part(words)?;
    let nothing = |_: &str| None;
    let world = world(LaunchFacts {
        words,
        said: &nothing,
        env: &nothing,
        file: &nothing,
    })?;
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

/// `accelerate launch --num_processes N`, else its configuration file: a named one, or the user's default.
fn of_accelerate(facts: LaunchFacts<'_>) -> Option<u32> {
    let own = own(facts.words, "accelerate")?;
    if let Some(number) = option(own, "num_processes") {
        return number.parse().ok();
    }
    if own.iter().any(|word| word == "--cpu") && option(own, "config_file").is_none() {
        return None;
    }
    let text = match option(own, "config_file") {
        Some(file) => (facts.file)(file)?,
        None => default_config(facts)?,
    };
    let is_set = |name: &&str| own.iter().any(|word| word.strip_prefix("--") == Some(*name));
    in_config(&text, KINDS.iter().any(is_set))
}

/// accelerate flags that set the kind of a launch and override its file.
const KINDS: [&str; 5] = ["multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm"];

fn default_config(facts: LaunchFacts<'_>) -> Option<String> {
    let set = |name: &str| (facts.env)(name).filter(|dir| !dir.is_empty());
    let cache = || Some(set("XDG_CACHE_HOME").or_else(|| Some(format!("{}/.cache", set("HOME")?)))? + "/huggingface");
    let dir = set("HF_HOME").or_else(cache)?;
    (facts.file)(&format!("{dir}/accelerate/default_config.yaml"))
}

/// Ranks from accelerate's configuration file. `kind_said`: the command itself sets the kind of the launch.
fn in_config(text: &str, kind_said: bool) -> Option<u32> {
    let node = parse_trainer_yaml(text, "accelerate").ok()?;
    let said = |key: &str| node.child(key).and_then(ConfigNode::as_str);
    if said("compute_environment").is_some_and(|place| place != "LOCAL_MACHINE") {
        return None;
    }
    match said("distributed_type") {
        // One process, whatever number the file has.
        Some("NO") if !kind_said => Some(1),
        Some("MULTI_CPU") => None,
        _ => match node.child("num_processes")?.value {
            ConfigValue::Int(n) => u32::try_from(n).ok(),
            _ => None,
        },
    }
}

/// `deepspeed --num_gpus N`, `--include` and `--exclude` with the GPUs of each host, and its hostfile.
fn of_deepspeed(facts: LaunchFacts<'_>) -> Option<u32> {
    let own = own(facts.words, "deepspeed")?;
    let either = |short: &str, long: &str| short_option(own, short).or_else(|| option(own, long));
    let (include, exclude) = (either("-i", "include"), either("-e", "exclude"));
    let number = |name: &str| option(own, name).map(|text| text.parse::<u32>().ok());
    let (nodes, gpus) = (number("num_nodes"), number("num_gpus"));
    let named = either("-H", "hostfile");
    let list = (facts.file)(named.unwrap_or("/job/hostfile"));
    if let Some(list) = list {
        return on_hosts(&hosts(&list)?, include, exclude, nodes, gpus);
    }
    match (include, exclude) {
        (Some(hosts), _) => sum(hosts.split('@').map(cards)),
        // The number of remaining GPUs depends on the machine.
        (None, Some(_)) => None,
        // An unreadable hostfile may list several hosts.
        (None, None) if named.is_some() && nodes.is_none() => None,
        (None, None) => gpus??.checked_mul(nodes.unwrap_or(Some(1))?),
    }
}

/// Hosts of a hostfile with their GPUs: `worker-0 slots=8`.
fn hosts(list: &str) -> Option<Vec<(&str, u32)>> {
    let lines = list.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let host = |line: &'_ str| -> Option<u32> {
        let slots = line.split_whitespace().nth(1)?.strip_prefix("slots=")?;
        let digits = slots.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    lines
        .map(|line| Some((line.split_whitespace().next()?, host(line)?)))
        .collect()
}

fn on_hosts(
    hosts: &[(&str, u32)],
    include: Option<&str>,
    exclude: Option<&str>,
    nodes: Option<Option<u32>>,
    gpus: Option<Option<u32>>,
) -> Option<u32> {
    let slots = |name: &str| hosts.iter().find(|(host, _)| *host == name).map(|(_, slots)| *slots);
    // A host without GPU numbers means all of its GPUs.
    let of = |part: &str| if part.contains(':') { cards(part) } else { slots(part) };
    if let Some(include) = include {
        return sum(include.split('@').map(of));
    }
    let all = sum(hosts.iter().map(|(_, slots)| Some(*slots)))?;
    if let Some(exclude) = exclude {
        return all.checked_sub(sum(exclude.split('@').map(of))?);
    }
    let taken = match nodes {
        Some(nodes) => usize::try_from(nodes?).ok()?.min(hosts.len()),
        None => hosts.len(),
    };
    match gpus {
        Some(gpus) => gpus?.checked_mul(u32::try_from(taken).ok()?),
        None => sum(hosts.iter().take(taken).map(|(_, slots)| Some(*slots))),
    }
}

/// `None` if one is unknown, or the sum overflows.
fn sum(mut cards: impl Iterator<Item = Option<u32>>) -> Option<u32> {
    cards.try_fold(0u32, |sum, n| sum.checked_add(n?))
}

/// GPUs of `host:0,1`.
fn cards(host: &str) -> Option<u32> {
    let (_, cards) = host.split_once(':')?;
    u32::try_from(cards.split(',').filter(|card| !card.is_empty()).count()).ok()
}

/// TRL passes its options on to accelerate; LLaMA-Factory and ms-swift start torchrun themselves, as the environment
/// says.
fn of_program(facts: LaunchFacts<'_>) -> Option<u32> {
    match program(facts.words)?.program {
        KnownProgram::Trl => of_trl(facts),
        KnownProgram::LlamaFactory | KnownProgram::Swift => {
            let number = |name: &str| (facts.env)(name).map(|text| text.parse::<u32>().ok());
            number("NPROC_PER_NODE")??.checked_mul(number("NNODES").unwrap_or(Some(1))?)
        }
        KnownProgram::Axolotl => None,
    }
}

/// The given number, else that of `accelerate_config`: a file, or one that TRL ships.
fn of_trl(facts: LaunchFacts<'_>) -> Option<u32> {
    if let Some(number) = (facts.said)("num_processes") {
        return number.parse().ok();
    }
    match (facts.said)("accelerate_config") {
        Some(name) => match (facts.file)(&name) {
            Some(text) => in_config(&text, false),
            None => BROUGHT_BY_TRL
                .iter()
                .find(|(own, _)| *own == name)
                .map(|(_, ranks)| *ranks),
        },
        None => match (facts.said)("config_file") {
            Some(file) => in_config(&(facts.file)(&file)?, false),
            None => in_config(&default_config(facts)?, false),
        },
    }
}

/// `trl/accelerate_configs` (TRL 1.16), with the ranks that accelerate starts for each.
const BROUGHT_BY_TRL: [(&str, u32); 7] = [
    ("single_gpu", 1),
    ("multi_gpu", 8),
    ("fsdp1", 8),
    ("fsdp2", 8),
    ("zero1", 8),
    ("zero2", 8),
    ("zero3", 8),
];

/// A launcher's own options: the words before the script or the module.
fn own<'a>(words: &'a [String], launcher: &str) -> Option<&'a [String]> {
    let at = words
        .iter()
        .position(|word| word.rsplit('/').next() == Some(launcher))?;
    let own = words.get(at + 1..)?;
    let is_end = |word: &String| word.ends_with(".py") || word == "-m" || word == "--module";
    own.get(..own.iter().position(is_end).unwrap_or(own.len()))
}

fn short_option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let at = words.iter().rposition(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}

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
            assert_eq!(counted(text, env, &[], &[]), ranks, "{text}");
        }
    }

    fn counted(text: &str, env: Option<&str>, said: &[(&str, &str)], files: &[(&str, &str)]) -> Option<u32> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let own = call::settings(&words);
        let find =
            |all: &[(&str, &str)], name: &str| all.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned());
        world(LaunchFacts {
            words: &words,
            said: &|name| own.get(name).cloned().or_else(|| find(said, name)),
            env: &|name| match name {
                "NPROC_PER_NODE" => env.map(str::to_owned),
                "HOME" => Some("/home/me".to_owned()),
                _ => None,
            },
            file: &|name| find(files, name),
        })
    }

    #[test]
    fn ranks_are_counted_of_files_that_a_launcher_reads() {
        let zero =
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 4\n";
        let alone = "distributed_type: 'NO'\nnum_processes: 8\n";
        let hosts = "# all\n\na slots=4\nb slots=2 # old\n";
        let files = [
            ("z.yaml", zero),
            ("no.yaml", alone),
            ("h", hosts),
            ("bad", "a slots=x\n"),
        ];
        let count = |text: &str| counted(text, None, &[], &files);
        for (text, ranks) in [
            ("accelerate launch --config_file z.yaml t.py", Some(4)),
            ("accelerate launch --config_file=z.yaml --num_processes 2 t.py", Some(2)),
            ("accelerate launch --config_file no.yaml t.py", Some(1)),
            ("accelerate launch --config_file no.yaml --multi_gpu t.py", Some(8)),
            ("accelerate launch --config_file lost.yaml t.py", None),
            ("accelerate launch t.py --config_file z.yaml", None),
            ("trl sft --accelerate_config z.yaml", Some(4)),
            ("trl sft --accelerate_config zero3", Some(8)),
            ("trl sft --accelerate_config single_gpu", Some(1)),
            ("trl sft --accelerate_config zero3 --num_processes 2", Some(2)),
            ("trl sft --accelerate_config mine", None),
            ("trl sft --config_file z.yaml", Some(4)),
            ("deepspeed --hostfile h t.py", Some(6)),
            ("deepspeed -H h --num_nodes 1 t.py", Some(4)),
            ("deepspeed -H h --num_gpus 1 t.py", Some(2)),
            ("deepspeed -H h --include a@b:1 t.py", Some(5)),
            ("deepspeed -H h --exclude b t.py", Some(4)),
            ("deepspeed -H h -e a:0,1@b t.py", Some(2)),
            ("deepspeed -H h -i c t.py", None),
            ("deepspeed -H bad --num_gpus 2 t.py", None),
            ("deepspeed --exclude localhost:0 t.py", None),
        ] {
            assert_eq!(count(text), ranks, "{text}");
        }
        // Default files are read too: accelerate's own, DeepSpeed's hostfile, and TRL's YAML.
        let own = [("/home/me/.cache/huggingface/accelerate/default_config.yaml", zero)];
        for text in ["accelerate launch t.py", "trl sft --learning_rate 1"] {
            assert_eq!(counted(text, None, &[], &own), Some(4), "{text}");
        }
        assert_eq!(
            counted("deepspeed t.py", None, &[], &[("/job/hostfile", hosts)]),
            Some(6)
        );
        let yaml = [("accelerate_config", "zero2")];
        assert_eq!(counted("trl sft --config x.yaml", None, &yaml, &own), Some(8));
        let elsewhere = [("z.yaml", "compute_environment: AMAZON_SAGEMAKER\nnum_processes: 4\n")];
        assert_eq!(
            counted("accelerate launch --config_file z.yaml t.py", None, &[], &elsewhere),
            None
        );
    }
}
