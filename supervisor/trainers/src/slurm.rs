//! Jobs that a trainer hands to Slurm: they outlive whoever submitted them. By what a job is known to be this run's, and what
//! `squeue` says of them.
//!
//! A name proves nothing: two runs of one user may give their jobs the same. Each job that an attempt submits gets a comment that
//! names the attempt and a key that stands in the run's own directory and nowhere else. Only such a job, with a name of the trainer's
//! workers, is ever cancelled.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use supervise_core::id::{AttemptNo, RunId, Term};

/// Fields that `squeue` is asked for: number, state, comment, script, name. What anybody may write freely stands last.
pub const FORMAT: &str = "%A|%T|%k|%o|%j";
/// Jobs that are looked at; a user has hundreds at most.
const JOBS: usize = 100_000;

/// By what jobs look like those of a run. It is no proof: names and scripts are free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobs {
    /// How their names begin.
    pub prefix: String,
    /// The directory of the scripts that are submitted.
    pub scripts: Utf8PathBuf,
}

/// The mark that proves a job to be this run's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOwnership {
    /// It stands in the run directory alone.
    pub key: String,
    /// The run.
    pub run: RunId,
}

impl JobOwnership {
    /// The comment of the jobs that an attempt submits.
    #[must_use]
    pub fn comment(&self, term: Term, attempt: AttemptNo) -> String {
        format!("{}{term}/{attempt}", self.head())
    }

    fn head(&self) -> String {
        format!("supervise:{}/{}/", self.key, self.run)
    }

    /// The attempt of ours that a comment names.
    fn attempt(&self, comment: &str) -> Option<AttemptNo> {
        let (term, attempt) = comment.strip_prefix(&self.head())?.split_once('/')?;
        let _: u32 = term.parse().ok()?;
        attempt.parse().ok().filter(|_| !self.key.is_empty()).map(AttemptNo)
    }
}

/// A job that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJob {
    /// Its number.
    pub id: u64,
    /// Its state, in Slurm's word.
    pub state: String,
    /// Its name.
    pub name: String,
    /// The attempt of this run that submitted it; `None`: nothing proves where it comes from.
    pub attempt: Option<AttemptNo>,
}

impl std::fmt::Display for SlurmJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.id, self.name, self.state)
    }
}

/// Jobs in words.
#[must_use]
pub fn words(jobs: &[SlurmJob]) -> String {
    jobs.iter().map(SlurmJob::to_string).collect::<Vec<_>>().join(", ")
}

/// The jobs of this run, and those that look like them but are not proven to be; all others are nobody's business here.
///
/// # Errors
/// A line that cannot be understood: then nothing is known.
pub fn read(output: &str, proof: &JobOwnership, known: &SlurmJobs) -> Result<Vec<SlurmJob>, String> {
    let is_title = |line: &&str| line.starts_with("CLUSTER:");
    if output.lines().filter(is_title).count() > 1 {
        return Err(
            "several clusters answer (SLURM_CLUSTERS), and a job's number does not tell which is meant".to_owned(),
        );
    }
    let lines = output
        .lines()
        .filter(|line| !line.trim().is_empty() && !is_title(line))
        .take(JOBS);
    let jobs: Result<Vec<Option<SlurmJob>>, String> = lines.map(|line| job(line, proof, known)).collect();
    Ok(jobs?.into_iter().flatten().collect())
}

fn job(line: &str, proof: &JobOwnership, known: &SlurmJobs) -> Result<Option<SlurmJob>, String> {
    let mut parts = line.splitn(5, '|');
    let mut next = || parts.next().map(str::trim);
    let (id, state, comment, script) = (next(), next(), next(), next());
    let name: Option<String> = next().map(|name| name.chars().filter(|c| !c.is_control()).take(200).collect());
    let id = id.and_then(|id| id.parse().ok());
    let (Some(id), Some(state), Some(comment), Some(script), Some(name)) = (id, state, comment, script, name) else {
        let shown: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(format!("squeue prints what cannot be understood: {shown}"));
    };
    let is_word = state.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // What a user's script submits besides is meant to go on.
    let attempt = proof.attempt(comment).filter(|_| name.starts_with(&known.prefix));
    // Another run that is supervised says so; one of this directory under another name is this one before it was moved.
    let anothers = comment.starts_with("supervise:") && !comment.starts_with(&format!("supervise:{}/", proof.key));
    // AReaL submits a script that it writes beside its logs: below another file root it is another run's.
    let elsewhere = script.starts_with('/') && !script.starts_with(&format!("{}/", known.scripts));
    let namesake = name.starts_with(&known.prefix) && !elsewhere;
    let seen = attempt.is_some() || namesake && !anothers;
    Ok(seen.then(|| SlurmJob {
        id,
        state: if is_word { state.to_owned() } else { "?".to_owned() },
        name,
        attempt,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> JobOwnership {
        JobOwnership {
            key: "0123".to_owned(),
            run: RunId("00ff".to_owned()),
        }
    }

    fn known() -> SlurmJobs {
        SlurmJobs {
            prefix: "exp_t0:".to_owned(),
            scripts: "/files/logs/me/exp/t0".into(),
        }
    }

    #[test]
    fn only_the_comment_makes_a_job_ours() {
        let ours = proof().comment(Term(2), AttemptNo(7));
        assert_eq!(ours, "supervise:0123/00ff/2/7");
        let attempt = Some(Some(AttemptNo(7)));
        let script = "/files/logs/me/exp/t0/actor.sh";
        for (comment, script, name, seen) in [
            (ours.as_str(), script, "exp_t0:actor", attempt),
            (ours.as_str(), "/elsewhere/x.sh", "exp_t0:my|job", attempt),
            // Submitted by the trainer's script, and no worker of it.
            (ours.as_str(), script, "evaluation", None),
            // Started by hand, or by an `sbatch` that was called by its path.
            ("(null)", script, "exp_t0:actor", Some(None)),
            ("mine", "(null)", "exp_t0:actor", Some(None)),
            // Other runs with the same names: below another root, or supervised from another directory.
            ("(null)", "/other/logs/me/exp/t0/actor.sh", "exp_t0:actor", None),
            ("(null)", "/files/logs/me/exp/t0x/actor.sh", "exp_t0:actor", None),
            ("supervise:4567/00ff/2/7", script, "exp_t0:actor", None),
            // This one, before its root was moved.
            ("supervise:0123/00fe/2/7", script, "exp_t0:actor", Some(None)),
            ("(null)", script, "exp_t01:actor", None),
            ("supervise:0123/00ff/2/", script, "other", None),
            ("supervise:0123/00ff/2/7x", script, "other", None),
        ] {
            let line = format!("12|RUNNING|{comment}|{script}|{name}\n");
            let read = read(&line, &proof(), &known()).unwrap();
            assert_eq!(read.first().map(|job| job.attempt), seen, "{line}");
        }
    }

    #[test]
    fn a_run_without_a_key_has_no_jobs_of_its_own() {
        let nobody = JobOwnership {
            key: String::new(),
            ..proof()
        };
        let line = format!("12|RUNNING|{}|/x.sh|exp_t0:a", nobody.comment(Term(1), AttemptNo(1)));
        assert_eq!(read(&line, &nobody, &known()), Ok(Vec::new()));
    }

    #[test]
    fn what_cannot_be_understood_is_no_answer() {
        for line in ["slurm_load_jobs error", "x|RUNNING|a|b|c", "12|RUNNING|a|b"] {
            assert!(read(line, &proof(), &known()).is_err(), "{line}");
        }
        for line in ["\n", "CLUSTER: one\n"] {
            assert_eq!(read(line, &proof(), &known()), Ok(Vec::new()));
        }
        assert!(read("CLUSTER: one\nCLUSTER: two\n", &proof(), &known()).is_err());
        let jobs = read("7|RUN\u{1b}|(null)|(null)|exp_t0:a\u{1b}[1m\n", &proof(), &known()).unwrap();
        assert_eq!(words(&jobs), "7 (exp_t0:a[1m, ?)");
    }
}
