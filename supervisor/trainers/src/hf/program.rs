//! Programs that train with Hugging Face's `Trainer`, by name.

use crate::command::CONFIG;
use std::ops::Range;

const TRL: [&str; 10] = [
    "sft",
    "dpo",
    "grpo",
    "kto",
    "reward",
    "rloo",
    "gkd",
    "online_dpo",
    "distillation",
    "async_grpo",
];
const SWIFT: [&str; 3] = ["sft", "pt", "rlhf"];
const LLAMA_FACTORY: [&str; 2] = ["llamafactory-cli", "lmf"];
/// Training commands of LLaMA-Factory; those other than `train` belong to its newer trainer (`USE_V1=1`).
const LLAMA_VERBS: [&str; 4] = ["train", "sft", "rm", "dpo"];
pub(crate) const PROGRAMS: [&str; 5] = ["trl", "swift", "llamafactory-cli", "lmf", "axolotl"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownProgram {
    Trl,
    Swift,
    LlamaFactory,
    Axolotl,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundProgram {
    pub(crate) program: KnownProgram,
    /// The words that name it; its arguments follow.
    pub(crate) words: Range<usize>,
}

impl FoundProgram {
    pub(crate) fn file<'a>(&self, command: &'a [String]) -> Option<&'a String> {
        command.get(self.words.end).filter(|word| is_file(word))
    }
}

pub(crate) fn is_file(word: &str) -> bool {
    if word == CONFIG {
        return true;
    }
    let ends = [".yaml", ".yml", ".json"].into_iter().any(|end| word.ends_with(end));
    ends && !word.starts_with('-')
}

pub(crate) fn program(command: &[String]) -> Option<FoundProgram> {
    (0..command.len()).find_map(|at| {
        let (program, count) = begins(command.get(at..)?)?;
        let words = at..at + count;
        Some(FoundProgram { program, words })
    })
}

/// The program that these words begin with, and how many of them name it.
fn begins(words: &[String]) -> Option<(KnownProgram, usize)> {
    let path = words.first()?.as_str();
    let name = path.rsplit('/').next().unwrap_or(path);
    let next = words.get(1).map_or("", String::as_str);
    let third = words.get(2).map_or("", String::as_str);
    Some(match name {
        "trl" if TRL.contains(&next) => (KnownProgram::Trl, 2),
        "swift" if SWIFT.contains(&next) => (KnownProgram::Swift, 2),
        "axolotl" if next == "train" => (KnownProgram::Axolotl, 2),
        "-m" if next == "trl.cli" && TRL.contains(&third) => (KnownProgram::Trl, 3),
        "-m" => (module(next)?, 2),
        _ if LLAMA_FACTORY.contains(&name) && LLAMA_VERBS.contains(&next) => (KnownProgram::LlamaFactory, 2),
        _ if path.ends_with(".py") => (script(path, next)?, 1),
        _ => return None,
    })
}

/// The program with this module, as `-m` takes it.
fn module(name: &str) -> Option<KnownProgram> {
    if name == "axolotl.cli.train" {
        return Some(KnownProgram::Axolotl);
    }
    let (package, verb) = name.rsplit_once('.')?;
    match package {
        "trl.scripts" if TRL.contains(&verb) => Some(KnownProgram::Trl),
        "swift.cli" if SWIFT.contains(&verb) => Some(KnownProgram::Swift),
        _ => None,
    }
}

/// The program with this script; `next`: the word after it.
fn script(path: &str, next: &str) -> Option<KnownProgram> {
    let parts: Vec<&str> = path.trim_end_matches(".py").rsplit('/').take(3).collect();
    match parts.as_slice() {
        // LLaMA-Factory's own; many other repositories have a script of that name.
        ["train", "src", ..] if is_file(next) => Some(KnownProgram::LlamaFactory),
        ["launcher", "llamafactory", ..] => Some(KnownProgram::LlamaFactory),
        ["train", "cli", "axolotl"] => Some(KnownProgram::Axolotl),
        [verb, "scripts", "trl"] if TRL.contains(verb) => Some(KnownProgram::Trl),
        [verb, "cli", "swift"] if SWIFT.contains(verb) => Some(KnownProgram::Swift),
        _ => None,
    }
}

pub(crate) fn is(command: &[String], wanted: KnownProgram) -> bool {
    program(command).is_some_and(|found| found.program == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_however_they_are_called() {
        for (text, wanted) in [
            ("trl sft --config x.yaml", Some(KnownProgram::Trl)),
            ("trl distillation --config x.yaml", Some(KnownProgram::Trl)),
            ("trl env", None),
            ("python3 -m trl.cli dpo --config x.yaml", Some(KnownProgram::Trl)),
            ("accelerate launch -m trl.scripts.grpo", Some(KnownProgram::Trl)),
            (
                "accelerate launch /v/trl/scripts/sft.py --output_dir o",
                Some(KnownProgram::Trl),
            ),
            ("swift rlhf --rlhf_type dpo", Some(KnownProgram::Swift)),
            ("torchrun /v/swift/cli/sft.py --model m", Some(KnownProgram::Swift)),
            ("llamafactory-cli train x.json", Some(KnownProgram::LlamaFactory)),
            ("llamafactory-cli sft x.yaml", Some(KnownProgram::LlamaFactory)),
            ("llamafactory-cli chat x.yaml", None),
            ("torchrun src/train.py x.yaml", Some(KnownProgram::LlamaFactory)),
            (
                "accelerate launch --config_file f.yaml src/train.py x.yml",
                Some(KnownProgram::LlamaFactory),
            ),
            ("torchrun src/train.py --output_dir o", None),
            ("python3 train.py x.yaml", None),
            ("axolotl train c.yml", Some(KnownProgram::Axolotl)),
            ("axolotl preprocess c.yml", None),
            (
                "accelerate launch -m axolotl.cli.train c.yml",
                Some(KnownProgram::Axolotl),
            ),
        ] {
            let command: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(program(&command).map(|found| found.program), wanted, "{text}");
        }
    }
}
