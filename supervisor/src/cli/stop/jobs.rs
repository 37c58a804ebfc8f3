//! Slurm jobs that a dead supervisor's attempts left.

use super::RunInfo;
use crate::error::CliError;
use crate::printer;
use camino::Utf8PathBuf;
use supervise_host::slurm::{self, SlurmQuery};
use supervise_trainers::adapter_of;
use supervise_trainers::slurm::{JobOwnership, SlurmJob, words};

pub(super) fn query(seen: &RunInfo) -> Option<SlurmQuery> {
    let spec = seen.spec.as_ref()?;
    let mut env = crate::environment::own();
    env.extend(spec.env.clone());
    Some(SlurmQuery {
        proof: JobOwnership {
            key: seen.key.clone(),
            run: seen.run.clone(),
        },
        known: adapter_of(spec).jobs(&spec.saves)?,
        // The run's own directory may hang, and is irrelevant to Slurm.
        cwd: Utf8PathBuf::from("/"),
        env,
    })
}

fn failed(why: String) -> CliError {
    CliError::environment(format!(
        "Slurm does not say that the jobs of this run have ended: {why}"
    ))
    .hint("`squeue --me` lists what lives; `scancel` ends it")
}

/// Returns true if a job that an attempt of this run submitted is running. A job of unknown origin is reported.
pub(in super::super) fn any(seen: &RunInfo) -> Result<bool, CliError> {
    let Some(query) = query(seen) else { return Ok(false) };
    let jobs = slurm::ask(&query).map_err(failed)?;
    let (ours, others): (Vec<SlurmJob>, Vec<SlurmJob>) = jobs.into_iter().partition(|job| job.attempt.is_some());
    if !others.is_empty() {
        printer::err(&format!(
            "Slurm lists {}: named as the jobs of this run are, but nothing proves that an attempt of it submitted them; they are not touched\n",
            words(&others)
        ));
    }
    Ok(!ours.is_empty())
}

/// Cancels them and waits until they have ended.
pub(super) fn end(seen: &RunInfo, json: bool) -> Result<(), CliError> {
    let Some(query) = query(seen) else { return Ok(()) };
    let tell = |jobs: &[SlurmJob]| {
        let text = format!("cancelled with Slurm: {}\n", words(jobs));
        if json { printer::err(&text) } else { printer::out(&text) }
    };
    slurm::end(&query, tell).map(|_| ()).map_err(failed)
}
