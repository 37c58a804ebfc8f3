//! A Ray cluster that was started outside of the run: what it has, and what it still holds of a driver that died.
//!
//! The trainer's interpreter joins the cluster as the trainer will, reports what it sees, and leaves. Only Ray knows
//! when a driver's job has ended, because its processes run on other machines.

use crate::interpreter;
use crate::process::capture::{CaptureCommand, CaptureError, CapturedOutput, capture};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use supervise_trainers::python_command::PythonArgv;

/// Joining takes seconds. Ray retries an unreachable cluster for a minute or more, so the port is tested first.
const PATIENCE: Duration = Duration::from_secs(90);
/// A head on this machine accepts a connection at once.
const KNOCK: Duration = Duration::from_secs(2);
const ADDRESS: u64 = 1000;
const OUTPUT: usize = 1 << 20;
const ERRORS: usize = 8 << 10;
const NAMED: usize = 20;
const MARK: &str = "supervise-ray:";

/// The query. Arguments: address, checkpoint root, PIDs of this run's earlier drivers.
const ASK: &str = r#"
import sys, os, json, socket
import ray
from ray._private import state
address, root, drivers = sys.argv[1], sys.argv[2], set(sys.argv[3:])
if not address:
    above = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with open(os.path.join(above, "ray", "ray_current_cluster")) as file: address = file.read(1000).strip()
host, _, port = address.rpartition("/")[2].rpartition(":")
if port.isdigit(): socket.create_connection((host.strip("[]"), int(port)), 20).close()
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

/// A cluster's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RayStatus {
    pub address: String,
    pub nodes: u32,
    pub gpus: f64,
    /// Jobs that it still holds of this run's exited drivers.
    pub held: Vec<String>,
}

/// Which cluster to query, and about which run.
#[derive(Debug, Clone, Default)]
pub struct RayQuery {
    pub command: Vec<String>,
    pub cwd: Utf8PathBuf,
    pub env: BTreeMap<String, String>,
    /// As for `ray.init`; empty: the cluster that `ray start` started on this machine.
    pub address: String,
    /// The checkpoint root, which identifies this run's jobs.
    pub root: String,
    /// PIDs on this machine that were drivers of this run.
    pub drivers: Vec<i32>,
}

/// Runs the query. Blocks as long as Ray takes: do not call it in an event loop.
///
/// # Errors
/// Why nothing is known, for the operator.
pub fn ask(query: &RayQuery) -> Result<RayStatus, String> {
    let python = interpreter(query);
    let mut env = query.env.clone();
    env.extend(python.env.iter().cloned());
    let words = ["-c", ASK, query.address.as_str(), query.root.as_str()].map(str::to_owned);
    let drivers = query.drivers.iter().map(i32::to_string);
    let argv: Vec<String> = python
        .words
        .iter()
        .chain(&python.flags)
        .cloned()
        .chain(words)
        .chain(drivers)
        .collect();
    let said =
        run(&argv, &query.cwd, env).map_err(|e| format!("`{}` was asked to join it: {e}", python.words.join(" ")))?;
    if !said.status.is_success() {
        return Err(last_words(&String::from_utf8_lossy(&said.errors)));
    }
    understand(&String::from_utf8_lossy(&said.output))
        .ok_or_else(|| "it gave no answer that can be understood".to_owned())
}

/// Returns true if the head that `ray start` last started on this machine accepts connections; only Ray knows whose
/// it is.
#[must_use]
pub fn is_here(env: &BTreeMap<String, String>) -> bool {
    let above = ["RAY_TMPDIR", "TMPDIR"]
        .into_iter()
        .filter_map(|name| env.get(name))
        .find(|dir| !dir.is_empty());
    let file = Utf8Path::new(above.map_or("/tmp", String::as_str)).join("ray/ray_current_cluster");
    // Any user may write there; opening a pipe would block.
    let Some(file) = (std::fs::metadata(&file).is_ok_and(|m| m.is_file()))
        .then(|| std::fs::File::open(file).ok())
        .flatten()
    else {
        return false;
    };
    let mut address = String::new();
    if file.take(ADDRESS).read_to_string(&mut address).is_err() {
        return false;
    }
    let mut found = address.trim().to_socket_addrs().into_iter().flatten();
    found.any(|at| TcpStream::connect_timeout(&at, KNOCK).is_ok())
}

/// The interpreter of the command, or the first one in PATH if the command hides it.
fn interpreter(query: &RayQuery) -> PythonArgv {
    interpreter::find(&query.command, &query.cwd, &query.env).unwrap_or_else(|_| PythonArgv {
        words: vec!["python3".to_owned()],
        ..PythonArgv::default()
    })
}

/// A job that was submitted to a cluster, and how to stop it.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    pub id: String,
    pub argv: Vec<String>,
    pub cwd: Utf8PathBuf,
    pub env: BTreeMap<String, String>,
}

/// Stops a job, and returns when Ray says that it has ended or does not exist. Blocks: do not call it in an event
/// loop.
///
/// # Errors
/// Why its end is unknown, for the operator.
pub fn end_job(query: &JobQuery) -> Result<(), String> {
    let said =
        run(&query.argv, &query.cwd, query.env.clone()).map_err(|e| format!("`{}`: {e}", query.argv.join(" ")))?;
    let errors = String::from_utf8_lossy(&said.errors);
    let is_none = errors.contains(&format!("{} does not exist", query.id));
    if said.status.is_success() || is_none {
        return Ok(());
    }
    let why = last_words(&errors);
    Err(hint(&why).map_or_else(|| why.clone(), |more| format!("{why} ({more})")))
}

/// Advice about a cluster that requires a token, or rejects one that it does not expect.
#[must_use]
pub fn hint(why: &str) -> Option<&'static str> {
    let why = why.to_lowercase();
    let is_token = why.contains("authentication") || why.contains("unauthenticated") || why.contains("auth token");
    is_token.then_some(
        "set RAY_AUTH_MODE as it is set where the cluster was started: `token`, with the same RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token, or `disabled`",
    )
}

fn run(argv: &[String], cwd: &Utf8Path, mut env: BTreeMap<String, String>) -> Result<CapturedOutput, CaptureError> {
    env.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    let env: Vec<(String, String)> = env.into_iter().collect();
    capture(&CaptureCommand {
        input: &[],
        argv,
        env: &env,
        cwd: cwd.as_str(),
        limit: PATIENCE,
        output: OUTPUT,
        errors: ERRORS,
        stop: None,
    })
}

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

/// Parses the answer. Ray may print anything before it.
fn understand(output: &str) -> Option<RayStatus> {
    let answer = output.lines().rev().find_map(|l| l.strip_prefix(MARK))?;
    let mut said: RayStatus = serde_json::from_slice(answer.as_bytes()).ok()?;
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
        let asked = |line: &str| {
            let query = RayQuery {
                command: line.split(' ').map(str::to_owned).collect(),
                cwd: "/".into(),
                ..RayQuery::default()
            };
            let python = interpreter(&query);
            (python.words.join(" "), python.env.len())
        };
        assert_eq!(
            asked("env A=1 /v/bin/python3.11 -m verl.trainer.main_ppo"),
            ("/v/bin/python3.11".to_owned(), 1)
        );
        assert_eq!(asked("bash run.sh"), ("python3".to_owned(), 0));
    }

    #[test]
    fn what_it_says_last_is_told_and_so_is_that_there_is_none() {
        let query = RayQuery {
            command: vec!["/no/such/python3".to_owned()],
            cwd: "/".into(),
            ..RayQuery::default()
        };
        assert!(ask(&query).unwrap_err().contains("/no/such/python3"));
    }

    #[test]
    fn a_job_has_ended_only_where_ray_says_so() {
        let said = |script: &str| {
            end_job(&JobQuery {
                id: "j-1".into(),
                argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
                cwd: "/".into(),
                env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            })
        };
        assert_eq!(said("exit 0"), Ok(()));
        assert_eq!(
            said("echo 'RuntimeError: status code 404: Job j-1 does not exist.' >&2; exit 1"),
            Ok(())
        );
        assert!(said("echo 'Job j-12 does not exist.' >&2; exit 1").is_err());
        assert_eq!(
            said("echo 'ConnectionError: no' >&2; exit 1"),
            Err("ConnectionError: no".to_owned())
        );
        let token = said(
            "echo 'RuntimeError: Token authentication is enabled but no authentication token was found' >&2; exit 1",
        );
        assert!(token.unwrap_err().contains("RAY_AUTH_MODE"));
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
