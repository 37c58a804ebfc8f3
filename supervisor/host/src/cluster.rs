//! A Ray cluster that somebody else started, in its own words: what it has, and what it still holds of a driver that died.
//!
//! The interpreter that will run the trainer is asked to join the cluster as the trainer will, to say what it sees and
//! to leave again. Ray alone knows when a driver's job has ended there: its processes live on other machines.

use crate::process::boottime_ms;
use crate::process::kill::signal_group;
use crate::process::stat::proc_stat;
use camino::Utf8PathBuf;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// To join takes seconds; one that does not answer is tried by Ray itself for about twenty.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
const OUTPUT: u64 = 1 << 20;
const ERRORS: u64 = 8 << 10;
/// Of what is still held so many things are named.
const NAMED: usize = 20;
/// The answer stands behind this.
const MARK: &str = "supervise-ray:";

/// The question: address, checkpoint root, numbers of processes that were drivers of this run.
const ASK: &str = r#"
import sys, os, json
import ray
from ray._private import state
address, root, drivers = sys.argv[1], sys.argv[2], set(sys.argv[3:])
if not address:
    above = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with open(os.path.join(above, "ray", "ray_current_cluster")) as file: address = file.read(1000).strip()
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
me = ray.get_runtime_context().get_job_id()
jobs = {job["JobID"]: job for job in state.jobs()}
here = jobs[me]["DriverIPAddress"]
def ours(job):
    entry = job.get("Entrypoint") or ""
    return job["DriverIPAddress"] == here and (str(job["DriverPid"]) in drivers or bool(root) and root in entry)
def ended(job):
    return not os.path.exists("/proc/%d" % job["DriverPid"])
mine = {name: job for name, job in jobs.items() if name != me and ours(job) and (job["IsDead"] or ended(job))}
held = ["job %s, whose driver (process %d) has ended" % (name, job["DriverPid"])
    for name, job in sorted(mine.items()) if not job["IsDead"]]
for group in ray.util.placement_group_table().values():
    job = group["placement_group_id"][-8:]
    if group["state"] != "REMOVED" and job in mine:
        held.append("placement group %s of job %s" % (group["name"] or group["placement_group_id"], job))
nodes = [node for node in ray.nodes() if node["Alive"]]
print("\nsupervise-ray:" + json.dumps({"address": ray.get_runtime_context().gcs_address, "nodes": len(nodes),
    "gpus": ray.cluster_resources().get("GPU", 0), "held": held}), flush=True)
ray.shutdown()
"#;

/// What a cluster said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Where it answers.
    pub address: String,
    /// Machines that live.
    pub nodes: u32,
    /// GPUs on them.
    pub gpus: f64,
    /// What it still holds of this run's drivers that ended.
    pub held: Vec<String>,
}

/// Whom to ask, and about whom.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The trainer's command: its interpreter is asked.
    pub command: Vec<String>,
    /// The workers' directory.
    pub cwd: Utf8PathBuf,
    /// The workers' environment.
    pub env: BTreeMap<String, String>,
    /// As `ray.init` takes it; empty: the one that `ray start` began on this machine.
    pub address: String,
    /// The checkpoint root, by which a job of this run is known.
    pub root: String,
    /// Processes of this machine that were drivers of this run.
    pub drivers: Vec<i32>,
}

/// Asks. Blocks for as long as Ray takes: not for an event loop.
///
/// # Errors
/// Why nothing is known, in words.
pub fn ask(query: &Query) -> Result<Cluster, String> {
    let python = interpreter(&query.command);
    let mut command = Command::new(python);
    command.args(["-c", ASK, query.address.as_str(), query.root.as_str()]);
    command.args(query.drivers.iter().map(i32::to_string));
    command.env_clear().envs(&query.env).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(&query.cwd);
    let (status, output, errors) = run(&mut command).map_err(|e| format!("`{python}` was asked to join it: {e}"))?;
    match status {
        None => Err(format!("`{python}` did not join it within {} s", PATIENCE.as_secs())),
        Some(status) if !status.success() => Err(last_words(&errors)),
        Some(_) => understand(&output).ok_or_else(|| "it gave no answer that can be understood".to_owned()),
    }
}

/// The interpreter of the command; of a script, which starts what it likes, the one that is first in PATH.
fn interpreter(command: &[String]) -> &str {
    let is_python = |word: &&String| word.rsplit('/').next().is_some_and(|name| name.starts_with("python"));
    command.iter().find(is_python).map_or("python3", String::as_str)
}

/// Runs it to its end, or until it is late (no status); what it starts dies with it.
fn run(command: &mut Command) -> io::Result<(Option<ExitStatus>, String, String)> {
    let (output, errors) = (memory("output")?, memory("errors")?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(errors.try_clone()?)
        .process_group(0)
        .spawn()?;
    let leader = i32::try_from(child.id()).ok().and_then(proc_stat);
    let end = boottime_ms().saturating_add(u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX));
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if boottime_ms() >= end => break None,
            None => std::thread::sleep(LOOK),
        }
    };
    if status.is_none() {
        // Not reaped yet: the number is its own.
        if let Some(leader) = leader {
            let _ = signal_group(leader.proc_ref(), libc::SIGKILL);
        }
        let _ = child.wait();
    }
    Ok((status, text(output, OUTPUT)?, text(errors, ERRORS)?))
}

fn memory(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC)?.into())
}

/// The last bytes of it.
fn text(mut file: File, limit: u64) -> io::Result<String> {
    let long = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(long.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of a traceback that says what happened.
fn last_words(errors: &str) -> String {
    let line = errors
        .lines()
        .rev()
        .find(|l| !l.trim().is_empty() && !l.starts_with(' '));
    line.unwrap_or("it ended without a word")
        .trim()
        .chars()
        .take(400)
        .collect()
}

/// Reads the answer. Ray prints what it likes before it.
fn understand(output: &str) -> Option<Cluster> {
    let answer = output.lines().rev().find_map(|l| l.strip_prefix(MARK))?;
    let mut said: Cluster = serde_json::from_str(answer).ok()?;
    said.held.truncate(NAMED);
    let plain = |text: &String| text.len() <= 400 && !text.chars().any(char::is_control);
    let sane = said.gpus.is_finite() && plain(&said.address) && said.held.iter().all(plain);
    sane.then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_among_other_lines_and_nonsense_is_none() {
        let good = "2026 INFO joined\n\nsupervise-ray:{\"address\": \"10.0.0.1:6379\", \"nodes\": 2, \"gpus\": 16.0, \"held\": [\"job 01\"]}\n";
        let said = understand(good).unwrap();
        assert_eq!((said.nodes, said.held.len()), (2, 1));
        for bad in [
            "",
            "supervise-ray:{}",
            "supervise-ray:{\"address\": \"a\\u0007\", \"nodes\": 2, \"gpus\": 1, \"held\": []}",
        ] {
            assert_eq!(understand(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_interpreter_of_the_command_is_asked() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            interpreter(&words("env A=1 /v/bin/python3.11 -m verl.trainer.main_ppo")),
            "/v/bin/python3.11"
        );
        assert_eq!(interpreter(&words("bash run.sh")), "python3");
    }

    #[test]
    fn what_it_says_last_is_told_and_so_is_that_there_is_none() {
        let query = Query {
            command: vec!["/no/such/python3".to_owned()],
            cwd: "/".into(),
            ..Query::default()
        };
        assert!(ask(&query).unwrap_err().contains("/no/such/python3"));
        let (status, output, errors) = run(Command::new("sh").args(["-c", "echo said; echo why >&2; exit 3"])).unwrap();
        assert_eq!(status.and_then(|s| s.code()), Some(3));
        assert_eq!((output.as_str(), errors.as_str()), ("said\n", "why\n"));
    }

    #[test]
    fn the_end_of_a_traceback_is_told() {
        let text = "Traceback (most recent call last):\n  File \"<string>\", line 5\nConnectionError: Could not find any running Ray instance.\n\n";
        assert_eq!(
            last_words(text),
            "ConnectionError: Could not find any running Ray instance."
        );
        assert_eq!(last_words(""), "it ended without a word");
    }
}
