//! Jobs of Slurm's, in `squeue`'s words and ended by `scancel`. Both talk to a daemon that may be away or hang: each call has a
//! deadline, and no answer is never taken for a good one.

use crate::process::call::call;
use crate::script;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use supervise_trainers::slurm::{FORMAT, JobOwnership, SlurmJob, SlurmJobs, read, words};

/// Slurm's own commands give up after about ten seconds, and again after a second server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Slurm kills a job's processes some time after it asked them to end (KillWait, 30 s).
const ENDING: Duration = Duration::from_secs(90);
/// How often it is looked whether a job has ended.
const LOOK: Duration = Duration::from_secs(1);
/// Its processes are ending, and nothing more can be asked of it.
const COMPLETING: &str = "COMPLETING";

/// Whom to ask, and about whom.
#[derive(Debug, Clone)]
pub struct SlurmQuery {
    /// The mark that makes a job ours.
    pub proof: JobOwnership,
    /// Form of our jobs.
    pub known: SlurmJobs,
    /// The workers' directory.
    pub cwd: Utf8PathBuf,
    /// The workers' environment.
    pub env: BTreeMap<String, String>,
}

/// The living jobs of this run, and those that look like them.
///
/// # Errors
/// Why nothing is known, in words.
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

/// Cancels what is proven to be ours, and returns when Slurm does not list it any more: the jobs that were. `say` hears of them first.
///
/// # Errors
/// Why it is not known that they have ended, in words.
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
        // One that a living job submitted meanwhile is as new as the first ones.
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

/// A job that waits to be started, again or for the first time: the state that Slurm gives it. `None`: it does not wait, or nobody says.
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

/// Submits a batch script. Returns the job's number.
///
/// # Errors
/// Why it is not submitted, in words.
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
