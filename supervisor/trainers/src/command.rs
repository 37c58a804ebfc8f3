//! The command as a list of words: placeholders, entry point, torchrun's options.

use crate::shell;

pub(crate) const OVERRIDES: &str = "{overrides}";
/// Placeholder for the path of the trainer's YAML.
pub const CONFIG: &str = "{config}";

/// A trainer's module, as named after `-m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoint {
    Ppo,
    /// A variant of PPO with its own configuration that saves and resumes like it: one-step-off, DAPO.
    Relative,
    /// The fully asynchronous trainer, whose steps are weight versions.
    FullyAsync,
    /// `verl.trainer.sft_trainer`: one process per rank.
    Sft,
    /// `verl.trainer.sft_trainer_ray`: one driver.
    SftRay,
    /// `verl.trainer.fsdp_sft_trainer`, up to 0.7.0: one process per rank.
    SftOld,
    Other,
    /// A third-party module that takes verl's keys: a trainer built on verl's classes.
    Foreign,
}

/// Prefixes of keys that only verl's configuration has.
const ONLY_VERLS: [&str; 6] = [
    "actor_rollout_ref.",
    "algorithm.adv_estimator",
    "trainer.default_local_dir",
    "trainer.n_gpus_per_node",
    "trainer.max_actor_ckpt_to_keep",
    "trainer.val_before_train",
];

/// Finds the entry point and the position of its first argument.
pub(crate) fn entry(command: &[String]) -> Option<(EntryPoint, usize)> {
    known_entry(command).or_else(|| Some((EntryPoint::Foreign, foreign(command)?)))
}

/// The position after the last module or script before the first key that only verl has.
fn foreign(command: &[String]) -> Option<usize> {
    let is_verls = |word: &String| ONLY_VERLS.iter().any(|key| override_key(word).starts_with(key));
    let first = command.iter().position(|w| is_override(w) && is_verls(w))?;
    let named = |at: &usize| command[at - 1] == "-m" || command[*at].ends_with(".py");
    (1..first).rev().find(named).map(|at| at + 1)
}

fn known_entry(command: &[String]) -> Option<(EntryPoint, usize)> {
    command.iter().enumerate().find_map(|(i, word)| {
        let module = word
            .strip_suffix(".py")
            .map_or_else(|| word.clone(), |path| path.replace('/', "."));
        let entry = ["verl.", "recipe."]
            .into_iter()
            .find_map(|top| known(&module[module.rfind(top)?..]))?;
        let named = i > 0 && command[i - 1] == "-m" || word.ends_with(".py");
        named.then_some((entry, i + 1))
    })
}

fn known(module: &str) -> Option<EntryPoint> {
    Some(match module {
        "verl.trainer.main_ppo" | "verl.trainer.main_ppo_sync" => EntryPoint::Ppo,
        "verl.experimental.one_step_off_policy.main_ppo"
        | "recipe.one_step_off_policy.main_ppo"
        | "recipe.dapo.main_dapo" => EntryPoint::Relative,
        "verl.experimental.fully_async_policy.fully_async_main" | "recipe.fully_async_policy.fully_async_main" => {
            EntryPoint::FullyAsync
        }
        "verl.trainer.sft_trainer" => EntryPoint::Sft,
        "verl.trainer.sft_trainer_ray" => EntryPoint::SftRay,
        "verl.trainer.fsdp_sft_trainer" => EntryPoint::SftOld,
        other if other.starts_with("verl.trainer.") || other.starts_with("verl.experimental.") => EntryPoint::Other,
        _ => return None,
    })
}

/// The words after the entry point that look like overrides.
pub(crate) fn overrides_in(command: &[String]) -> Vec<&str> {
    let from = entry(command).map_or(command.len(), |(_, at)| at);
    command[from..]
        .iter()
        .map(String::as_str)
        .filter(|w| is_override(w))
        .collect()
}

/// `key=value`, `+key=value`, `++key=value` or `~key`, but no flag or placeholder.
pub(crate) fn is_override(word: &str) -> bool {
    if word.starts_with('~') {
        return true;
    }
    let key = word.trim_start_matches('+');
    !word.starts_with('-')
        && key
            .find('=')
            .is_some_and(|at| at > 0 && !key[..at].contains([' ', '{', '/']))
}

pub(crate) fn override_key(word: &str) -> &str {
    let key = word.trim_start_matches(['+', '~']);
    key.split_once('=').map_or(key, |(key, _)| key)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HydraConfig {
    pub(crate) name: Option<String>,
    /// `--config-path` or `--config-dir` is given.
    pub(crate) elsewhere: bool,
}

pub(crate) fn hydra_config(command: &[String]) -> Option<HydraConfig> {
    let mut found = HydraConfig::default();
    for (i, word) in command.iter().enumerate() {
        let (option, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(o, v)| (o, Some(v)));
        match option {
            "--config-name" | "-cn" => {
                let value = value
                    .or_else(|| command.get(i + 1).map(String::as_str))
                    .unwrap_or_default();
                let stem = value
                    .strip_suffix(".yaml")
                    .or_else(|| value.strip_suffix(".yml"))
                    .unwrap_or(value);
                found.name = Some(stem.to_owned());
            }
            "--config-path" | "-cp" | "--config-dir" | "-cd" => found.elsewhere = true,
            _ => {}
        }
    }
    (found != HydraConfig::default()).then_some(found)
}

/// Returns true if the command marks the place for overrides.
pub(crate) fn marks_overrides(command: &[String]) -> bool {
    command.iter().any(|w| w.contains(OVERRIDES))
}

/// Inserts the overrides at the placeholder, else at the end; `{config}` becomes the file's path.
pub(crate) fn fill(command: &[String], overrides: &[String], config: Option<&str>) -> Vec<String> {
    let marked = marks_overrides(command);
    let mut out = Vec::with_capacity(command.len() + overrides.len());
    for word in command {
        if word == OVERRIDES {
            out.extend_from_slice(overrides);
            continue;
        }
        let mut word = match config {
            Some(path) => word.replace(CONFIG, path),
            None => word.clone(),
        };
        if word.contains(OVERRIDES) {
            // Inside a longer word: a shell script given as text.
            let quoted: Vec<String> = overrides.iter().map(|o| shell::quote(o)).collect();
            word = word.replace(OVERRIDES, &quoted.join(" "));
        }
        out.push(word);
    }
    if !marked {
        out.extend_from_slice(overrides);
    }
    out
}

/// Position of torchrun in the command, and where its own options end (the script or `-m`).
fn torchrun(command: &[String]) -> Option<(usize, usize)> {
    let at = command.iter().position(|w| {
        let name = w.rsplit('/').next().unwrap_or(w);
        name == "torchrun" || w == "torch.distributed.run" || w == "torch.distributed.launch"
    })?;
    let end = command[at + 1..]
        .iter()
        .position(|w| w == "-m" || w == "--module" || w.ends_with(".py"))
        .map_or(command.len(), |n| at + 1 + n);
    Some((at, end))
}

/// The value of a torchrun option, spelled with dashes or underscores, with `=` or a space.
fn torchrun_option<'a>(command: &'a [String], name: &str) -> Option<(usize, &'a str, bool)> {
    let (at, end) = torchrun(command)?;
    (at + 1..end).rev().find_map(|i| {
        let word = command[i].strip_prefix("--")?;
        let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
        if key.replace('_', "-") != name {
            return None;
        }
        match value {
            Some(value) => Some((i, value, true)),
            None => command
                .get(i + 1)
                .filter(|_| i + 1 < end)
                .map(|v| (i, v.as_str(), false)),
        }
    })
}

/// Ranks that torchrun would start, if the command gives numbers.
pub(crate) fn torchrun_world(command: &[String]) -> Option<u32> {
    torchrun(command)?;
    let number = |name: &str| match torchrun_option(command, name) {
        Some((_, value, _)) => value.parse::<u32>().ok().filter(|n| *n > 0),
        None => Some(1),
    };
    number("nproc-per-node")?.checked_mul(number("nnodes")?)
}

pub(crate) fn is_torchrun(command: &[String]) -> bool {
    torchrun(command).is_some()
}

/// Stops torchrun from restarting workers, which would bypass the supervisor. Returns the change as text.
pub(crate) fn forbid_restarts(command: &mut Vec<String>, by_environment: bool) -> Option<String> {
    let found = torchrun_option(command, "max-restarts").map(|(i, value, joined)| (i, value.to_owned(), joined));
    match found {
        Some((_, value, _)) if value == "0" => None,
        Some((i, value, joined)) => {
            "--max-restarts=0".clone_into(&mut command[i]);
            if !joined {
                command.remove(i + 1);
            }
            Some(format!(
                "torchrun's --max-restarts={value} is set to 0: restarts are the supervisor's"
            ))
        }
        None if by_environment => {
            let (at, _) = torchrun(command)?;
            command.insert(at + 1, "--max-restarts=0".to_owned());
            Some(
                "torchrun's PET_MAX_RESTARTS is overruled by --max-restarts=0: restarts are the supervisor's"
                    .to_owned(),
            )
        }
        None => None,
    }
}

/// Makes `ray job submit` wait: otherwise the job would train unsupervised. Returns the change as text.
pub(crate) fn wait_for_job(command: &mut Vec<String>) -> Option<String> {
    let end = command.iter().position(|w| w == "--").unwrap_or(command.len());
    let words = ["job", "submit"];
    let submits = command[..end].windows(2).any(|w| w == words);
    let at = command[..end].iter().position(|w| w == "--no-wait")?;
    submits.then(|| {
        command.remove(at);
        "ray job submit's --no-wait is taken out: the supervisor has to see the driver end".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_entry_point_is_found() {
        for (command, what) in [
            ("python3 -m verl.trainer.main_ppo a=1", Some(EntryPoint::Ppo)),
            (
                "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer a=1",
                Some(EntryPoint::Sft),
            ),
            ("python -m verl.trainer.sft_trainer_ray", Some(EntryPoint::SftRay)),
            ("python /src/verl/trainer/main_ppo.py a=1", Some(EntryPoint::Ppo)),
            (
                "python -m verl.experimental.fully_async_policy.fully_async_main",
                Some(EntryPoint::FullyAsync),
            ),
            (
                "python -m verl.experimental.one_step_off_policy.main_ppo",
                Some(EntryPoint::Relative),
            ),
            ("python -m recipe.dapo.main_dapo a=1", Some(EntryPoint::Relative)),
            ("python /src/verl/recipe/dapo/main_dapo.py", Some(EntryPoint::Relative)),
            ("torchrun -m verl.trainer.fsdp_sft_trainer", Some(EntryPoint::SftOld)),
            ("python -m verl.trainer.main_ppo_sync", Some(EntryPoint::Ppo)),
            ("python -m verl.trainer.main_eval", Some(EntryPoint::Other)),
            ("python -m recipe.prime.main_prime", None),
            ("python -m recipe.prime.main_prime trainer.devices=8", None),
            (
                "ray job submit -- python3 -m recipe.spo.main actor_rollout_ref.actor.strategy=fsdp",
                Some(EntryPoint::Foreign),
            ),
            (
                "python -m torch.distributed.run mine/train.py trainer.n_gpus_per_node=8",
                Some(EntryPoint::Foreign),
            ),
            ("bash run.sh trainer.n_gpus_per_node=8", None),
            ("python -m my.recipe.cake", None),
            ("python -m verl.model_merger merge", None),
            ("bash run.sh", None),
            ("python train.py name=verl.trainer.main_ppo", None),
        ] {
            assert_eq!(entry(&words(command)).map(|(e, _)| e), what, "{command}");
        }
    }

    #[test]
    fn hydras_own_options_are_read() {
        let read = |text: &str| hydra_config(&words(text)).map(|c| (c.name.unwrap_or_default(), c.elsewhere));
        assert_eq!(
            read("m --config-path=/c --config-name my.yaml a=1"),
            Some(("my".to_owned(), true))
        );
        assert_eq!(read("m -cn=x"), Some(("x".to_owned(), false)));
        assert_eq!(read("m config-name=x"), None);
    }

    #[test]
    fn overrides_are_told_from_options() {
        let command =
            words("python -m verl.trainer.main_ppo --config-name=x a.b=1 +c=2 ~d {overrides} --cfg job e=f=g");
        assert_eq!(overrides_in(&command), ["a.b=1", "+c=2", "~d", "e=f=g"]);
        assert_eq!(override_key("++a.b=c=d"), "a.b");
        assert_eq!(override_key("~a.b"), "a.b");
    }

    #[test]
    fn overrides_stand_where_the_command_says() {
        let ours = [String::from("x='a b'"), String::from("y=1")];
        assert_eq!(
            fill(&words("run a {overrides} b"), &ours, None),
            ["run", "a", "x='a b'", "y=1", "b"]
        );
        assert_eq!(
            fill(&words("run {config}"), &ours, Some("/c d.yaml")),
            ["run", "/c d.yaml", "x='a b'", "y=1"]
        );
        let script = ["sh".to_owned(), "-c".to_owned(), "run {overrides}".to_owned()];
        assert_eq!(fill(&script, &ours, None)[2], r"run 'x='\''a b'\''' y=1");
    }

    #[test]
    fn torchruns_own_restarts_are_switched_off_in_every_spelling() {
        for (before, after) in [
            (
                "torchrun --max-restarts=3 -m m a=1",
                "torchrun --max-restarts=0 -m m a=1",
            ),
            (
                "torchrun --max_restarts 3 --nnodes 1 -m m",
                "torchrun --max-restarts=0 --nnodes 1 -m m",
            ),
            (
                "python -m torch.distributed.run --max-restarts 2 t.py",
                "python -m torch.distributed.run --max-restarts=0 t.py",
            ),
        ] {
            let mut command = words(before);
            assert!(
                forbid_restarts(&mut command, false).is_some_and(|n| n.contains("set to 0")),
                "{before}"
            );
            assert_eq!(command, words(after));
        }
        for left in [
            "torchrun --max-restarts=0 -m m",
            "torchrun -m m --max-restarts=3",
            "python -m m --max-restarts=3",
        ] {
            let mut command = words(left);
            assert_eq!(forbid_restarts(&mut command, false), None, "{left}");
            assert_eq!(command, words(left));
        }
        let mut command = words("torchrun -m m");
        assert!(forbid_restarts(&mut command, true).is_some());
        assert_eq!(command, words("torchrun --max-restarts=0 -m m"));
    }

    #[test]
    fn torchruns_world_is_read_where_it_is_a_number() {
        assert_eq!(
            torchrun_world(&words("torchrun --nproc_per_node=4 --nnodes 2 -m m")),
            Some(8)
        );
        assert_eq!(torchrun_world(&words("torchrun --nproc-per-node 4 -m m")), Some(4));
        assert_eq!(torchrun_world(&words("torchrun --nproc-per-node gpu -m m")), None);
        assert_eq!(
            torchrun_world(&words("torchrun --nproc-per-node 4 --nnodes 1:4 -m m")),
            None
        );
        assert_eq!(torchrun_world(&words("python -m m --nproc-per-node 4")), None);
    }
}
