//! Slurm jobs, listed with `squeue` and ended with `scancel`. Both talk to a daemon that may be unreachable or hang:
//! each call has a deadline, and a missing answer is never treated as success.

use crate::process::call::call;
use crate::script;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use supervise_trainers::slurm::{FORMAT, JobOwnership, SlurmJob, SlurmJobs, read, words};

/// Slurm's commands give up after about ten seconds, and again with a second server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Slurm kills a job's processes some time after SIGTERM (KillWait, 30 s).
const ENDING: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_secs(1);
/// Its processes are exiting, and it accepts no more requests.
const COMPLETING: &str = "COMPLETING";

/// How to query Slurm, and about which run.
#[derive(Debug, Clone)]
pub struct SlurmQuery {
    pub proof: JobOwnership,
    pub known: SlurmJobs,
    pub cwd: Utf8PathBuf,
    pub env: BTreeMap<String, String>,
}

/// The active jobs of this run, and those that look like them.
///
/// # Errors
/// Why nothing is known, for the operator.
pub fn ask(query: &SlurmQuery) -> Result<Vec<SlurmJob>, String> {
    let path = query.env.get("PATH").map_or("", String::as_str);
    // Without it nothing can have been submitted.
    if !script::is_there(path, script::SBATCH) {
        return Ok(Vec::new());
    }
    let user = nix::unistd::getuid().to_string();
    let argv = ["squeue", "--noheader", "--user", &user, "--format", FORMAT];
    let said = run(query, &argv)?;
    read(&String::from_utf8_lossy(&said), &query.proof, &query.known)
}

/// Cancels the jobs that are certainly ours, and returns them when Slurm no longer lists them. `say` is called with
/// them first.
///
/// # Errors
/// Why their end is unknown, for the operator.
pub fn end(query: &SlurmQuery, mut say: impl FnMut(&[SlurmJob])) -> Result<Vec<SlurmJob>, String> {
    let ours = |jobs: Vec<SlurmJob>| -> Vec<SlurmJob> { jobs.into_iter().filter(|j| j.attempt.is_some()).collect() };
    let all = ours(ask(query)?);
    if all.is_empty() {
        return Ok(all);
    }
    let until = Instant::now() + ENDING;
    let mut left = all.clone();
    let mut cancelled = BTreeSet::new();
    loop {
        // A job submitted meanwhile by a running one is treated like the first ones.
        let new: Vec<SlurmJob> = left
            .iter()
            .filter(|j| j.state != COMPLETING && !cancelled.contains(&j.id))
            .cloned()
            .collect();
        let mut refusal = String::new();
        if !new.is_empty() {
            say(&new);
            match cancel(query, &new) {
                Ok(()) => cancelled.extend(new.iter().map(|j| j.id)),
                Err(why) => refusal = format!(" ({why})"),
            }
        }
        std::thread::sleep(LOOK);
        left = ours(ask(query)?);
        if left.is_empty() {
            return Ok(all);
        }
        if Instant::now() > until {
            return Err(format!("Slurm still lists {}{refusal}", words(&left)));
        }
    }
}

fn cancel(query: &SlurmQuery, jobs: &[SlurmJob]) -> Result<(), String> {
    let ids: Vec<String> = jobs.iter().map(|j| j.id.to_string()).collect();
    let argv: Vec<&str> = ["scancel", "--quiet"]
        .into_iter()
        .chain(ids.iter().map(String::as_str))
        .collect();
    run(query, &argv).map(|_| ())
}

fn run(query: &SlurmQuery, argv: &[&str]) -> Result<Vec<u8>, String> {
    let mut env = query.env.clone();
    // Variables of this kind change what is listed and how.
    env.retain(|name, _| !name.starts_with("SQUEUE_") && !name.starts_with("SCANCEL_"));
    call(argv, env, &query.cwd, &[], PATIENCE)
}

/// Slurm's state of a job that waits to be started, again or for the first time. `None`: it does not wait, or that is
/// unknown.
#[must_use]
pub fn waiting(job: &str, mut env: BTreeMap<String, String>) -> Option<String> {
    env.retain(|name, _| !name.starts_with("SQUEUE_"));
    let argv = ["squeue", "--noheader", "--jobs", job, "--format", "%T"];
    let said = call(&argv, env, Utf8Path::new("/"), &[], PATIENCE).ok()?;
    let state = String::from_utf8_lossy(&said).trim().to_owned();
    ["PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"]
        .contains(&state.as_str())
        .then_some(state)
}

/// Submits a batch script. Returns the job id.
///
/// # Errors
/// Why it was not submitted, for the operator.
pub fn submit(script: &str, cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Result<u64, String> {
    let said = call(
        &[script::SBATCH, "--parsable"],
        env.clone(),
        cwd,
        script.as_bytes(),
        PATIENCE,
    )?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    // The name of a cluster may follow.
    let number = said.split(';').next().and_then(|n| n.parse().ok());
    number.ok_or_else(|| format!("sbatch prints what cannot be understood: {said:?}"))
}
