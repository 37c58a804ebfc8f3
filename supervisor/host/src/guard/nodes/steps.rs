//! A run's steps in Slurm's list. Those of an attempt must have left it before the next attempt starts, except on
//! nodes that Slurm cannot reach, whose ranks have been killed by their node worker.

use super::allocation::{self, AllocatedNodes};
use super::ask::run_one;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use supervise_core::id::{AttemptNo, RunId};

/// A killed step leaves the list once its last process has exited.
const ENDING: Duration = Duration::from_secs(90);
/// After this, the operator is told what is being waited for.
const TOLD: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_secs(1);

#[must_use]
pub fn name(run: &RunId, attempt: AttemptNo) -> String {
    format!("{}{attempt}", prefix(run))
}

pub(super) fn prefix(run: &RunId) -> String {
    format!("supervise-{run}-")
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SlurmStep {
    id: String,
    nodes: String,
}

/// Kills the steps of a run, calls `wait` if that takes a while, and returns when none is listed except on nodes that
/// Slurm cannot reach. Returns the steps that were listed, and where the next attempt may run. Call it once every
/// node has ended its ranks, whether it was reached or not.
///
/// # Errors
/// Why steps may be left, for the operator.
pub fn clear(
    env: &BTreeMap<String, String>,
    run: &RunId,
    wait: impl Fn(String),
) -> Result<(Vec<String>, AllocatedNodes), String> {
    let until = Instant::now() + ENDING;
    let is_meant = |name: &str| name.starts_with(&prefix(run));
    let mut left = list(env, &is_meant)?;
    let all: Vec<String> = left.iter().map(|step| step.id.clone()).collect();
    loop {
        left.retain(|step| !allocation::has_lost(env, &step.nodes).unwrap_or(false));
        if left.is_empty() {
            return Ok((all, allocation::ask(env)?));
        }
        let ids: Vec<&str> = left.iter().map(|step| step.id.as_str()).collect();
        if Instant::now() > until {
            return Err(format!("Slurm still lists the steps {}", ids.join(", ")));
        }
        if until.saturating_duration_since(Instant::now()) < ENDING - TOLD {
            wait(format!("Slurm to end the steps {}", ids.join(", ")));
        }
        let said = kill(env, &left);
        std::thread::sleep(LOOK);
        left = list(env, &is_meant).map_err(|why| said.err().map_or(why.clone(), |more| format!("{why} ({more})")))?;
    }
}

/// Lets Slurm kill the matching steps. Returns true if it lists none.
///
/// # Errors
/// Slurm's message, if it reports nothing else.
pub(crate) fn kill_those(env: &BTreeMap<String, String>, is_meant: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let listed = list(env, is_meant)?;
    if listed.is_empty() {
        return Ok(true);
    }
    kill(env, &listed).map(|()| false)
}

/// Slurm refuses a step that has ended meanwhile; the list decides.
fn kill(env: &BTreeMap<String, String>, steps: &[SlurmStep]) -> Result<(), String> {
    let mut argv = vec!["scancel", "--quiet", "--signal=KILL"];
    argv.extend(steps.iter().map(|step| step.id.as_str()));
    run_one(env, &argv).map(|_| ())
}

fn list(env: &BTreeMap<String, String>, is_meant: &dyn Fn(&str) -> bool) -> Result<Vec<SlurmStep>, String> {
    let user = nix::unistd::getuid().to_string();
    let argv = [
        "squeue",
        "--steps",
        "--noheader",
        "--user",
        &user,
        "--format",
        "%i|%j|%N",
    ];
    let said = run_one(env, &argv)?;
    Ok(read(&String::from_utf8_lossy(&said), is_meant))
}

fn read(text: &str, is_meant: &dyn Fn(&str) -> bool) -> Vec<SlurmStep> {
    let lines = text.lines().filter_map(|line| {
        let (id, rest) = line.split_once('|')?;
        let (name, nodes) = rest.rsplit_once('|')?;
        Some((id, name, nodes))
    });
    lines
        .filter(|(id, name, _)| is_meant(name.trim()) && id.bytes().all(|b| b.is_ascii_digit() || b"._+".contains(&b)))
        .map(|(id, _, nodes)| SlurmStep {
            id: id.to_owned(),
            nodes: nodes.trim().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_of_this_run_are_meant() {
        let run = RunId("ab12".to_owned());
        let text = "7.0|supervise-ab12-3|n[1-2]\n7.batch|batch|n1\n8.1|supervise-ab123-1|n1\n7.4|supervise-ab12-4|n1\n7.5;x|supervise-ab12-5|n1\n";
        let meant = prefix(&run);
        let read = read(text, &|name| name.starts_with(&meant));
        let ids: Vec<(&str, &str)> = read.iter().map(|s| (s.id.as_str(), s.nodes.as_str())).collect();
        assert_eq!(ids, [("7.0", "n[1-2]"), ("7.4", "n1")]);
        assert_eq!(name(&run, AttemptNo(3)), "supervise-ab12-3");
    }
}
