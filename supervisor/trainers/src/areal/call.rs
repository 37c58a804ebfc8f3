//! A command that starts AReaL: how it launches ranks, where its arguments begin, which YAML it names.

use crate::command;
use crate::read::ReadInput;
use supervise_config::{ConfigTree, ConfigValue, ValueOrigin};
use supervise_core::spec::LauncherKind;

/// AReaL's older launchers, by module name.
const LAUNCHERS: [&str; 2] = ["areal.infra.launcher.", "areal.launcher."];
/// Where they run their ranks.
const PLACES: [&str; 3] = ["local", "ray", "slurm"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArealLauncher {
    /// One process that starts workers through an AReaL scheduler.
    Controller,
    /// An AReaL launcher that starts one process per rank; where.
    Launcher(String),
    Torchrun,
    /// We start them, or something that sets `AREAL_SPMD_MODE` itself.
    Ranks,
    Unknown,
}

impl ArealLauncher {
    /// Returns true if each rank trains by itself, with its own dataloader position.
    pub(super) fn is_spmd(&self) -> bool {
        matches!(self, Self::Launcher(_) | Self::Torchrun | Self::Ranks)
    }
}

pub(super) fn form(input: &ReadInput<'_>) -> ArealLauncher {
    if let Some((place, _)) = launcher(input.command) {
        return ArealLauncher::Launcher(place);
    }
    if command::is_torchrun(input.command) {
        return ArealLauncher::Torchrun;
    }
    let ours = input.launcher == Some(LauncherKind::Gang) || input.workers.is_some();
    if ours || is_spmd(&|name| env(input, name)) {
        return ArealLauncher::Ranks;
    }
    match arguments(input.command) {
        Some(_) => ArealLauncher::Controller,
        None => ArealLauncher::Unknown,
    }
}

/// `AREAL_SPMD_MODE`, parsed as AReaL does.
fn is_spmd(env: &dyn Fn(&str) -> Option<String>) -> bool {
    env("AREAL_SPMD_MODE").is_some_and(|v| matches!(v.to_lowercase().as_str(), "1" | "true"))
}

/// A variable as the trainer will see it: the command may begin with `env NAME=value`.
pub(super) fn env(input: &ReadInput<'_>, name: &str) -> Option<String> {
    let own =
        |word: &String| Some(word.split_once('=')?.1.to_owned()).filter(|_| word.starts_with(&format!("{name}=")));
    let set = input
        .command
        .first()
        .is_some_and(|w| w.rsplit('/').next() == Some("env"));
    let words = input.command.iter().skip(1).take_while(|w| w.contains('='));
    let last = words.filter_map(own).last().filter(|_| set);
    last.or_else(|| (input.env)(name))
}

/// One of AReaL's launchers, and the position after it.
pub(super) fn launcher(command: &[String]) -> Option<(String, usize)> {
    command.iter().enumerate().find_map(|(i, word)| {
        let module = word
            .strip_suffix(".py")
            .map_or_else(|| word.clone(), |path| path.replace('/', "."));
        let place = LAUNCHERS.iter().find_map(|l| {
            let at = module.rfind(l)?;
            let starts = at == 0 || module.as_bytes().get(at - 1) == Some(&b'.');
            starts.then(|| module[at + l.len()..].to_owned())
        })?;
        let named = i > 0 && command[i - 1] == "-m" || word.ends_with(".py");
        (named && PLACES.contains(&place.as_str())).then_some((place, i + 1))
    })
}

/// Where the script's arguments begin; `None` if the command shows no Python program.
pub(super) fn arguments(command: &[String]) -> Option<usize> {
    let from = launcher(command).map_or(0, |(_, at)| at);
    let words = &command[from..];
    // A word with a space is a text for a shell.
    let script = words.iter().position(|w| w.ends_with(".py") && !w.contains(' '));
    let module = words.iter().position(|w| w == "-m" || w == "--module").map(|at| at + 1);
    let is_launcher = |at: &usize| words.get(*at).is_some_and(|w| w.starts_with("torch."));
    let last = match (script, module.filter(|at| !is_launcher(at))) {
        (Some(script), Some(module)) => script.min(module),
        (script, module) => script.or(module)?,
    };
    (last < words.len()).then_some(from + last + 1)
}

pub(super) fn overrides(command: &[String]) -> Vec<&str> {
    let from = arguments(command).unwrap_or(command.len());
    let option = config_option(command);
    let names_file = |i: usize| option.as_ref().is_some_and(|o| !o.joined && i == o.at + 1);
    let words = command.iter().enumerate().skip(from);
    words
        .filter(|(i, w)| command::is_override(w) && !names_file(*i))
        .map(|(_, w)| w.as_str())
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigOption {
    pub(super) at: usize,
    /// `--config=FILE`, in one word.
    pub(super) joined: bool,
    pub(super) file: String,
}

/// Finds `--config` in any spelling that argparse accepts. The last one wins.
pub(super) fn config_option(command: &[String]) -> Option<ConfigOption> {
    let from = arguments(command)?;
    (from..command.len()).rev().find_map(|at| {
        let word = command[at].as_str();
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        if name.len() < 3 || !"--config".starts_with(name) {
            return None;
        }
        let file = value.map_or_else(|| command.get(at + 1).cloned(), |v| Some(v.to_owned()))?;
        Some(ConfigOption {
            at,
            joined: value.is_some(),
            file,
        })
    })
}

/// A command for a configuration without one: the user's script, and a scheduler if the file has none.
pub(super) fn proposal(tree: &ConfigTree) -> Vec<String> {
    let scheduler = tree.get("scheduler.type");
    let is_written = scheduler.is_some_and(|node| !matches!(node.origin, ValueOrigin::Default { .. }));
    let local = match scheduler.map(|node| &node.value) {
        Some(ConfigValue::Str(_)) => None,
        // Hydra wants a plus before a key that the file lacks.
        _ if is_written => Some("scheduler.type=local"),
        _ => Some("+scheduler.type=local"),
    };
    let words = ["python3", "YOUR_SCRIPT.py"].into_iter().chain(local);
    words.map(str::to_owned).collect()
}

/// The command with a placeholder for its YAML, replacing the file it names or added after the script.
pub(super) fn with_config(command: &[String]) -> Vec<String> {
    let mut words = command.to_vec();
    match (config_option(command), arguments(command)) {
        (Some(option), _) if option.joined => words[option.at] = format!("--config={}", command::CONFIG),
        (Some(option), _) => command::CONFIG.clone_into(&mut words[option.at + 1]),
        (None, Some(at)) if !command.iter().any(|w| w.contains(command::CONFIG)) => {
            words.splice(at..at, ["--config".to_owned(), command::CONFIG.to_owned()]);
        }
        (None, _) => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_launchers_of_the_older_kind_are_known_by_their_modules() {
        for (text, place) in [
            (
                "python3 -m areal.infra.launcher.local s.py --config x.yaml",
                Some("local"),
            ),
            ("python3 -m areal.launcher.slurm s.py", Some("slurm")),
            ("python3 /src/areal/infra/launcher/ray.py s.py", Some("ray")),
            ("python3 -m areal.infra.launcher.sglang_server", None),
            ("python3 -m my_areal.launcher.local s.py", None),
            ("python3 s.py", None),
        ] {
            assert_eq!(launcher(&words(text)).map(|(p, _)| p).as_deref(), place, "{text}");
        }
    }

    #[test]
    fn the_file_is_passed_behind_the_script() {
        for (given, passed) in [
            ("python3 s.py a=1", "python3 s.py --config {config} a=1"),
            ("python3 s.py --config x.yaml a=1", "python3 s.py --config {config} a=1"),
            ("python3 s.py a=1 --conf=x.yaml", "python3 s.py a=1 --config={config}"),
            (
                "python3 -m areal.infra.launcher.local s.py a=1",
                "python3 -m areal.infra.launcher.local s.py --config {config} a=1",
            ),
            (
                "torchrun --nproc-per-node 2 s.py a=1",
                "torchrun --nproc-per-node 2 s.py --config {config} a=1",
            ),
            ("python3 -m my.train a=1", "python3 -m my.train --config {config} a=1"),
            (
                "python3 -m torch.distributed.run s.py",
                "python3 -m torch.distributed.run s.py --config {config}",
            ),
            ("bash run.sh {config}", "bash run.sh {config}"),
        ] {
            assert_eq!(with_config(&words(given)), words(passed), "{given}");
        }
    }

    #[test]
    fn the_file_is_no_override() {
        let command = words("python3 s.py --config k=v.yaml a=1 --seed 3 +b=2 ~c");
        assert_eq!(overrides(&command), ["a=1", "+b=2", "~c"]);
    }
}
