//! What a script does while it runs to be learned: a long step may be the training itself, by an unknown trainer.
//!
//! A step is a program, other than a shell, that a shell of the script has started. Filters do not count; preparation
//! (a download, an installation, a pause) may take its time; anything else that takes long is not allowed to
//! continue.

use crate::process::stat::{ProcStat, command_line};
use crate::process::tree::ProcSnapshot;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use supervise_core::id::ProcRef;

/// Programs that run the command after them, or a file's commands.
const THROUGH: [&str; 17] = [
    "sh", "bash", "dash", "zsh", "ksh", "busybox", "env", "nohup", "nice", "ionice", "stdbuf", "timeout", "setsid",
    "time", "numactl", "taskset", "sudo",
];
/// Filters: they run as long as the program beside them.
const FILTERS: [&str; 9] = ["tee", "cat", "grep", "sed", "awk", "tail", "head", "ts", "script"];
/// Programs that prepare, or wait.
const PREPARING: [&str; 26] = [
    "sleep",
    "curl",
    "wget",
    "git",
    "git-lfs",
    "pip",
    "pip3",
    "uv",
    "conda",
    "mamba",
    "apt",
    "apt-get",
    "tar",
    "unzip",
    "cp",
    "rsync",
    "scp",
    "aws",
    "gsutil",
    "gcloud",
    "rclone",
    "huggingface-cli",
    "hf",
    "modelscope",
    "make",
    "ray",
];

/// Those of them that also run the command after `run`.
const CHOOSING: [&str; 4] = ["uv", "conda", "mamba", "micromamba"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptProcessKind {
    Through,
    Filter,
    Preparing,
    Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScriptStep {
    kind: ScriptProcessKind,
    pid: i32,
    lasts: Duration,
}

#[derive(Debug, Default)]
pub(super) struct ScriptProcesses {
    since: BTreeMap<ProcRef, Instant>,
}

impl ScriptProcesses {
    /// Checks the script that this process runs: returns the command line of a step that lasts longer than `limit`
    /// and is not known as preparation.
    pub(super) fn lasting(&mut self, script: ProcRef, limit: Duration) -> Option<Vec<String>> {
        let all = ProcSnapshot::take();
        let steps = self.look(&all, script, Instant::now());
        let pid = lasting(&steps, limit)?;
        command_line(pid)
    }

    fn look(&mut self, all: &ProcSnapshot, script: ProcRef, now: Instant) -> Vec<ScriptStep> {
        let mut steps = Vec::new();
        let mut seen = BTreeMap::new();
        let mut open: Vec<&ProcStat> = all
            .get(script.pid)
            .into_iter()
            .filter(|s| s.start == script.start)
            .collect();
        while let Some(stat) = open.pop() {
            match kind_of(stat.pid) {
                Some(ScriptProcessKind::Through) => open.extend(all.iter().filter(|s| s.ppid == stat.pid)),
                Some(kind) if stat.is_running() => {
                    let first = *self.since.get(&stat.proc_ref()).unwrap_or(&now);
                    seen.insert(stat.proc_ref(), first);
                    steps.push(ScriptStep {
                        kind,
                        pid: stat.pid,
                        lasts: now.saturating_duration_since(first),
                    });
                }
                _ => {}
            }
        }
        self.since = seen;
        steps
    }
}

/// The step that the script waits for, if it takes too long: while it starts others, or pauses, it waits for none.
fn lasting(steps: &[ScriptStep], limit: Duration) -> Option<i32> {
    let counts = |s: &&ScriptStep| s.kind != ScriptProcessKind::Filter;
    let newest = steps.iter().filter(counts).min_by_key(|s| s.lasts)?;
    (newest.kind == ScriptProcessKind::Work && newest.lasts >= limit).then_some(newest.pid)
}

/// `None`: a shim, or a process that has exited.
fn kind_of(pid: i32) -> Option<ScriptProcessKind> {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    if fs::read_link("/proc/self/exe").is_ok_and(|own| own == exe) {
        return None;
    }
    let program = exe.file_name()?.to_str()?.to_owned();
    Some(kind(&program, &command_line(pid).unwrap_or_default()))
}

fn kind(program: &str, words: &[String]) -> ScriptProcessKind {
    let base = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    // An interpreter counts as what it runs: `python3 -m pip`, `python3 /usr/bin/hf`.
    let mut names = vec![program.to_owned()];
    names.extend(words.first().map(base));
    match words.get(1).map(String::as_str) {
        Some("-m") => names.extend(words.get(2).map(base)),
        _ => names.extend(words.get(1).map(base)),
    }
    let chooses = names.iter().any(|n| CHOOSING.contains(&n.as_str()));
    if chooses && words.iter().take(4).any(|w| w == "run") {
        return ScriptProcessKind::Through;
    }
    let is = |list: &[&str], names: &[String]| names.iter().any(|n| list.contains(&n.as_str()));
    // What a shell was told to run does not matter, only its own name.
    if is(&THROUGH, names.get(..2).unwrap_or(&names)) {
        ScriptProcessKind::Through
    } else if is(&FILTERS, names.get(..2).unwrap_or(&names)) {
        ScriptProcessKind::Filter
    } else if is(&PREPARING, &names) {
        ScriptProcessKind::Preparing
    } else {
        ScriptProcessKind::Work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn programs_are_told_by_name_and_interpreters_by_what_they_run() {
        for (program, line, expected) in [
            ("bash", "bash wrap.sh", ScriptProcessKind::Through),
            ("dash", "sh -c x", ScriptProcessKind::Through),
            ("bash", "/x/wrap.sh", ScriptProcessKind::Through),
            ("timeout", "timeout 5 python3 x", ScriptProcessKind::Through),
            ("tee", "tee log", ScriptProcessKind::Filter),
            ("coreutils", "tail -f log", ScriptProcessKind::Filter),
            ("python3.12", "python3 -m pip install x", ScriptProcessKind::Preparing),
            (
                "python3.12",
                "/usr/bin/python3 /usr/local/bin/hf download x",
                ScriptProcessKind::Preparing,
            ),
            ("uv", "uv pip install x", ScriptProcessKind::Preparing),
            ("uv", "uv run python train.py", ScriptProcessKind::Through),
            (
                "python3.12",
                "/opt/bin/python /opt/bin/conda run -n a python t.py",
                ScriptProcessKind::Through,
            ),
            ("curl", "curl http://x", ScriptProcessKind::Preparing),
            ("python3.12", "python3 train.py pip", ScriptProcessKind::Work),
            ("python3.12", "python3 -m train", ScriptProcessKind::Work),
            ("torchrun", "torchrun x.py", ScriptProcessKind::Work),
        ] {
            assert_eq!(kind(program, &words(line)), expected, "{line}");
        }
    }

    #[test]
    fn what_lasts_is_told_and_what_passes_or_prepares_is_not() {
        let step = |kind, pid, secs| ScriptStep {
            kind,
            pid,
            lasts: Duration::from_secs(secs),
        };
        let limit = Duration::from_secs(30);
        let said = |steps: &[ScriptStep]| lasting(steps, limit);
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[step(ScriptProcessKind::Work, 1, 29)]), None);
        assert_eq!(said(&[step(ScriptProcessKind::Work, 1, 30)]), Some(1));
        assert_eq!(
            said(&[
                step(ScriptProcessKind::Work, 1, 40),
                step(ScriptProcessKind::Filter, 2, 0)
            ]),
            Some(1)
        );
        // A server in the background, while the script continues.
        assert_eq!(
            said(&[
                step(ScriptProcessKind::Work, 1, 400),
                step(ScriptProcessKind::Preparing, 2, 0)
            ]),
            None
        );
        assert_eq!(
            said(&[
                step(ScriptProcessKind::Work, 1, 400),
                step(ScriptProcessKind::Work, 2, 5)
            ]),
            None
        );
        assert_eq!(said(&[step(ScriptProcessKind::Preparing, 1, 4000)]), None);
        assert_eq!(said(&[step(ScriptProcessKind::Filter, 1, 4000)]), None);
    }
}
