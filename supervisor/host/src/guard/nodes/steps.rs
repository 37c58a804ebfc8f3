//! Steps of a run in Slurm's list: those of an attempt must have left it before another one begins.

use crate::process::call::call;
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use supervise_core::id::{AttemptNo, RunId};

/// Slurm's own commands give up after about ten seconds, and again after a second server.
const PATIENCE: Duration = Duration::from_secs(60);
/// A step that was killed leaves the list once its last process is gone.
const ENDING: Duration = Duration::from_secs(90);
/// How often it is looked whether a step has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Name of an attempt's step.
#[must_use]
pub fn name(run: &RunId, attempt: AttemptNo) -> String {
    format!("{}{attempt}", prefix(run))
}

fn prefix(run: &RunId) -> String {
    format!("supervise-{run}-")
}

/// Kills the steps of a run, and returns when Slurm lists none: those that were listed.
///
/// # Errors
/// Why it is not known that none is left, in words.
pub fn end(env: &BTreeMap<String, String>, run: &RunId) -> Result<Vec<String>, String> {
    end_named(env, &|name| name.starts_with(&prefix(run)))
}

/// As [`end`], of one step.
pub(crate) fn end_one(env: &BTreeMap<String, String>, step: &str) -> Result<Vec<String>, String> {
    end_named(env, &|name| name == step)
}

fn end_named(env: &BTreeMap<String, String>, is_meant: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let until = Instant::now() + ENDING;
    let all = list(env, is_meant)?;
    let mut left = all.clone();
    while !left.is_empty() {
        if Instant::now() > until {
            return Err(format!("Slurm still lists the steps {}", left.join(", ")));
        }
        let mut argv = vec!["scancel", "--quiet", "--signal=KILL"];
        argv.extend(left.iter().map(String::as_str));
        // One that has ended meanwhile is refused: the list tells.
        let said = run_one(env, &argv);
        std::thread::sleep(LOOK);
        left = list(env, is_meant).map_err(|why| said.err().map_or(why.clone(), |more| format!("{why} ({more})")))?;
    }
    Ok(all)
}

fn list(env: &BTreeMap<String, String>, is_meant: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let user = nix::unistd::getuid().to_string();
    let argv = ["squeue", "--steps", "--noheader", "--user", &user, "--format", "%i|%j"];
    let said = run_one(env, &argv)?;
    Ok(read(&String::from_utf8_lossy(&said), is_meant))
}

fn read(text: &str, is_meant: &dyn Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once('|'));
    lines
        .filter(|(id, name)| is_meant(name.trim()) && id.bytes().all(|b| b.is_ascii_digit() || b"._+".contains(&b)))
        .map(|(id, _)| id.to_owned())
        .collect()
}

/// Address of the node that this process runs on, as Slurm knows it: names need not resolve.
///
/// # Errors
/// Why it is not known, in words.
pub fn own_address(env: &BTreeMap<String, String>) -> Result<String, String> {
    let node = env.get("SLURMD_NODENAME").ok_or("SLURMD_NODENAME is not set")?;
    let said = run_one(env, &["scontrol", "--oneliner", "show", "node", node])?;
    let said = String::from_utf8_lossy(&said);
    let address = said.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr="));
    address
        .map(str::to_owned)
        .ok_or_else(|| format!("scontrol names no address of node {node}"))
}

fn run_one(env: &BTreeMap<String, String>, argv: &[&str]) -> Result<Vec<u8>, String> {
    let mut env = env.clone();
    // Variables of this kind change what is listed and how.
    env.retain(|name, _| !name.starts_with("SQUEUE_") && !name.starts_with("SCANCEL_"));
    call(argv, env, Utf8Path::new("/"), &[], PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_of_this_run_are_meant() {
        let run = RunId("ab12".to_owned());
        let text = "7.0|supervise-ab12-3\n7.batch|batch\n8.1|supervise-ab123-1\n7.4|supervise-ab12-4\n7.5;x|supervise-ab12-5\n";
        let meant = prefix(&run);
        assert_eq!(read(text, &|name| name.starts_with(&meant)), ["7.0", "7.4"]);
        assert_eq!(name(&run, AttemptNo(3)), "supervise-ab12-3");
    }
}
