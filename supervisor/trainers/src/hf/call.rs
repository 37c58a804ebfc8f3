//! A command that starts a training with Hugging Face's `Trainer`: its settings, and how to add more.

use super::program::{self, KnownProgram, program};
use std::collections::BTreeMap;

/// How a program takes settings of the `Trainer` from its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgStyle {
    /// `--key value`, as `HfArgumentParser` reads them.
    Flags,
    /// `key=value` after the configuration, as LLaMA-Factory reads them.
    Pairs,
    /// Not known to take any.
    None,
}

/// Flags of `TrainingArguments`. Other programs may have one of them; none is known to have two.
const TELLING: [&str; 15] = [
    "per_device_train_batch_size",
    "save_strategy",
    "save_steps",
    "save_total_limit",
    "save_only_model",
    "save_safetensors",
    "logging_strategy",
    "logging_steps",
    "logging_first_step",
    "eval_strategy",
    "evaluation_strategy",
    "load_best_model_at_end",
    "overwrite_output_dir",
    "do_train",
    "ddp_find_unused_parameters",
];
/// Further keys of `TrainingArguments` that other trainers' files do not have.
const TELLING_IN_FILES: [&str; 6] = [
    "num_train_epochs",
    "per_device_eval_batch_size",
    "lr_scheduler_type",
    "eval_steps",
    "gradient_checkpointing_kwargs",
    "remove_unused_columns",
];
/// Flags of scripts that use only accelerate: their saves have other names.
const OTHERS: [&str; 2] = ["checkpointing_steps", "checkpoints_total_limit"];
/// Shells: the words after one belong to a script, which may or may not pass them on.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
const FILES: usize = 8;
pub(crate) const RESUME: &str = "resume_from_checkpoint";
pub(crate) const OUTPUT_DIR: &str = "output_dir";
pub(crate) const PUSH_TO_HUB: &str = "push_to_hub";

/// Returns true if a command starts such a training, by its program or by its flags.
pub(crate) fn is_called(command: &[String]) -> bool {
    program(command).is_some() || is_called_by_flags(command)
}

/// Returns true if only its flags show that a command starts such a training.
pub(crate) fn is_called_by_flags(command: &[String]) -> bool {
    program(command).is_none() && !is_script(command) && telling_flags(command) >= 2
}

fn is_script(command: &[String]) -> bool {
    let mut own = command.iter().take_while(|word| !word.starts_with("--"));
    own.any(|word| word.ends_with(".sh") || SHELLS.contains(&word.rsplit('/').next().unwrap_or(word)))
}

/// Identifies a command for comparison: the program with its verb, else the script or module.
pub(crate) fn entry(command: &[String]) -> String {
    let base = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    if let Some(found) = program(command) {
        let named = command.get(found.words.clone()).unwrap_or_default();
        return named.iter().map(base).collect::<Vec<_>>().join(" ");
    }
    let module = command.windows(2).find(|words| words[0] == "-m").map(|words| &words[1]);
    let script = command.iter().find(|word| word.ends_with(".py"));
    script.or(module).map(base).unwrap_or_default()
}

/// Number of `TrainingArguments` flags in a command, besides the output directory.
fn telling_flags(command: &[String]) -> usize {
    let flags = flags(command);
    let begins_elsewhere = flags.get(RESUME).is_some_and(|value| is_of_others(value));
    if !flags.contains_key(OUTPUT_DIR) || OTHERS.iter().any(|o| flags.contains_key(*o)) || begins_elsewhere {
        return 0;
    }
    TELLING.iter().filter(|name| flags.contains_key(**name)).count()
}

/// Returns true if a file with these keys has settings of such a training.
pub(crate) fn is_meant(has: impl Fn(&str) -> bool) -> bool {
    let mut telling = TELLING.iter().chain(&TELLING_IN_FILES);
    has(OUTPUT_DIR) && telling.any(|key| has(key)) && !OTHERS.iter().any(|key| has(key))
}

fn is_of_others(value: &str) -> bool {
    let name = value.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name == "latest" || name.starts_with("step_") || name.starts_with("epoch_")
}

pub(crate) fn style(command: &[String]) -> ArgStyle {
    match program(command) {
        Some(found) => match found.program {
            KnownProgram::LlamaFactory if found.file(command).is_some() => ArgStyle::Pairs,
            KnownProgram::LlamaFactory | KnownProgram::Trl | KnownProgram::Swift => ArgStyle::Flags,
            // Its options change from release to release; it finds the newest step itself.
            KnownProgram::Axolotl => ArgStyle::None,
        },
        // The settings name this trainer, so one flag is enough.
        None if telling_flags(command) >= 1 => ArgStyle::Flags,
        None => ArgStyle::None,
    }
}

pub(crate) fn config_in(command: &[String]) -> Option<String> {
    let found = program(command)?;
    match found.program {
        KnownProgram::LlamaFactory | KnownProgram::Axolotl => found.file(command).cloned(),
        KnownProgram::Trl | KnownProgram::Swift => {
            let own = command.get(found.words.end..)?;
            flags(own).get("config").cloned().filter(|file| program::is_file(file))
        }
    }
}

/// Files in a command that may have its settings, as written: the program's own if it is known, else all; their
/// content decides.
pub(crate) fn configs_in(command: &[String]) -> Vec<String> {
    if program(command).is_some() {
        return config_in(command).into_iter().collect();
    }
    if is_script(command) {
        return Vec::new();
    }
    let value = |word: &String| match word.strip_prefix("--").and_then(|flag| flag.split_once('=')) {
        Some((_, value)) => value.to_owned(),
        None => word.clone(),
    };
    let named = command.iter().map(value).filter(|word| program::is_file(word));
    named.take(FILES).collect()
}

/// Settings in a command by name; the last one wins.
pub(crate) fn settings(command: &[String]) -> BTreeMap<String, String> {
    match style(command) {
        ArgStyle::Pairs => command
            .iter()
            .filter_map(|word| word.split_once('='))
            .filter(|(key, _)| !key.starts_with('-'))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        _ => flags(command),
    }
}

/// `--key value`, `--key=value`, and `--key` alone, which means `true`.
fn flags(command: &[String]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (at, word) in command.iter().enumerate() {
        let Some(flag) = word.strip_prefix("--").filter(|f| !f.is_empty()) else {
            continue;
        };
        let (key, value) = match flag.split_once('=') {
            Some((key, value)) => (key, value),
            None => match command.get(at + 1).filter(|next| !next.starts_with("--")) {
                Some(next) => (flag, next.as_str()),
                None => (flag, "true"),
            },
        };
        out.insert(key.replace('-', "_"), value.to_owned());
    }
    out
}

pub(crate) fn without(command: &[String], name: &str) -> Vec<String> {
    let is_it = |word: &str| {
        let flag = word.strip_prefix("--").unwrap_or_default();
        flag.split('=').next().unwrap_or_default().replace('-', "_") == name
    };
    let pair = format!("{name}=");
    let mut out = Vec::with_capacity(command.len());
    let mut words = command.iter().peekable();
    while let Some(word) = words.next() {
        if is_it(word) {
            let has_value = !word.contains('=') && words.peek().is_some_and(|next| !next.starts_with("--"));
            if has_value {
                words.next();
            }
        } else if !word.starts_with(&pair) {
            out.push(word.clone());
        }
    }
    out
}

/// Returns true if the command's own flags make the trainer upload its output directory.
pub(crate) fn pushes_to_hub(command: &[String]) -> bool {
    settings(command).get(PUSH_TO_HUB).is_some_and(|text| is_on(text))
}

pub(crate) fn is_on(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "1" | "yes")
}

pub(crate) fn spelt(style: ArgStyle, key: &str, value: &str) -> Option<String> {
    match style {
        ArgStyle::Flags => Some(format!("--{key}={value}")),
        ArgStyle::Pairs => Some(format!("{key}={value}")),
        ArgStyle::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_training_is_known_by_its_program_or_by_its_flags() {
        for (command, style_of, called) in [
            (
                "python3 train.py --output_dir out --save_steps 10 --per_device_train_batch_size 4",
                ArgStyle::Flags,
                true,
            ),
            (
                "torchrun --nproc-per-node 2 train.py --output-dir=o --save-total-limit=1 --do-train",
                ArgStyle::Flags,
                true,
            ),
            ("trl sft --model_name_or_path m", ArgStyle::Flags, true),
            ("/v/bin/trl grpo --config x.yaml", ArgStyle::Flags, true),
            (
                "accelerate launch --num_processes 8 -m trl.scripts.sft --config x.yaml",
                ArgStyle::Flags,
                true,
            ),
            ("llamafactory-cli train x.yaml", ArgStyle::Pairs, true),
            ("torchrun src/train.py {config} a=1", ArgStyle::Pairs, true),
            (
                "llamafactory-cli train --stage sft --output_dir o",
                ArgStyle::Flags,
                true,
            ),
            ("axolotl train c.yml", ArgStyle::None, true),
            ("swift sft --model m", ArgStyle::Flags, true),
            ("python3 train.py --output_dir out", ArgStyle::None, false),
            ("python3 train.py", ArgStyle::None, false),
            (
                "bash train.sh --output_dir out --save_steps 10 --logging_steps 1",
                ArgStyle::Flags,
                false,
            ),
            (
                "./train.sh --output_dir out --save_steps 10 --logging_steps 1",
                ArgStyle::Flags,
                false,
            ),
            ("llamafactory-cli export x.yaml", ArgStyle::None, false),
            ("megatron sft --model m", ArgStyle::None, false),
        ] {
            let command = words(command);
            assert_eq!(
                (style(&command), is_called(&command)),
                (style_of, called),
                "{command:?}"
            );
        }
    }

    #[test]
    fn a_script_that_shares_flags_is_not_taken_for_one() {
        let no_trainer = "accelerate launch run_clm_no_trainer.py --output_dir o --num_train_epochs 1 \
             --gradient_accumulation_steps 2 --per_device_train_batch_size 4 --per_device_eval_batch_size 4 \
             --learning_rate 1e-4 --lr_scheduler_type cosine";
        let both = "python3 t.py --output_dir o --save_steps 5 --logging_steps 1";
        for (command, called) in [
            (no_trainer.to_owned(), false),
            (
                format!("{no_trainer} --checkpointing_steps epoch --resume_from_checkpoint latest"),
                false,
            ),
            ("python3 t.py --output_dir o --save_steps 5".to_owned(), false),
            (both.to_owned(), true),
            (format!("{both} --resume_from_checkpoint True"), true),
            (format!("{both} --resume_from_checkpoint old/checkpoint-4"), true),
            (format!("{both} --resume_from_checkpoint latest"), false),
            (format!("{both} --resume_from_checkpoint=o/step_40/"), false),
            (format!("{both} --resume_from_checkpoint o/epoch_1"), false),
            (format!("{both} --checkpointing_steps 5"), false),
            (format!("{both} --checkpoints-total-limit=5"), false),
        ] {
            assert_eq!(is_called(&words(&command)), called, "{command}");
        }
        let shares = words(no_trainer);
        assert_eq!(style(&shares), ArgStyle::Flags, "where it is said that it is one");
    }

    #[test]
    fn settings_are_read_as_the_program_reads_them() {
        let said = settings(&words(
            "python3 t.py --output_dir a --save-steps=5 --output_dir b --use_cpu --x y",
        ));
        let get = |key: &str| said.get(key).map(String::as_str);
        assert_eq!((get("output_dir"), get("save_steps")), (Some("b"), Some("5")));
        assert_eq!((get("use_cpu"), get("x")), (Some("true"), Some("y")));
        let said = settings(&words("llamafactory-cli train x.yaml output_dir=o save_steps=7"));
        assert_eq!(said.get("save_steps").map(String::as_str), Some("7"));
        assert_eq!(
            config_in(&words("llamafactory-cli train x.yaml")).as_deref(),
            Some("x.yaml")
        );
        assert_eq!(config_in(&words("trl sft --config c.yaml")).as_deref(), Some("c.yaml"));
        assert_eq!(config_in(&words("python3 t.py --config c.yaml")), None);
        for (command, files) in [
            ("python3 t.py --config c.yaml", "c.yaml"),
            (
                "accelerate launch --config_file a.yaml t.py --config=c.json d.yml",
                "a.yaml c.json d.yml",
            ),
            ("bash t.sh c.yaml", ""),
            ("llamafactory-cli train a.json b.yaml", "a.json"),
            ("torchrun src/train.py {config} a.yaml", "{config}"),
        ] {
            assert_eq!(configs_in(&words(command)).join(" "), files, "{command}");
        }
        let said = settings(&words("llamafactory-cli train --output_dir o --save_steps 7"));
        assert_eq!(said.get("save_steps").map(String::as_str), Some("7"));
    }

    #[test]
    fn a_flag_goes_with_its_value() {
        for command in [
            "p t.py --a 1 --resume_from_checkpoint x --b 2",
            "p t.py --a 1 --resume-from-checkpoint=x --b 2",
            "p t.py --a 1 resume_from_checkpoint=x --b 2",
            "p t.py --a 1 --resume_from_checkpoint --b 2",
        ] {
            assert_eq!(
                without(&words(command), RESUME).join(" "),
                "p t.py --a 1 --b 2",
                "{command}"
            );
        }
    }
}
