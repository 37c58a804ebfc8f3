//! Slurm: AReaL's scheduler and launcher submit jobs that outlive the submitting process.

use super::call::ArealLauncher;
use super::fields::TEXT;
use crate::kit::ConfigReader;
use crate::read::ReadInput;
use crate::slurm::SlurmJobs;

pub(super) fn submits(v: &mut ConfigReader<'_>, form: &ArealLauncher) -> bool {
    match form {
        ArealLauncher::Launcher(place) => place == "slurm",
        ArealLauncher::Controller => v.get("scheduler.type", TEXT).as_deref() == Some("slurm"),
        ArealLauncher::Torchrun | ArealLauncher::Ranks | ArealLauncher::Unknown => false,
    }
}

pub(super) fn check(v: &mut ConfigReader<'_>, form: &ArealLauncher) {
    if !submits(v, form) {
        return;
    }
    let mut text = "its workers are jobs of Slurm's, which outlive a process that is killed: those that an attempt of this run submitted are cancelled, and have ended before the next one; others of their names are named and waited for".to_owned();
    let launcher = matches!(form, ArealLauncher::Launcher(_));
    if launcher {
        text.push_str("; what they print goes to files of AReaL's, so that steps are known here only by what is saved");
    }
    v.note("slurm_jobs", if launcher { "" } else { "scheduler.type" }, text);
}

pub(super) fn known(
    v: &mut ConfigReader<'_>,
    input: &ReadInput<'_>,
    form: &ArealLauncher,
    user: &str,
) -> Option<SlurmJobs> {
    if !submits(v, form) {
        return None;
    }
    let [experiment, trial, fileroot] =
        ["experiment_name", "trial_name", "cluster.fileroot"].map(|key| v.needed(key, TEXT).unwrap_or_default());
    let scripts = input.cwd.join(fileroot).join("logs").join(user);
    Some(SlurmJobs {
        prefix: format!("{experiment}_{trial}:"),
        scripts: scripts.join(experiment).join(trial).components().collect(),
    })
}
