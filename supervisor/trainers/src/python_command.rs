//! Finding the Python interpreter in a command without running anything.
//!
//! Transparent wrappers are looked through (`nice`, `numactl`, `env NAME=value`, …); wrappers that choose the
//! interpreter (`uv run`, `conda run`) are kept and asked. A command that runs elsewhere or hides in a script is not
//! guessed at.

/// Wrappers that run the command after them unchanged.
const TRANSPARENT: [&str; 11] = [
    "nice", "ionice", "numactl", "taskset", "timeout", "nohup", "stdbuf", "setsid", "time", "chrt", "nsys",
];
/// Wrappers that choose the command's environment.
const CHOOSING: [&str; 4] = ["uv", "conda", "mamba", "micromamba"];
/// Interpreter options that decide where it looks for packages.
const ISOLATING: &str = "IsEPS";
/// Bytes read of a first line.
pub const SHEBANG_LIMIT: usize = 1024;

/// How the interpreter of a command is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PythonCommand {
    Python(PythonArgv),
    /// The first line of this program names it.
    Script {
        program: String,
        env: Vec<(String, String)>,
        /// For torchrun, the script it starts, or `None` for a module; otherwise the program itself.
        script: Option<String>,
    },
    Unknown(String),
}

/// A Python interpreter that can be given other work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PythonArgv {
    pub words: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Its own options that decide where it looks for packages.
    pub flags: Vec<String>,
    /// The script it runs, whose directory it searches first. `None`: it searches the working directory.
    pub script: Option<String>,
}

/// Finds the interpreter in a command.
#[must_use]
pub fn python_command(command: &[String]) -> PythonCommand {
    let mut env = Vec::new();
    let mut at = 0;
    loop {
        let Some(word) = command.get(at) else {
            return PythonCommand::Unknown("the command names no program".to_owned());
        };
        match base(word) {
            name if is_python(name) => {
                let (flags, script) = options(&command[at + 1..]);
                let words = vec![word.clone()];
                return PythonCommand::Python(PythonArgv {
                    words,
                    env,
                    flags,
                    script,
                });
            }
            "env" => match assignments(&command[at + 1..], &mut env) {
                Some(more) => at += 1 + more,
                None => return PythonCommand::Unknown("`env` is given options that change what is found".to_owned()),
            },
            name if TRANSPARENT.contains(&name) => match next_program(command, at + 1) {
                Some(next) => at = next,
                None => return hidden(word),
            },
            name if CHOOSING.contains(&name) => return chosen(&command[at..], env),
            name => {
                let program = word.clone();
                let script = match name {
                    "torchrun" => script_of_ranks(&command[at + 1..]),
                    _ => Some(program.clone()),
                };
                return PythonCommand::Script { program, env, script };
            }
        }
    }
}

fn hidden(word: &str) -> PythonCommand {
    PythonCommand::Unknown(format!(
        "which interpreter `{word}` comes to cannot be seen in the command"
    ))
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// `python`, `python3`, `python3.11`.
pub(crate) fn is_python(name: &str) -> bool {
    let version = |v: &str| v.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    name.strip_prefix("python").is_some_and(version)
}

/// Position of the program after a wrapper's options, if it is one we can look through.
fn next_program(command: &[String], from: usize) -> Option<usize> {
    let known = |word: &String| {
        let name = base(word);
        is_python(name)
            || name == "torchrun"
            || name == "env"
            || TRANSPARENT.contains(&name)
            || CHOOSING.contains(&name)
    };
    command.iter().skip(from).position(known).map(|n| from + n)
}

/// Reads the assignments after `env` and counts their words; `None` if there are options.
fn assignments(words: &[String], env: &mut Vec<(String, String)>) -> Option<usize> {
    let mut count = 0;
    for word in words {
        // A shebang line has it to announce further words, nothing more.
        if word == "-S" || word == "--" {
            count += 1;
        } else if word.starts_with('-') {
            return None;
        } else if let Some((name, value)) = word.split_once('=') {
            env.push((name.to_owned(), value.to_owned()));
            count += 1;
        } else {
            break;
        }
    }
    Some(count)
}

/// `uv run … python3 -m x`, `conda run -n name torchrun …`: the wrapper is asked for its Python.
fn chosen(command: &[String], env: Vec<(String, String)>) -> PythonCommand {
    let wrapper = command.first().map_or("", String::as_str);
    if command.get(1).is_none_or(|w| w != "run") {
        return hidden(wrapper);
    }
    let is_end = |w: &String| {
        let name = base(w);
        is_python(name) || name == "torchrun" || name.ends_with(".py")
    };
    let Some(end) = command.iter().position(is_end) else {
        return hidden(wrapper);
    };
    let mut words = vec![wrapper.to_owned(), "run".to_owned()];
    if base(wrapper) == "uv" {
        // Asking must not change the environment.
        words.push("--no-sync".to_owned());
    }
    words.extend(command[2..end].iter().cloned());
    let python = is_python(base(&command[end]));
    words.push(if python {
        command[end].clone()
    } else {
        "python".to_owned()
    });
    let (flags, script) = match python {
        true => options(&command[end + 1..]),
        false => (Vec::new(), command[end].ends_with(".py").then(|| command[end].clone())),
    };
    PythonCommand::Python(PythonArgv {
        words,
        env,
        flags,
        script,
    })
}

/// The interpreter options that matter, and the script it runs.
fn options(words: &[String]) -> (Vec<String>, Option<String>) {
    let mut flags = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.starts_with('-')) else {
            let script = word.ends_with(".py").then(|| word.clone());
            return (flags, script);
        };
        if letters.starts_with(['m', 'c']) || letters.is_empty() {
            let script = match words.next().map(String::as_str) {
                Some("torch.distributed.run" | "torch.distributed.launch") => script_of_ranks(words.as_slice()),
                _ => None,
            };
            return (flags, script);
        }
        if letters.starts_with(['X', 'W']) {
            // Its value is the next word, or the rest of this one.
            if letters.len() == 1 {
                words.next();
            }
            continue;
        }
        flags.extend(
            letters
                .chars()
                .filter(|l| ISOLATING.contains(*l))
                .map(|l| format!("-{l}")),
        );
    }
    (flags, None)
}

/// The script that torchrun starts for each rank; `None`: a module.
fn script_of_ranks(words: &[String]) -> Option<String> {
    let end = words
        .iter()
        .find(|w| w.ends_with(".py") || *w == "-m" || *w == "--module")?;
    end.ends_with(".py").then(|| end.clone())
}

/// Splits a script's shebang line, given the start of its file; `None` if it has none.
///
/// If the line is too long for the kernel, installers write a shell script that executes the interpreter in its
/// second line; that is understood too.
#[must_use]
pub fn shebang(start: &[u8]) -> Option<Vec<String>> {
    let start = start.get(..start.len().min(SHEBANG_LIMIT))?;
    let text = String::from_utf8_lossy(start.strip_prefix(b"#!")?);
    let mut lines = text.lines();
    let first: Vec<String> = lines.next()?.split_whitespace().map(str::to_owned).collect();
    let exec = lines.next().and_then(|l| l.strip_prefix("'''exec' "));
    match exec {
        Some(exec) if base(first.first()?) == "sh" => {
            let path = match exec.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next()?,
                None => exec.split(' ').next()?,
            };
            Some(vec![path.to_owned()])
        }
        _ => (!first.is_empty()).then_some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn python(text: &str) -> PythonArgv {
        match python_command(&words(text)) {
            PythonCommand::Python(found) => found,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_interpreter_is_found_behind_what_only_wraps_it() {
        for (command, starts) in [
            ("python3 -m verl.trainer.main_ppo a=1", "python3"),
            ("/opt/venv/bin/python3.11 -u -m x", "/opt/venv/bin/python3.11"),
            ("nice -n 5 numactl -N 0 python -m x", "python"),
            ("timeout --signal=INT 10h env A=b python3 -m x", "python3"),
            ("python -m torch.distributed.run --nproc-per-node 2 -m x", "python"),
            (
                "uv run --extra vllm python3 -m x",
                "uv run --no-sync --extra vllm python3",
            ),
            ("uv run torchrun -m x", "uv run --no-sync python"),
            ("conda run -n verl python -m x", "conda run -n verl python"),
        ] {
            assert_eq!(python(command).words.join(" "), starts, "{command}");
        }
        assert_eq!(
            python("env A=b PATH=/x python3 -m x").env,
            [("A".to_owned(), "b".to_owned()), ("PATH".to_owned(), "/x".to_owned())]
        );
    }

    #[test]
    fn what_decides_where_packages_are_found_is_kept() {
        assert_eq!(python("python -u -sE -X dev -W ignore -m x -I").flags, ["-s", "-E"]);
        assert_eq!(
            python("python3 verl/trainer/main_ppo.py a=1").script.as_deref(),
            Some("verl/trainer/main_ppo.py")
        );
        assert_eq!(python("python3 -m x y.py").script, None);
        let ranks = |text: &str| python(&format!("python -m torch.distributed.run {text}")).script;
        assert_eq!(ranks("--nnodes 1 a/t.py -m").as_deref(), Some("a/t.py"));
        assert_eq!(ranks("--nnodes 1 -m x y.py"), None);
    }

    #[test]
    fn what_cannot_be_seen_is_not_guessed() {
        for (command, program) in [
            ("torchrun -m x", "torchrun"),
            ("bash run.sh", "bash"),
            ("srun -N 2 python x", "srun"),
        ] {
            let PythonCommand::Script { program: found, .. } = python_command(&words(command)) else {
                panic!("{command}");
            };
            assert_eq!(found, program);
        }
        for command in ["", "env -i python3", "uv pip install x", "nohup ./run.sh"] {
            assert!(
                matches!(python_command(&words(command)), PythonCommand::Unknown(_)),
                "{command}"
            );
        }
    }

    #[test]
    fn first_lines_are_read_in_every_form_installers_write() {
        let read = |text: &str| shebang(text.as_bytes()).map(|w| w.join(" "));
        assert_eq!(
            read("#!/venv/bin/python3\nimport re").as_deref(),
            Some("/venv/bin/python3")
        );
        assert_eq!(
            read("#! /usr/bin/env -S python3 -u\n").as_deref(),
            Some("/usr/bin/env -S python3 -u")
        );
        assert_eq!(
            read("#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n").as_deref(),
            Some("/a b/bin/python")
        );
        assert_eq!(
            read("#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n").as_deref(),
            Some("/long/bin/python")
        );
        assert_eq!(read("#!/bin/bash\npython x").as_deref(), Some("/bin/bash"));
        assert_eq!((read("\u{7f}ELF"), read("#!"), read("")), (None, None, None));
        let long = [b"#!".as_slice(), &[b'x'; 10_000]].concat();
        assert!(shebang(&long).unwrap()[0].len() < 2000);
    }
}
