//! The file that a command starts, if its words say so: a script after its interpreter, shell or launcher.
//!
//! A command that runs elsewhere, or has words we do not know, yields no file: a missing file is an error only if
//! that very file would be opened.

use crate::python_command::is_python;

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// Python modules that start a script as torchrun does.
const RANK_MODULES: [&str; 2] = ["torch.distributed.run", "torch.distributed.launch"];
const ACCELERATE: &str = "accelerate.commands.launch";

/// The file that a command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedFile<'a> {
    pub path: &'a str,
    /// A shell also searches `PATH` for it.
    pub in_path: bool,
}

/// Finds the file that a command starts; `None` if none or unknown.
#[must_use]
pub fn started_file(command: &[String]) -> Option<StartedFile<'_>> {
    let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
    if words.iter().any(|w| w.contains('\0')) {
        return None;
    }
    loop {
        let (first, rest) = words.split_first()?;
        let rest = match base(first) {
            "env" => behind_env(rest)?,
            "nohup" => behind_options(rest, &[], &[])?,
            "setsid" => behind_options(rest, &["-c", "-f", "-w", "--ctty", "--fork", "--wait"], &[])?,
            "stdbuf" => behind_options(rest, &[], &["-i", "-o", "-e", "--input", "--output", "--error"])?,
            "nice" => behind_options(rest, &[], &["-n", "--adjustment"])?,
            "ionice" => behind_options(rest, &["-t", "--ignore"], &["-c", "-n", "--class", "--classdata"])?,
            "timeout" => {
                let flags = ["--foreground", "--preserve-status", "-f", "-p", "-v", "--verbose"];
                let rest = behind_options(rest, &flags, &["-s", "-k", "--signal", "--kill-after"])?;
                // The duration.
                rest.get(1..)?
            }
            name if is_python(name) => return of_python(rest),
            name if SHELLS.contains(&name) => return of_shell(rest),
            "torchrun" => return of_ranks(rest),
            "accelerate" => {
                let (launch, rest) = rest.split_first()?;
                return of_ranks(rest).filter(|_| *launch == "launch");
            }
            _ if first.contains('/') => return found(first, false),
            _ => return None,
        };
        words = rest.to_vec();
    }
}

fn found(path: &str, in_path: bool) -> Option<StartedFile<'_>> {
    // A placeholder is filled in later.
    (!path.is_empty() && !path.contains(['{', '}'])).then_some(StartedFile { path, in_path })
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The words after a program's options; `None` if an option is unknown. `flags` take no value; those in `valued` have
/// one, in the same word or the next.
fn behind_options<'a, 'b>(words: &'b [&'a str], flags: &[&str], valued: &[&str]) -> Option<&'b [&'a str]> {
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|w| w.starts_with('-') && w.len() > 1) {
        at += 1;
        if *word == "--" {
            break;
        }
        if flags.contains(word) {
            continue;
        }
        let option = valued.iter().find(|o| word.starts_with(**o))?;
        let value = word.strip_prefix(option)?;
        match (value, option.starts_with("--")) {
            ("", _) => at += 1,
            (value, true) if !value.starts_with('=') => return None,
            _ => {}
        }
    }
    words.get(at..)
}

fn behind_env<'a, 'b>(words: &'b [&'a str]) -> Option<&'b [&'a str]> {
    let flags = ["-i", "--ignore-environment", "-v", "--debug"];
    let lone = words.iter().position(|w| *w == "-").filter(|at| *at == 0);
    let words = words.get(lone.map_or(0, |at| at + 1)..)?;
    let rest = behind_options(words, &flags, &["-u", "--unset"])?;
    let assigned = rest
        .iter()
        .take_while(|w| w.contains('=') && !w.starts_with('='))
        .count();
    rest.get(assigned..)
}

fn of_python<'a>(words: &[&'a str]) -> Option<StartedFile<'a>> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "--check-hash-based-pycs" {
            words.next()?;
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else {
            return found(word, false);
        };
        if letters.is_empty() || letters.starts_with('-') {
            return None;
        }
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let rest = letters.as_str();
            match letter {
                'm' => {
                    let module = if rest.is_empty() { words.next()? } else { rest };
                    let is_launcher = RANK_MODULES.contains(&module) || module == ACCELERATE;
                    return of_ranks(words.as_slice()).filter(|_| is_launcher);
                }
                'X' | 'W' => {
                    if rest.is_empty() {
                        words.next()?;
                    }
                    break;
                }
                'b' | 'B' | 'd' | 'E' | 'i' | 'I' | 'O' | 'P' | 'q' | 'R' | 's' | 'S' | 'u' | 'v' | 'x' => {}
                _ => return None,
            }
        }
    }
    None
}

fn of_shell<'a>(words: &[&'a str]) -> Option<StartedFile<'a>> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if matches!(*word, "-" | "--") {
            let script = words.next()?;
            return found(script, !script.contains('/'));
        }
        if matches!(*word, "--rcfile" | "--init-file") {
            words.next()?;
            continue;
        }
        if word.starts_with("--") {
            let known = [
                "--login",
                "--norc",
                "--noprofile",
                "--posix",
                "--noediting",
                "--restricted",
                "--verbose",
            ];
            known.contains(word).then_some(())?;
            continue;
        }
        let Some(letters) = word.strip_prefix(['-', '+']) else {
            return found(word, !word.contains('/'));
        };
        // A command string, or standard input.
        if letters.contains(['c', 's']) {
            return None;
        }
        for _ in letters.chars().filter(|l| matches!(l, 'o' | 'O')) {
            words.next()?;
        }
    }
    None
}

/// The script that a launcher of ranks starts: the first `.py` word.
fn of_ranks<'a>(words: &[&'a str]) -> Option<StartedFile<'a>> {
    let other = |w: &&str| matches!(*w, "-m" | "--module" | "--no-python" | "--no_python");
    let at = words
        .iter()
        .position(|w| other(w) || w.ends_with(".py") && !w.starts_with('-'))?;
    let script = words.get(at).filter(|w| !other(w))?;
    // If a word before it is neither an option nor an option's value, that word is the script.
    let before = words.get(..at).unwrap_or_default();
    let takes_value = |w: &&str| w.starts_with('-') && !w.contains('=');
    let is_script = |n: usize| !before[n].starts_with('-') && (n == 0 || !takes_value(&before[n - 1]));
    if (0..before.len()).any(is_script) {
        return None;
    }
    found(script, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_file_is_found_behind_what_starts_it() {
        for (command, file) in [
            ("python3 trian.py --lr 1", "trian.py"),
            ("python3 -u X.py", "X.py"),
            ("/opt/venv/bin/python3.11 -X dev -W ignore -uB a/X.py", "a/X.py"),
            ("bash X.sh", "X.sh"),
            ("bash -x -euo pipefail X.sh a b", "X.sh"),
            ("bash --norc -- X.sh", "X.sh"),
            ("sh X", "X"),
            ("./X", "./X"),
            ("a/b --c", "a/b"),
            ("torchrun --nproc_per_node 2 --master-port=1 X.py --a b.py", "X.py"),
            ("python -m torch.distributed.run --nproc_per_node 2 X.py", "X.py"),
            ("python -mtorch.distributed.launch X.py", "X.py"),
            (
                "accelerate launch --config_file a.yaml --num_processes 2 X.py --a",
                "X.py",
            ),
            ("env A=b python3 X.py", "X.py"),
            (
                "env -i -u HOME A=b C= nohup timeout -k 5 --signal=INT 10h python3 X.py",
                "X.py",
            ),
            ("nice -n 5 ionice -c2 -n 3 stdbuf -oL setsid -w bash X.sh", "X.sh"),
            ("nohup ./X", "./X"),
        ] {
            assert_eq!(started_file(&words(command)).map(|f| f.path), Some(file), "{command}");
        }
        let in_path = |text: &str| started_file(&words(text)).is_some_and(|f| f.in_path);
        assert!(in_path("sh X") && !in_path("sh ./X") && !in_path("python3 X"));
    }

    #[test]
    fn what_cannot_be_known_names_no_file() {
        for command in [
            "",
            "python3",
            "python3 -",
            "python3 -m mod X.py",
            "python3 -um mod X.py",
            "python3 -c pass X.py",
            "python3 --version X.py",
            "python3 {config}",
            "bash -c X.sh",
            "bash -lc X.sh",
            "bash -s X.sh",
            "bash --what X.sh",
            "train --config X.py",
            "torchrun -m mod X.py",
            "torchrun --no-python ./X X.py",
            "torchrun --nproc_per_node 2 train",
            "accelerate test X.py",
            "accelerate launch --module mod X.py",
            "srun python3 X.py",
            "ssh host python3 X.py",
            "docker run image python3 X.py",
            "apptainer exec image.sif bash X.sh",
            "kubectl exec pod -- python3 X.py",
            "uv run X.py",
            "conda run -n a python X.py",
            "ray job submit -- python3 X.py",
            "env -C /elsewhere python3 X.py",
            "env -S python3 X.py",
            "timeout --what 3 python3 X.py",
            "nice --what python3 X.py",
            "timeout 3",
            "env",
        ] {
            assert_eq!(started_file(&words(command)), None, "{command}");
        }
    }
}
