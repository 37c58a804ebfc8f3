//! The name of a run: what its configuration calls it, or its directory, or its command.

use camino::Utf8Path;

/// Directory names that say nothing about a run.
const COMMON: [&str; 8] = [
    "checkpoint",
    "checkpoints",
    "ckpt",
    "ckpts",
    "default",
    "output",
    "outputs",
    "results",
];
/// Programs that run the script named after them.
const RUNNERS: [&str; 9] = [
    "accelerate",
    "bash",
    "deepspeed",
    "env",
    "python",
    "python3",
    "sh",
    "torchrun",
    "uv",
];
const LONGEST: usize = 60;

/// The name of a run. `told`: the name in its configuration.
#[must_use]
pub fn run_name(told: Option<&str>, root: Option<&Utf8Path>, command: &[String]) -> String {
    let told = told.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let name = told
        .or_else(|| directory_name(root?))
        .or_else(|| command_name(command))
        .unwrap_or_else(|| "unnamed".to_owned());
    name.chars().take(LONGEST).collect()
}

fn directory_name(root: &Utf8Path) -> Option<String> {
    let mut names = root.ancestors().filter_map(Utf8Path::file_name);
    let telling = names.clone().find(|name| !COMMON.contains(name));
    telling.or_else(|| names.next()).map(str::to_owned)
}

fn command_name(words: &[String]) -> Option<String> {
    let base = |word: &str| Utf8Path::new(word).file_name().unwrap_or(word).to_owned();
    let program = base(words.first()?);
    if !RUNNERS.contains(&program.as_str()) {
        return Some(program);
    }
    let module = words.iter().position(|w| w == "-m").and_then(|at| words.get(at + 1));
    let is_script = |w: &&String| matches!(Utf8Path::new(w).extension(), Some("py" | "sh" | "bash"));
    let script = words.iter().skip(1).find(is_script);
    Some(script.map(|w| base(w)).or_else(|| module.cloned()).unwrap_or(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_configuration_its_directory_or_its_command() {
        let name = |told, root: Option<&str>, command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            run_name(told, root.map(Utf8Path::new), &words)
        };
        assert_eq!(name(Some("grpo"), Some("/ckpt/a"), "python x.py"), "grpo");
        assert_eq!(name(Some(" "), Some("/ckpt/gsm8k"), "python x.py"), "gsm8k");
        assert_eq!(name(None, Some("/data/my-run/checkpoints"), "x"), "my-run");
        assert_eq!(name(None, Some("/checkpoints"), "x"), "checkpoints");
        assert_eq!(
            name(None, None, "/usr/bin/python3 -u tools/train.py --lr 1"),
            "train.py"
        );
        assert_eq!(
            name(None, None, "torchrun --nproc-per-node 2 -m pkg.train"),
            "pkg.train"
        );
        assert_eq!(name(None, None, "./train --fast"), "train");
        assert_eq!(name(None, None, "bash -c true"), "bash");
        assert_eq!(run_name(None, None, &[]), "unnamed");
    }
}
