//! A Slurm batch script for one run.

use super::words::{batch_word, shell_words};
use camino::{Utf8Path, Utf8PathBuf};
use std::fmt::{self, Display, Formatter, Write as _};
use std::time::Duration;
use supervise_trainers::MachineCount;

/// Slurm checks time limits twice a minute, and signals may be as late again.
const GRID: Duration = Duration::from_secs(60);
/// CPUs per GPU, unless requested otherwise: Slurm gives a task one CPU.
const CPUS_PER_GPU: u32 = 4;

/// Options of sbatch 22.05 that take no separate value.
const ALONE: [&str; 26] = [
    "-H",
    "-I",
    "-k",
    "-O",
    "-Q",
    "-s",
    "-v",
    "-W",
    "--contiguous",
    "--exclusive",
    "--get-user-env",
    "--hold",
    "--ignore-pbs",
    "--immediate",
    "--kill-on-invalid-dep",
    "--nice",
    "--no-kill",
    "--no-requeue",
    "--overcommit",
    "--oversubscribe",
    "--quiet",
    "--reboot",
    "--requeue",
    "--spread-job",
    "--use-min-nodes",
    "--wait",
];

/// Parts of a batch script.
#[derive(Debug, Clone)]
pub struct Batch {
    pub name: String,
    pub machines: Option<MachineCount>,
    /// `supervise` itself starts the ranks, or Ray, on the machines.
    pub gang: bool,
    pub spares: u32,
    /// How long before its end the job is signaled.
    pub notice: Duration,
    /// The command that writes the script.
    pub origin: Vec<String>,
    /// Absolute working directory of the command, wherever the script is submitted from.
    pub cwd: Utf8PathBuf,
    pub command: Vec<String>,
    /// Options of sbatch from the operator: they come before ours.
    pub options: Vec<String>,
}

/// How long before its end a job must be signaled: a pending save may finish, then the workers are stopped.
#[must_use]
pub fn notice(save: Duration, stop: Duration) -> Duration {
    save.saturating_add(stop).saturating_add(GRID)
}

/// Why there is no script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// A word after `--` is not an sbatch option.
    NoOption(String),
    Word(String),
}

impl Display for BatchError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOption(found) => write!(f, "expected options of sbatch after `--`, found {found}"),
            Self::Word(why) => f.write_str(why),
        }
    }
}

/// Renders the script.
///
/// # Errors
/// A word that it cannot contain, and why.
pub fn sbatch(b: &Batch) -> Result<String, BatchError> {
    let mut out = format!("#!/bin/bash\n# {}\n", shell_words(&b.origin));
    let mut line = |option: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "#SBATCH {option}");
    };
    line(&format!("--job-name={}", b.name));
    line(&chdir(&b.cwd).map_err(BatchError::Word)?);
    if let Some(MachineCount { nodes, gpus }) = b.machines {
        line(&format!("--nodes={}", nodes.saturating_add(b.spares)));
        line("--ntasks-per-node=1");
        if b.spares > 0 {
            line("--no-kill");
        }
        if gpus > 0 {
            line(&format!("--gres=gpu:{gpus}"));
            line(&format!("--cpus-per-task={}", gpus.saturating_mul(CPUS_PER_GPU)));
        }
    }
    line(&format!("--output={}-%j.out", b.name));
    line("--open-mode=append");
    line("--requeue");
    line(&format!("--signal=B:USR1@{}", b.notice.as_secs()));
    for option in options(&b.options)? {
        line(&option);
    }
    let _ = write!(
        out,
        "\n# The batch process itself: Slurm's signals reach no other.\nexec {}\n",
        shell_words(&b.command)
    );
    Ok(out)
}

fn chdir(dir: &Utf8Path) -> Result<String, String> {
    batch_word(&format!("--chdir={dir}")).map_err(|_| {
        format!(
            "a line of #SBATCH cannot hold the present directory {:?}: rename it, or go to another one",
            dir.as_str()
        )
    })
}

/// One line per option: a word that begins with a dash, with the value that may follow it.
fn options(words: &[String]) -> Result<Vec<String>, BatchError> {
    let mut out: Vec<String> = Vec::new();
    let mut takes_a_value = false;
    for word in words {
        let is_option = word.starts_with('-') && word.len() > 1;
        if word.split('=').next() == Some("--wrap") {
            let why = "--wrap: the script is written here; its other options may follow `--`";
            return Err(BatchError::Word(why.to_owned()));
        }
        if word.is_empty() {
            return Err(BatchError::NoOption("an empty word".to_owned()));
        }
        match out.last_mut() {
            _ if is_option => {
                out.push(batch_word(word).map_err(BatchError::Word)?);
                let has_it = word.contains('=') || !word.starts_with("--") && word.len() > 2;
                takes_a_value = !has_it && !ALONE.contains(&word.as_str());
            }
            Some(last) if takes_a_value => {
                last.push(' ');
                last.push_str(&batch_word(word).map_err(BatchError::Word)?);
                takes_a_value = false;
            }
            _ => return Err(BatchError::NoOption(format!("{word:?}"))),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn each_option_of_a_person_has_a_line_after_ours() {
        let batch = Batch {
            name: "ppo".into(),
            machines: Some(MachineCount { nodes: 2, gpus: 8 }),
            gang: false,
            spares: 1,
            notice: notice(Duration::from_secs(300), Duration::from_secs(30)),
            origin: words("supervise sbatch it's.yaml"),
            cwd: "/my run".into(),
            command: words("supervise run it's.yaml"),
            options: words("-p gpu --time=1-0 --comment a#b --exclusive"),
        };
        let text = sbatch(&batch).unwrap();
        let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("#SBATCH ")).collect();
        assert_eq!(
            lines,
            [
                "--job-name=ppo",
                "\"--chdir=/my run\"",
                "--nodes=3",
                "--ntasks-per-node=1",
                "--no-kill",
                "--gres=gpu:8",
                "--cpus-per-task=32",
                "--output=ppo-%j.out",
                "--open-mode=append",
                "--requeue",
                "--signal=B:USR1@390",
                "-p gpu",
                "--time=1-0",
                "--comment \"a\\#b\"",
                "--exclusive",
            ]
        );
        assert!(text.ends_with("\nexec supervise run 'it'\\''s.yaml'\n"), "{text}");
    }

    #[test]
    fn what_a_script_cannot_hold_is_refused() {
        for wrong in ["gpu", "--wrap=true", "--comment=a\nb", "--comment=a\tb", ""] {
            assert!(options(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        for wrong in [
            "--time=1-0 python3",
            "-t 1-0 python3",
            "-pgpu python3",
            "--exclusive python3",
            "-p gpu python3 a.py",
        ] {
            assert!(options(&words(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(
            options(&words("-p gpu --exclusive -t 5")).unwrap(),
            ["-p gpu", "--exclusive", "-t 5"]
        );
        assert_eq!(
            options(&["--comment=a\"b".to_owned()]).unwrap(),
            [r#""--comment=a\"b""#]
        );
    }
}
